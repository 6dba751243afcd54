package labtest

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
	"sluice/docs/pages"
)

// Documents fails the test where a command of a program in a document has a flag that no longer
// exists, because a reader who tries it gets an error. Nothing runs: behind the flags of a document
// stands one that nobody has, and that must be the first to be refused. It returns how many
// commands it has found; bare says that they may stand in backticks without the program's name.
func Documents(t *testing.T, p *cli.Program, bare bool) (seen int) {
	t.Helper()
	var names []string
	for _, c := range p.Commands {
		names = append(names, c.Name)
	}
	before := p.Name + " "
	if bare {
		before = "(?:" + before + "|`)"
	}
	command := regexp.MustCompile(before + "(" + strings.Join(names, "|") + ")(( --?[a-z-]+(=?[^-`|&\\n][^`|&\\n]*)?)*)[`&|\\n]")
	for file, text := range Texts(t) {
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			seen++
			var stderr bytes.Buffer
			args := append([]string{m[1]}, strings.Fields(strings.ReplaceAll(m[2], `"`, ""))...)
			code := p.Run(t.Context(), append(args, "--nobody-has-this"), &stderr)
			if code != 2 || !strings.Contains(stderr.String(), "unknown flag: --nobody-has-this") {
				t.Errorf("%s: %s %s: exit code %d: %s", file, p.Name, strings.Join(args, " "), code,
					stderr.String())
			}
		}
	}
	return seen
}

// Texts are the documents, and what says how their figures are made.
func Texts(t *testing.T) map[string]string {
	t.Helper()
	const root, figures = "../..", "docs/figures/figures.yaml"
	all, err := pages.All(root)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(root + "/" + figures)
	if err != nil {
		t.Fatal(err)
	}
	all[figures] = string(text)
	return all
}
