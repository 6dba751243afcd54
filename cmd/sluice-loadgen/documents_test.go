package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What goes wrong if a command in a document has a flag that is no more, or make a target: whoever tries it is told that there is none.
// Nothing runs: behind the flags of a document stands one that nobody has, and that must be the first to be refused.
func TestCommandsInDocuments(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	must(t, err)
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	command := regexp.MustCompile("(?:sluice-loadgen |`)(" + strings.Join(names, "|") + ")(( --?[a-z-]+(=?[^-`|&\\n][^`|&\\n]*)?)*)[`&|\\n]")
	target := regexp.MustCompile("`make ([a-z-]+)|(?m:^make ([a-z-]+))")
	seen, made := 0, 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/figures/*.yaml", "../../deploy/*.md"} {
		files, err := filepath.Glob(pattern)
		must(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			for _, m := range command.FindAllStringSubmatch(string(text), -1) {
				seen++
				var stderr bytes.Buffer
				args := append([]string{m[1]}, strings.Fields(strings.ReplaceAll(m[2], `"`, ""))...)
				code := run(t.Context(), append(args, "--nobody-has-this"), &stderr)
				if code != 2 || !strings.Contains(stderr.String(), "unknown flag: --nobody-has-this") {
					t.Errorf("%s: sluice-loadgen %s: exit code %d: %s", file, strings.Join(args, " "), code, stderr.String())
				}
			}
			for _, m := range target.FindAllStringSubmatch(string(text), -1) {
				made++
				if !bytes.Contains(makefile, []byte("\n"+m[1]+m[2]+":")) {
					t.Errorf("%s: make %s%s: there is no such target", file, m[1], m[2])
				}
			}
		}
	}
	if seen < 20 || made < 15 {
		t.Errorf("%d commands and %d targets are found in the documents", seen, made)
	}
}
