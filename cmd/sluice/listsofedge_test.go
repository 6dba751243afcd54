//go:build system

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"sluice/edge/control"
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
	unread(t, p, "lists.partners", list, `:1: "oops" is not a prefix`)
	must(t, os.WriteFile(list, []byte("192.0.2.0/24\n"), 0o600))
	p.admin("POST", "/v1/reload")
	unread(t, p, "", "", "")
}

// unread checks what an edge and sluice status say of a list or database that cannot be read; "": of none.
func unread(t *testing.T, p *process, field, from, why string) {
	t.Helper()
	var s control.State
	_, text := p.admin("GET", "/v1/status")
	must(t, json.Unmarshal([]byte(text), &s))
	var stdout, stderr bytes.Buffer
	if code := run([]string{"status", "--admin", p.back}, &stdout, &stderr); code != 0 {
		t.Fatalf("sluice status: exit %d, %s", code, stderr.String())
	}
	_, counts := p.admin("GET", "/metrics")
	failing := regexp.MustCompile(`(?m)^sluice_(list|geo)_failing\{.*\} 1$`).MatchString(counts)
	if field == "" {
		if len(s.Unread) > 0 || strings.Contains(stdout.String(), "unread") || failing {
			t.Errorf("%+v, failing %v\n%s", s.Unread, failing, stdout.String())
		}
		return
	}
	line := regexp.MustCompile("(?m)^unread +" + field + " .*since [-0-9]+ [:0-9]+Z, .*" + regexp.QuoteMeta(from) + ".*" + why)
	if len(s.Unread) != 1 || s.Unread[0].Field != field || s.Unread[0].From != from ||
		!strings.Contains(s.Unread[0].Error, why) || s.Unread[0].Since.IsZero() || !line.MatchString(stdout.String()) || !failing {
		t.Errorf("%+v, failing %v\n%s", s.Unread, failing, stdout.String())
	}
}
