package dryrun

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/config"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// epoch is when the log begins. It has no monotonic reading, so differences are exact.
var epoch = time.Unix(1_700_000_000, 0)

// dryRunOf judges by a configuration, with a table of a thousand counters.
func dryRunOf(t *testing.T, file string) (*config.Config, *Run) {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(c, counter.New(counter.Options{Counters: 1000}), mitigation.New(1000, nil))
	if err != nil {
		t.Fatal(err)
	}
	return c, r
}

// TestDryRun asks about requests of a log: at so many seconds, from whom, what, and what was answered; and what comes of it:
// the name of the rule that refuses, or pass, deny or allow; after a slash, the other rules that would refuse.
func TestDryRun(t *testing.T) {
	c, r := dryRunOf(t, `
source: {ipv4_prefix: 24}
plans: {key: "header:X-Key"}
deny: [198.51.100.0/24]
allow: [192.0.2.128/25, 198.51.100.9]
rules:
  - {name: login, match: {path: /login, methods: [POST], hosts: [example.com]}, limit: 1, mitigation_timeout: 10m}
  - {name: "off", limit: 1, mode: "off"}
  - {name: errors, limit: 2, window: 10s, mitigation_timeout: 0, count: {statuses: [401]}, match: {path: /api/*}}
  - {name: trial, limit: 2, mode: shadow, key: "header:Authorization", match: {path: /x}}
  - {name: back, limit: 1, window: 1s, mitigation_timeout: 10s, escalate: [1m], match: {path: /back}}
  - {name: plan, limit: 9, key: "header:X-Key", plans: {default: 1}, mitigation_timeout: 0, match: {path: /plan}}
`)
	f := func(second int, addr, method, host, target string, status int, want string) {
		t.Helper()
		outcome := r.Judge(Request{Addr: netip.MustParseAddr(addr), Method: method, Host: host, Target: target, Status: status}, epoch.Add(time.Duration(second)*time.Second))
		got := "pass"
		switch {
		case outcome.Denied:
			got = "deny"
		case outcome.Allowed:
			got = "allow"
		case outcome.Refused:
			got = c.Rules[outcome.Rule].Name
		}
		var others []string
		for _, k := range outcome.Cases {
			if k.Refuses && k.Rule != outcome.Rule {
				others = append(others, c.Rules[k.Rule].Name)
			}
		}
		if len(others) > 0 {
			got += "/" + strings.Join(others, ",")
		}
		if got != want {
			t.Errorf("at %d s, %s %s %s%s: %s, want %s", second, addr, method, host, target, got, want)
		}
	}
	f(0, "198.51.100.7", "GET", "", "/", 200, "deny")
	f(0, "::ffff:198.51.100.7", "GET", "", "/", 200, "deny")
	f(0, "198.51.100.9", "GET", "", "/", 200, "allow") // the longer prefix
	for range 3 {
		f(0, "192.0.2.200", "POST", "example.com", "/login", 200, "allow")
	}
	f(1, "192.0.2.1", "POST", "example.com", "/login", 200, "pass")
	f(1, "192.0.2.1", "GET", "example.com", "/login", 200, "pass")
	f(1, "192.0.2.1", "POST", "other.example", "/login", 200, "pass")
	f(1, "192.0.2.1", "POST", "not a host", "/login", 200, "pass")
	f(2, "192.0.2.9", "POST", "EXAMPLE.com:80", "//x/../%6cogin?a=b", 200, "login") // of the same /24, and the same path
	f(601, "192.0.2.9", "POST", "example.com", "/login", 200, "login")              // blocked for ten minutes
	f(602, "192.0.2.9", "POST", "example.com", "/login", 200, "pass")
	f(603, "192.0.2.9", "GET", "", "/plan", 200, "pass")
	f(603, "192.0.2.9", "GET", "", "/plan", 200, "plan") // by the limit of the default plan

	f(0, "203.0.113.1", "GET", "", "/api/a", 200, "pass")
	f(0, "203.0.113.1", "GET", "", "/api/a", 401, "pass")
	f(0, "203.0.113.1", "GET", "", "/api/a", 0, "pass") // not known: not counted
	f(1, "203.0.113.1", "GET", "", "/api/b", 401, "pass")
	f(2, "203.0.113.1", "GET", "", "/api/b", 200, "errors") // two were counted, and this might be the third
	f(30, "203.0.113.1", "GET", "", "/api/b", 200, "pass")

	f(0, "203.0.113.2", "GET", "", "/x", 200, "pass")
	f(0, "203.0.113.2", "GET", "", "/x", 200, "pass")
	f(0, "203.0.113.2", "GET", "", "/x", 200, "pass/trial")
	f(9, "203.0.113.2", "GET", "", "/x", 200, "pass/trial")
	f(9, "2001:db8::1", "GET", "", "/x", 200, "pass")

	f(0, "203.0.113.3", "GET", "", "/back", 200, "pass")
	f(0, "203.0.113.3", "GET", "", "/back", 200, "back")
	f(10, "203.0.113.3", "GET", "", "/back", 200, "pass")
	f(10, "203.0.113.3", "GET", "", "/back", 200, "back")
	f(69, "203.0.113.3", "GET", "", "/back", 200, "back") // who comes back is blocked for a minute
	f(70, "203.0.113.3", "GET", "", "/back", 200, "pass")
}

