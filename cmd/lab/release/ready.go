package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	newest = regexp.MustCompile(`(?m)^## (.*)$`)
	named  = regexp.MustCompile(`^(\d+\.\d+\.\d+), (\d{4}-\d\d-\d\d)$`)
	// Addresses that nobody reads (RFC 2606)
	placeholder = regexp.MustCompile(`[\w.-]+@(?:[\w-]+\.)*example(?:\.org|\.com|\.net)?\b`)
)

// ready is an error that says what a release of a commit lacks: a version and a date at the top of
// each CHANGELOG that has news, the tag of that version, and contacts that somebody reads.
func ready(root, commit, maintainer string) (wrong error) {
	lacks := func(format string, args ...any) {
		wrong = errors.Join(wrong, fmt.Errorf(format, args...))
	}
	version := ""
	files, err := filepath.Glob(filepath.Join(root, "CHANGELOG*.md"))
	if err != nil {
		return err
	}
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		head := newest.FindSubmatch(text)
		if head == nil {
			lacks("%s has no version: begin it with \"## 1.2.3, 2026-01-31\"", name)
			continue
		}
		m := named.FindStringSubmatch(string(head[1]))
		switch {
		case m == nil:
			lacks("%s begins with %q: say version and date there, such as \"## 1.2.3, 2026-01-31\"",
				name, head[1])
		case name == "CHANGELOG.md":
			version = m[1]
		}
	}
	if version != "" {
		tags, err := output(root, "git", "tag", "--points-at", commit)
		if err != nil {
			return err
		}
		if tag := "v" + version; !slices.Contains(strings.Fields(tags), tag) {
			lacks("the commit has no tag %s, which programs take their version from: git tag -a %s -m 'Sluice %s' %.12s",
				tag, tag, version, commit)
		}
	}
	security, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		return err
	}
	if at := placeholder.Find(security); at != nil {
		lacks("SECURITY.md: %s is a placeholder: name an address that somebody reads", at)
	}
	if at := placeholder.FindString(maintainer); at != "" {
		lacks("--maintainer: %s is a placeholder: make release FLAGS=\"--maintainer 'NAME <ADDRESS>'\"",
			at)
	}
	return wrong
}
