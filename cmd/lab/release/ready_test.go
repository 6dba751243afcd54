package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A release has a version with a date, the tag of that version, and contacts that somebody reads. What it lacks is said at once.
func TestReady(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) string {
		t.Helper()
		text, err := output(root, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b.test"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "begin")
	commit := git("rev-parse", "HEAD")
	put("CHANGELOG.md", "# Changelog\n\n## Unreleased\n- a\n\n## 0.1.0, 2026-11-23\n")
	put("CHANGELOG-tools.md", "# Changelog\n\n## Unreleased\n- a\n")
	put("SECURITY.md", "# Security\nMail to <security@sluice.example.org>.\n")
	check := func(maintainer string, want ...string) {
		t.Helper()
		err := ready(root, commit, maintainer)
		said := ""
		if err != nil {
			said = err.Error()
		}
		if n := strings.Count(said+"\n", "\n"); n != max(len(want), 1) {
			t.Errorf("%d lines, want %d: %s", n, len(want), said)
		}
		for _, w := range want {
			if !strings.Contains(said, w) {
				t.Errorf("%q is not said: %s", w, said)
			}
		}
		if len(want) == 0 && err != nil {
			t.Error(err)
		}
	}
	check("The authors <sluice@example.org>", `CHANGELOG.md begins with "Unreleased"`, `CHANGELOG-tools.md begins with "Unreleased"`, "SECURITY.md: security@sluice.example.org", "--maintainer: sluice@example.org")
	put("CHANGELOG.md", "# Changelog\n\n## 0.2.0, 2026-11-28\n- a\n")
	put("CHANGELOG-tools.md", "# Changelog\n\n## 0.2.0, 2026-11-28\n- a\n")
	put("SECURITY.md", "# Security\nMail to <security@sluice.test>.\n")
	check("A <a@b.test>", "git tag -a v0.2.0 -m 'Sluice 0.2.0' "+commit[:12])
	git("tag", "-a", "v0.2.0", "-m", "Sluice 0.2.0")
	check("A <a@b.test>")
}
