//go:build system

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What .dockerignore keeps from Docker, the program is not built of, and nothing that may be a secret goes there.
func TestImageHasItsSource(t *testing.T) {
	text, err := os.ReadFile("../../.dockerignore")
	must(t, err)
	var patterns []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			patterns = append(patterns, line)
		}
	}
	ignored := func(file string) bool {
		for _, p := range patterns {
			if any, deep := strings.CutPrefix(p, "**/"); deep {
				for part := range strings.SplitSeq(file, "/") {
					if is, _ := filepath.Match(any, part); is {
						return true
					}
				}
			} else if file == p || strings.HasPrefix(file, p+"/") {
				return true
			}
		}
		return false
	}
	const each = `{{if not .Standard}}{{$p := .ImportPath}}{{range .GoFiles}}{{$p}}/{{.}} {{end}}{{range .EmbedFiles}}{{$p}}/{{.}} {{end}}{{end}}`
	list, err := exec.Command("go", "list", "-deps", "-f", each, ".").Output()
	must(t, err)
	own := 0
	for file := range strings.FieldsSeq(string(list)) {
		if of, is := strings.CutPrefix(file, "sluice/"); is {
			if own++; ignored(of) {
				t.Errorf("the image is built without %s", of)
			}
		}
	}
	if own < 100 || ignored("go.mod") || !ignored("pop.secret") || !ignored("certs/a.key") {
		t.Errorf("%d files, %q", own, patterns)
	}
}
