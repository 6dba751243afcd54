//go:build system

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// with sends a request with headers, NAME VALUE…, and tells its status.
func (p *process) with(header ...string) int {
	p.t.Helper()
	resp, _ := p.request("GET", p.front, "/", "", header...)
	return resp.StatusCode
}

// Over two edges of a PoP a client is found, explained, blocked and freed by its key, or by the digest that stands for it, before any edge has
// seen it as well; and nothing that an edge writes or shows has the key.
func TestClientsByKey(t *testing.T) {
	t.Parallel()
	dir, nodes, site := t.TempDir(), startMemcached(t), origin(t)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	secret := file("secret", popKey)
	const rules = `rules:
- {name: api, key: "header:X-Api-Key", limit: 3, window: 1h, mitigation_timeout: 30m, show_key: 4}
- {name: more, key: "header:x-api-key", limit: 1000, window: 1h}
- {name: pair, key: [source, "cookie:sid"], limit: 100, window: 1h}
- {name: site, limit: 1000}
`
	edge := func(name string) *process {
		text := "edge_id: " + name + "\naccess_log: {file: " + filepath.Join(dir, name+".log") + "}\npop: {secret_file: " + secret + "}\nsource: {trust: [127.0.0.1]}\n" + rules
		return start(t, site, "--config", file(name+".yaml", text), "--memcached", nodes)
	}
	one, two := edge("one"), edge("two")
	meet(one, two)
	do := func(p *process, want int, args ...string) string {
		t.Helper()
		code, out, errs := sluice(append(args, "--admin", p.back)...)
		if code != want {
			t.Errorf("%v: exit %d, want %d: %s%s", args, code, want, out, errs)
		}
		return out + errs
	}
	has := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !regexp.MustCompile(part).MatchString(text) {
				t.Errorf("want %q in:\n%s", part, text)
			}
		}
	}
	const client, stolen = "k-4711-SECRET=ab==", "never-seen-SECRET"

	for range 4 {
		one.with("X-Api-Key", client)
	}
	if got := one.with("X-Api-Key", client); got != 429 {
		t.Fatalf("status %d over the limit", got)
	}
	key := "header:X-Api-Key=" + client
	out := do(one, 0, "why", "--key", key)
	has(out, `^#[0-9a-f]{32}, by header:X-Api-Key\n`, `\nrule api: 3 of 3 requests, 0 left; blocked by edge since .* until `, `\nrule more: 3 of 1000 requests, 997 left\n`, `blocked by this edge: 4 requests in 1h, 3 are allowed, rule api`)
	if strings.Contains(out, "rule pair") || strings.Contains(out, "rule site") {
		t.Errorf("rules by other keys are told of:\n%s", out)
	}
	digest := out[:33]
	has(do(one, 0, "blocked"), digest+` +k-47… +api `)
	has(do(one, 0, "events"), `key k-47…`)
	has(do(one, 0, "top", "--kind", "key", "--rule", "api"), digest+` +k-47… +header:X-Api-Key +5 +api, more`)
	has(do(one, 0, "top", "--kind", "key", "--by", "refused"), digest+` +k-47… +header:X-Api-Key +2 +api, more`)
	has(do(one, 0, "top", "--kind", "key", "--rule", "more"), digest+` +k-47… +header:X-Api-Key +5 +api, more\n`)
	has(do(two, 0, "top", "--kind", "key"), `no key here of late`)
	has(do(one, 0, "why", "127.0.0.1"), `counted by header:X-Api-Key as well, by 2 rules \(api, more\)\n  `+digest+`  last .*  k-47…\n`,
		`counted by source and cookie:sid as well, by 1 rule \(pair\); this edge remembers none that came from here`)
	has(do(one, 1, "top", "--kind", "key", "--rule", "site"), `rule site does not count by a key`)
	two.until("told of the block", func() bool {
		_, list := two.admin("GET", "/v1/mitigations?rule=api")
		return strings.Contains(list, digest)
	})
	has(do(two, 0, "why", digest), `rule api: 3 of 3 requests, 0 left; blocked by pop since `)
	has(do(two, 0, "usage", "--key", "header:x-api-key", "--key-file", file("key", client+"\r\n")), `api +3 +3 +0 .* until `, `more +\d+ +1,000 +`)
	has(do(two, 0, "usage", digest), `api +3 +3 +0 .* until `)
	has(do(two, 0, "unblock", "--key-file", file("line", key+"\n")), digest+` is lifted under rules api, more; it starts afresh\nin force on all 2 edges`)
	if got := one.with("X-Api-Key", client); got != 200 {
		t.Errorf("status %d after it was freed at the other edge", got)
	}

	// Before it was seen, on both, under one rule and under all.
	has(do(one, 0, "block", "--key", "header:X-Api-Key="+stolen, "--rule", "api", "--reason", "leaked"), `^#[0-9a-f]{32} is blocked under rule api until .*\nin force on all 2 edges`)
	for _, p := range []*process{one, two} {
		if got := p.with("X-Api-Key", stolen); got != 429 {
			t.Errorf("status %d for a token that is blocked", got)
		}
		if got := p.with("X-Api-Key", "another"); got != 200 {
			t.Errorf("status %d for another", got)
		}
	}
	out = do(two, 0, "why", "--key", "header:X-Api-Key="+stolen)
	has(out, `rule api: 0 of 3 requests, .*; blocked by admin since .*: leaked`)
	has(do(two, 0, "unblock", out[:33]), `is lifted under every rule`)
	has(do(two, 0, "block", digest, "--for", "1m"), digest+` is blocked under rules api, more until`)
	has(do(one, 0, "unblock", "--key", key, "--rule", "more"), digest+" is lifted under rule more;")
	has(do(one, 0, "unblock", digest), digest+" is lifted under every rule;")

	// A composite key in any order; of an address and what it sends.
	pair := []string{"--key", "cookie:sid=S1-SECRET", "--key", "source=192.0.2.9"}
	has(do(one, 0, append([]string{"block"}, pair...)...), "is blocked under rule pair until")
	if got := two.with("Cookie", "sid=S1-SECRET", "X-Forwarded-For", "192.0.2.9"); got != 429 {
		t.Errorf("status %d for a pair that is blocked", got)
	}
	if got := two.with("Cookie", "sid=S1-SECRET", "X-Forwarded-For", "192.0.2.8"); got != 200 {
		t.Errorf("status %d for another pair", got)
	}
	has(do(two, 0, append([]string{"why"}, pair...)...), "by source and cookie:sid\n", "rule pair: .*; blocked by admin")

	for _, bad := range []struct {
		want int
		says string
		args []string
	}{
		{1, `no such key: no rule counts by header:x-tenant alone; rules count by header:X-Api-Key \(api, more\); source and cookie:sid \(pair\)`, []string{"block", "--key", "header:X-Tenant=SECRET"}},
		{1, `rule pair does not count by header:x-api-key alone`, []string{"block", "--key", key, "--rule", "pair"}},
		{1, `no such rule: none`, []string{"block", "--key", key, "--rule", "none"}},
		{1, `no rule has counted that digest of late`, []string{"block", "#" + strings.Repeat("0", 32)}},
		{1, `"X-Api-Key" is not possible: want source, header:NAME`, []string{"why", "--key", "X-Api-Key=SECRET"}},
		{1, `no such key: no rule counts by source alone`, []string{"why", "--key", "source=192.0.2.9"}},
		{1, `servers read it differently`, []string{"why", "--key", "header:X-Api-Key=SECRET-\u00e4"}},
		{1, `header:x-api-key is there twice`, []string{"why", "--key", key, "--key", key}},
		{1, `it has 2 lines: want the value`, []string{"block", "--key", "header:X-Api-Key", "--key-file", file("two", "SECRET\nSECRET")}},
		{1, `line 2: want PART=VALUE`, []string{"block", "--key-file", file("half", key+"\nSECRET\n")}},
		{1, `no such file`, []string{"block", "--key-file", "no.such.file"}},
		{1, `no such file`, []string{"why", "--key-file", "no.such.file"}},
		{1, `line 2: want PART=VALUE`, []string{"why", "--key-file", file("half", key+"\nSECRET\n")}},
		{1, `it is empty`, []string{"block", "--key", "header:X-Api-Key", "--key-file", file("empty", "\n")}},
		{2, `the value is empty`, []string{"unblock", "--key", "header:X-Api-Key="}},
		{2, `no source: want`, []string{"unblock", digest[:20]}},
		{0, `no rule has counted that digest of late`, []string{"why", "#" + strings.Repeat("0", 32)}},
	} {
		out := do(one, bad.want, bad.args...)
		has(out, bad.says)
		if strings.Contains(out, "SECRET") {
			t.Errorf("%v: what it says has the key: %s", bad.args, out)
		}
	}

	// The access log has its digest, which an edge makes of it.
	logs := []string{filepath.Join(dir, "one.log"), filepath.Join(dir, "two.log")}
	one.until("the refusals are in the log", func() bool {
		text, _ := os.ReadFile(logs[0])
		return strings.Count(string(text), digest) >= 2
	})
	told := do(one, 0, append([]string{"why", "--key", key}, logs...)...)
	has(told, digest+`, from `, ` requests, 2 refused\n`, ` blocked by rule api, until .*\n.* at edge one: 4 requests in 1h0m0s, 3 are allowed\n  2 requests refused under it`)
	if got := do(one, 0, append([]string{"why", digest}, logs...)...); got != told {
		t.Errorf("by its digest:\n%s", got)
	}
	has(do(one, 0, "why", "#"+strings.Repeat("0", 32), logs[0]), `no request of it in`)

	// Nothing of it is anywhere.
	for _, p := range []*process{one, two} {
		for _, path := range []string{"/v1/events", "/v1/mitigations", "/v1/dashboard", "/v1/top", "/v1/top?kind=key", "/v1/sources/127.0.0.1", "/v1/status", "/v1/config", "/metrics"} {
			if _, text := p.admin("GET", path); strings.Contains(text, "SECRET") {
				t.Errorf("GET %s has a key", path)
			}
		}
		if strings.Contains(p.log.String(), "SECRET") {
			t.Error("the log has a key")
		}
		p.stop(syscall.SIGTERM)
	}
	for _, name := range []string{"one", "two"} {
		text, err := os.ReadFile(filepath.Join(dir, name+".log"))
		must(t, err)
		if strings.Contains(string(text), "SECRET") {
			t.Errorf("the access log of edge %s has a key", name)
		}
		if name == "one" {
			has(string(text), `"rule":"api","verdict":"mitigated","key":"`+digest+`","key_of":"header:X-Api-Key","key_start":"k-47",`)
		}
	}
}