// A log may tell how clients call themselves, who waits is told how long, and what origins read in two ways is asked under no rule.
func TestDryRunOfWhatElseIsThere(t *testing.T) {
	c, r := dryRunOf(t, `
rules:
  - {name: curl, match: {headers: {User-Agent: "curl/*"}}, limit: 1, mitigation_timeout: 0}
  - {name: even, match: {query: {id: "*"}}, algorithm: leaky_bucket, burst: 2, limit: 60, mitigation_timeout: 0}
`)
	f := func(target, agent string, want string) {
		t.Helper()
		outcome := r.Judge(Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Target: target, Agent: agent}, epoch)
		got := fmt.Sprint(outcome.Malformed, outcome.Refused)
		for _, k := range outcome.Cases {
			got += fmt.Sprint(" ", c.Rules[k.Rule].Name, " ", k.Delay.Round(time.Millisecond))
		}
		if got != want {
			t.Errorf("%s of %q: %s, want %s", target, agent, got, want)
		}
	}
	f("/", "", "false false")
	f("/", "curl/8.5.0", "false false curl 0s")
	f("/", "curl/8.6.0", "false true curl 0s")
	f("/?id=1", "", "false false even 0s")
	f("/?id=1", "", "false false even 1s")
	f("/?id=1", "curl/8", "false true curl 0s even 0s") // it does not go on, and waits for nothing
	f("/?id=1", "", "false false even 2s")
	f("/?id=1", "", "false true even 0s")
	f("/?id=1&id=2", "", "true false")
}

func TestDryRunOfABadRule(t *testing.T) {
	bad := rules.Default("bad", 0)
	if _, err := New(&config.Config{Rules: []rules.Config{bad}}, nil, nil); err == nil || !strings.Contains(err.Error(), "limit 0") {
		t.Errorf("error %v", err)
	}
}

// Each limit of a rule is a case by itself, of the source that it counts.
func TestDryRunOfSeveralLimits(t *testing.T) {
	c, r := dryRunOf(t, `rules: [{name: a, limit: 9}, {name: r, limit: 2, windows: [{limit: 5, window: 1h}], prefixes: [32, 24]}]`)
	var got []string
	for range 3 {
		got = got[:0]
		for _, k := range r.Judge(Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Target: "/", Status: 200}, epoch).Cases {
			got = append(got, fmt.Sprint(c.Rules[k.Rule].Name, " ", r.Limits()[k.Limit].Policy, " ", k.Source, " ", k.Refuses))
		}
	}
	const want = "a a 192.0.2.1 false, r r 192.0.2.1 true, r r/1h 192.0.2.1 false, r r/24 192.0.2.0/24 false, r r/24/1h 192.0.2.0/24 false"
	if got := strings.Join(got, ", "); got != want || r.outcome.Rule != 1 {
		t.Errorf("%s of rule %d, want %s", got, r.outcome.Rule, want)
	}
}

// Who is blocked under a rule about everything is judged as an edge does: other rules are not asked.
func TestBlockedWhateverIsAsked(t *testing.T) {
	_, r := dryRunOf(t, `
rules:
- {name: all, limit: 1, window: 1m}
- {name: login, match: {path: "~/login$"}, limit: 10, window: 1m}
`)
	for i, want := range []int{2, 2, 1} { // admitted, over the limit, blocked
		outcome := r.Judge(Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "a", Target: "/login", Status: 200}, epoch.Add(time.Duration(i)*time.Second))
		if outcome.Refused != (i > 0) || len(outcome.Cases) != want {
			t.Errorf("request %d: refused: %t, by %d rules, want %d", i, outcome.Refused, len(outcome.Cases), want)
		}
	}
}
