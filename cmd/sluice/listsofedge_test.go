//go:build system

package main

import (
	"bytes"
	"os"
	"regexp"
	"testing"
)

// sluice lists tells how a running edge's lists stand.
func TestListsOfAnEdge(t *testing.T) {
	t.Parallel()
	list := write(t, "192.0.2.0/24\n198.51.100.7\n")
	p := start(t, origin(t), "--config", write(t, "lists: [{name: partners, file: "+list+"}]\nrules: [{name: r, limit: 9}]\n"))
	sees := func(want string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run([]string{"lists", "--admin", p.back}, &stdout, &stderr); code != 0 || !regexp.MustCompile(want).MatchString(stdout.String()) {
			t.Errorf("exit %d, %s%s, want %s", code, stdout.String(), stderr.String(), want)
		}
	}
	sees(`(?m)^LIST +ENTRIES +READ +CHANGED +FROM.*\npartners +2 +\S+ ago +\S+ ago +` + list)
	must(t, os.WriteFile(list, []byte("oops\n"), 0o600))
	p.admin("POST", "/v1/reload")
	sees(`partners +2 .*` + list + `:1: "oops" is not a prefix`)
}
