package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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
		"deploy/systemd/sluice.service": regexp.MustCompile(`(?m)^ExecStart=\S+/sluice (.*)$`),
		"deploy/compose.yaml":           regexp.MustCompile(`command: &command \[(.*)\]`),
		"deploy/kubernetes/sluice.yaml": regexp.MustCompile(`args: \[(--config.*)\]`),
		"README.md":                     regexp.MustCompile(`(?m)^bin/sluice (.*) &$`),
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

// The unit passes systemd's own judgement: below 2.5 of 10, and not a directive that systemd does not know.
func TestUnitIsHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze: units are judged where systemd is")
	}
	if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=25", "../../deploy/systemd/sluice.service").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	folder := t.TempDir()
	for _, name := range []string{"sluice.service", "sluice.socket"} {
		text, err := os.ReadFile("../../deploy/systemd/" + name)
		must(t, err)
		text = bytes.ReplaceAll(text, []byte("/usr/bin/sluice"), []byte(os.Args[0])) // verify wants to see the program
		must(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	out, err := exec.Command("systemd-analyze", "verify", filepath.Join(folder, "sluice.service"), filepath.Join(folder, "sluice.socket")).CombinedOutput()
	if about := regexp.MustCompile(`(?m)^.*sluice\.(service|socket).*$`).FindAll(out, -1); err != nil || len(about) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
