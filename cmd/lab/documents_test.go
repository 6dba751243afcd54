package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/cmd/internal/labtest"
	"sluice/docs/pages"
)

func TestCommandsInDocuments(t *testing.T) {
	if seen := labtest.Documents(t, &program, false); seen < 8 {
		t.Errorf("%d commands are found in the documents", seen)
	}
}

// What goes wrong if a test goes that a page names: nobody knows any more what holds the promise.
func TestTestsInDocuments(t *testing.T) {
	const root = "../.."
	there := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			there[string(m[1])] = true
		}
		return err
	}))
	all, err := pages.All(root)
	must(t, err)
	seen := 0
	for name, text := range all {
		if strings.HasPrefix(name, "CHANGELOG") {
			continue // what was then
		}
		for _, m := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(text, -1) {
			if seen++; !there[m[1]] {
				t.Errorf("%s names %s, and there is no such test", name, m[1])
			}
		}
	}
	if seen < 50 {
		t.Errorf("%d tests are named in the documents", seen)
	}
}
