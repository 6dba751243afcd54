package main

import (
	"bytes"
	"io/fs"
	"os"
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
		if err != nil {
			t.Fatal(err)
		}
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
