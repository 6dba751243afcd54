package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The example that operators start from must be a good one.
func TestDeployedExample(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"check", "../../deploy/sluice.yaml"}, &out, &errs); code != 0 {
		t.Errorf("sluice check deploy/sluice.yaml: exit %d: %s", code, errs.String())
	}
}

// No example lets everybody be an operator: they listen on this machine alone, or want a token.
func TestExamplesGuardOperators(t *testing.T) {
	everywhere := regexp.MustCompile(`admin"?[:,=]? *"?(0\.0\.0\.0|\[::\]|\*)?:\d`)
	token := regexp.MustCompile(`(?m)^\s*admin_token_file: /`)
	seen := 0
	err := filepath.WalkDir("../../deploy", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		if found := everywhere.Find(text); found != nil && !token.Match(text) {
			t.Errorf("%s: %q, and no admin_token_file", path, found)
		}
		return nil
	})
	if err != nil || seen < 5 {
		t.Errorf("%d files, %v", seen, err)
	}
}

// What goes wrong if a flag of an example is no more: the process that it starts ends at once.
func TestExamplesHaveFlags(t *testing.T) {
	between := regexp.MustCompile(`,? +`)
	for name, line := range map[string]*regexp.Regexp{
		"deploy/systemd/sluice.service":           regexp.MustCompile(`(?m)^ExecStart=\S+/sluice (.*)$`),
		"deploy/compose.yaml":                     regexp.MustCompile(`command: &command \[(.*)\]`),
		"deploy/helm/sluice/templates/edges.yaml": regexp.MustCompile(`args: \[(--config.*)\]`),
		"README.md": regexp.MustCompile(`(?m)^bin/sluice (.*) &$`),
	} {
		text, err := os.ReadFile("../../" + name)
		must(t, err)
		lines := line.FindAllSubmatch(text, -1)
		if len(lines) == 0 {
			t.Errorf("%s: no command line", name)
		}
		for _, m := range lines {
			if _, err := parseFlags(between.Split(strings.ReplaceAll(string(m[1]), `"`, ""), -1)); err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
			}
		}
	}
}

// What the package is made of is there, with documents, examples and what shells complete by, and what its files name of it is in it.
func TestPackageHasWhatItNames(t *testing.T) {
	text, err := os.ReadFile("../../cmd/lab/release/debian.go")
	must(t, err)
	var made, named []string
	for _, m := range regexp.MustCompile(`"(deploy/[^"]+)": +"([^"]+)"`).FindAllSubmatch(text, -1) {
		_, err := os.Stat("../../" + string(m[1]))
		must(t, err)
		made = append(made, "/"+string(m[2]))
	}
	list := regexp.MustCompile(`(?s)\nvar read = \[\]string\{(.*?)\}\n`).FindSubmatch(text)
	unread := regexp.MustCompile("regexp.MustCompile\\(`([^`]+)`\\)").FindSubmatch(text)
	if len(made) < 5 || list == nil || unread == nil {
		t.Fatalf("the release puts %q in the package, and to read %q but %q", made, list, unread)
	}
	left := regexp.MustCompile(string(unread[1]))
	for _, what := range strings.FieldsFunc(string(list[1]), func(r rune) bool { return strings.ContainsRune("\" ,\n\t", r) }) {
		must(t, filepath.WalkDir("../../"+what, func(file string, d fs.DirEntry, err error) error {
			if below := strings.TrimPrefix(file, "../../"); err == nil && !d.IsDir() && !left.MatchString(below) {
				made = append(made, "/usr/share/doc/sluice/"+below)
			}
			return err
		}))
	}
	for _, want := range []string{"/etc/logrotate.d/sluice", "/usr/share/doc/sluice/docs/alerts/README.md", "/usr/share/doc/sluice/examples/exactly-once.yaml", "/usr/share/doc/sluice/deploy/prometheus/sluice.rules.yml"} {
		if !slices.Contains(made, want) {
			t.Errorf("%s is not in the package", want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if !regexp.MustCompile(`"` + shell + `": +"usr/share/`).Match(text) {
			t.Errorf("%s has nothing to complete by", shell)
		}
	}
	for _, file := range []string{"systemd/sluice.service", "systemd/sluice-wall.service", "debian/sluice.yaml", "debian/postinst", "anycast/sluice-announce.service"} {
		text, err := os.ReadFile("../../deploy/" + file)
		must(t, err)
		for _, name := range regexp.MustCompile(`/usr/(share/doc|lib)/sluice/[\w./-]*\w`).FindAll(text, -1) {
			if named = append(named, string(name)); !slices.Contains(made, string(name)) {
				t.Errorf("%s names %s, which is not in the package", file, name)
			}
		}
	}
	if len(named) < 3 {
		t.Errorf("%q are named", named)
	}
}

// What the unit has to stop is longer than the edge takes, and a reload asks whether the file is good before it tells the edge, outside of the sandbox:
// inside there are no credentials then.
func TestUnitStopsAndReloads(t *testing.T) {
	text, err := os.ReadFile("../../deploy/systemd/sluice.service")
	must(t, err)
	lines := func(name string) (values []string) {
		for _, m := range regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllSubmatch(text, -1) {
			values = append(values, string(m[1]))
		}
		return values
	}
	f, err := parseFlags(strings.Fields(lines("ExecStart")[0])[1:])
	must(t, err)
	stop, err := time.ParseDuration(lines("TimeoutStopSec")[0] + "s")
	must(t, err)
	if least := f.notice + f.grace + 5*time.Second; stop < least { // a second of noticing, and reports to the tier
		t.Errorf("the edge takes up to %v, and has %v", least, stop)
	}
	if got := lines("ExecReload"); !slices.Equal(got, []string{"+/usr/bin/sluice check " + f.config, "/bin/kill -HUP $MAINPID"}) {
		t.Errorf("a reload is %q", got)
	}
}
