package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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
