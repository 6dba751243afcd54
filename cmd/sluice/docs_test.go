package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Every path that the page on the architecture names exists.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	must(t, err)
	named := regexp.MustCompile("`([a-z]+(?:/[A-Za-z_-]+)*(?:/[A-Za-z_-]+\\.[a-z]+|/[A-Za-z_-]+))`").FindAllSubmatch(text, -1)
	if len(named) < 60 {
		t.Errorf("only %d paths are found on the page", len(named))
	}
	for _, m := range named {
		if _, err := os.Stat(filepath.Join("../..", string(m[1]))); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
}
