//go:build system

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// A real edge refuses, and why tells from its log, packed or not, and from the edge itself.
func TestWhy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "access.log")
	p := start(t, origin(t), "--config", write(t, "edge_id: first\naccess_log: {file: "+file+"}\nsource: {trust: [127.0.0.1]}\n"+
		"rules: [{name: r, limit: 2, window: 1h, mitigation_timeout: 30m}, {name: s, limit: 1, window: 1h, mode: shadow}, "+
		"{name: soft, match: {path: /soft}, limit: 1, window: 1h, action: tag}]"))
	ask("GET", "http://"+p.front+"/soft", "192.0.2.9")
	ask("GET", "http://"+p.front+"/soft", "192.0.2.9")
	if _, out, _ := sluice("why", "192.0.2.9", "--admin", p.back); !regexp.MustCompile(`\nrule soft: .*; blocked by edge since [-0-9]{10} [0-9:]{8}Z until [-0-9]{10} [0-9:]{8}Z \(tag: nobody is refused\)\n`).MatchString(out) {
		t.Error(out)
	}
	for range 4 {
		ask("GET", "http://"+p.front, "192.0.2.7")
	}
	code, out, errs := sluice("why", "192.0.2.7", "--admin", p.back)
	if want := regexp.MustCompile(`(?s)^192\.0\.2\.7
rule r: 2 of 2 requests, 0 left; blocked by edge since [-0-9]{10} [0-9:]{8}Z until [-0-9]{10} [0-9:]{8}Z
rule s: 1 of 1 requests, 0 left; blocked by edge since [-0-9]{10} [0-9:]{8}Z until [-0-9]{10} [0-9:]{8}Z \(shadow: nobody is refused\)
rule soft: 0 of 1 requests, 1 left
\(as this edge alone knows: it has no memcached nodes, or they have not answered\)
\S+ \S+  blocked by this edge: 2 requests in 1h, 1 are allowed \(shadow: nobody is refused\), rule s, until [-0-9]{10} [0-9:]{8}Z
\S+ \S+  blocked by this edge: 3 requests in 1h, 2 are allowed, rule r, until [-0-9]{10} [0-9:]{8}Z
$`); code != 0 || !want.MatchString(out) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, out, errs = sluice("why", "192.0.2.7", "--admin", p.back, "--json"); code != 0 || !json.Valid([]byte(out)) || !strings.Contains(out, `"mitigated_until"`) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, out, errs = sluice("why", "192.0.2.8", "--admin", p.back); code != 0 || !strings.Contains(out, "no event about it") || !strings.Contains(out, "rule r: 0 of 2") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	p.stop(syscall.SIGTERM)
	text, err := os.ReadFile(file)
	must(t, err)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(text)
	_ = z.Close()
	must(t, os.WriteFile(file+".gz", packed.Bytes(), 0o600))
	for _, log := range []string{file, file + ".gz"} {
		code, out, errs := sluice("why", "192.0.2.7", log)
		if code != 0 || !strings.Contains(out, "4 requests, 2 refused") || !strings.Contains(out, " blocked by rule r, until ") ||
			!strings.Contains(out, " at edge first: 3 requests in 1h0m0s, 2 are allowed") || !strings.Contains(out, "2 requests refused under it") {
			t.Errorf("%d %s%s", code, out, errs)
		}
	}
	for _, bad := range []struct {
		want int
		args string
	}{
		{2, "why"}, {2, "why nobody"}, {2, "why 192.0.2.7 --at noon x.log"}, {2, "why 192.0.2.7 --at 14:05"}, {2, "why 192.0.2.7 --around 0s"}, {0, "why --help"},
		{1, "why 192.0.2.7 " + dir + "/none"}, {1, "why 192.0.2.7 --admin " + p.back}, {0, "why 192.0.2.0/24 --at 14:05 " + file},
	} {
		if code, out, errs := sluice(strings.Fields(bad.args)...); code != bad.want {
			t.Errorf("%s: %d %s%s, want %d", bad.args, code, out, errs, bad.want)
		}
	}
}

