package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Each program says its version in a sentence of its own, nginx to standard error. Programs that are not measured are not asked.
func TestVersions(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for name, says := range map[string]string{
		"nginx":   `[ "$1" = -v ] && echo 'nginx version: nginx/1.22.1' >&2`,
		"haproxy": `[ "$1" = -v ] && echo 'HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/' && echo 'Known bugs: http://www.haproxy.org/bugs/bugs-2.6.12.html'`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(fmt.Sprintf("#!/bin/sh\n%s\n", says)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	list, err := Versions(t.Context(), []string{"nginx 444", "haproxy", "sluice"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 || !slices.Equal(list[:2], []string{"nginx 1.22.1", "haproxy 2.6.12"}) {
		t.Errorf("%q", list)
	}
}