// What others write as reasons reaches no terminal as it is, and makes no line of its own; and a block of a prefix, or under all rules, is told.
func TestWhyOfAReason(t *testing.T) {
	t.Parallel()
	p := start(t, origin(t), "--config", write(t, "rules: [{name: r, limit: 2}]"))
	reason := "evil\x1b]0;x\a\u009b2J\u202e\nrule r: 0 of 2 requests"
	if code, out, errs := sluice("block", "192.0.2.0/24", "--reason", reason, "--admin", p.back); code != 0 {
		t.Fatal(out, errs)
	}
	for _, command := range []string{"why 192.0.2.7", "blocked", "events", "config"} {
		code, out, errs := sluice(append(strings.Fields(command), "--admin", p.back)...)
		if code != 0 || strings.ContainsAny(out, "\x1b\a\u009b\u202e") || strings.Contains(out, "\nrule r: 0 of 2 requests\n") {
			t.Errorf("%s: %d %q %s", command, code, out, errs)
		}
		if command == "why 192.0.2.7" && !strings.Contains(out, "; blocked by admin under every rule as 192.0.2.0/24 since ") {
			t.Errorf("%s", out)
		}
	}
}

// A refusal is found by the X-Request-ID of its answer, in the log that is given and in the edge's own; a block of an operator's says so to the client, and
// who ordered it, and why, to operators alone.
func TestWhyOfARequest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	p := start(t, origin(t), "--config", write(t, "edge_id: first\naccess_log: {file: "+file+", format: json}\nsource: {trust: [127.0.0.1]}\nrules: [{name: r, limit: 1, window: 1h}]"))
	get := func(source string) (id, body string) {
		t.Helper()
		resp, body := p.request("GET", p.front, "/shop", "", "X-Forwarded-For", source)
		if id = resp.Header.Get("X-Request-Id"); id == "" {
			t.Fatalf("no ID: %d %s", resp.StatusCode, body)
		}
		return id, body
	}
	if code, out, errs := sluice("block", "192.0.2.0/24", "--reason", "scraper 4711", "--admin", p.back); code != 0 {
		t.Fatal(out, errs)
	}
	get("198.51.100.7")
	limited, told := get("198.51.100.7")
	if !strings.Contains(told, `"code":"rate_limited"`) {
		t.Error(told)
	}
	blocked, told := get("192.0.2.7")
	if !strings.Contains(told, `"code":"blocked"`) || strings.Contains(told, "4711") {
		t.Error(told)
	}
	for id, want := range map[string][]string{
		limited: {"GET ", "/shop from 198.51.100.7 at edge first: 429, answered by a rule\n", "over the limit of rule r: 2 requests in 1h0m0s, 1 are allowed; blocked until "},
		blocked: {"/shop from 192.0.2.7 at edge first: 429, answered by a rule\n", "blocked under rule r until ", ": an operator ordered it: ", "because of: scraper 4711"},
	} {
		p.until("logged", func() bool { text, _ := os.ReadFile(file); return bytes.Contains(text, []byte(id)) })
		for _, args := range [][]string{{"why", id, file}, {"why", id, "--admin", p.back}} {
			code, out, errs := sluice(args...)
			for _, part := range want {
				if code != 0 || !strings.Contains(out, part) {
					t.Errorf("%q: %d %s%s: want %q", args, code, out, errs, part)
				}
			}
		}
	}
	if code, out, errs := sluice("why", "192.0.2.7", "--admin", p.back); code != 0 || !strings.Contains(out, ", ordered by ") || !strings.Contains(out, ": scraper 4711") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, _, errs := sluice("why", strings.Repeat("0", 32), file); code != 1 || !strings.Contains(errs, "no request 0000") {
		t.Errorf("%d %s", code, errs)
	}
	if code, _, errs := sluice("why", limited, "--at", "14:05", file); code != 2 || !strings.Contains(errs, "is one request") {
		t.Errorf("%d %s", code, errs)
	}
}
