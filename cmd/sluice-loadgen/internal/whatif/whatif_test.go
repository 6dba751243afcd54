package whatif

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice-loadgen/internal/dryrun"
	"sluice/edge/config"
	"sluice/edge/rules"
	"sluice/edge/rules/match"
)

// ruleOf reads one rule as it stands in a configuration that has plans.
func ruleOf(t *testing.T, yaml string) *rules.Config {
	t.Helper()
	c, err := config.Parser{Modules: dryrun.Modules().Config()}.Parse("test.yaml", []byte("plans: {key: 'header:x-api-key', default: free, store: 'sqlite:"+t.TempDir()+"/plans.db'}\nrules: [{name: r, limit: 10, "+yaml+"}]"))
	if err != nil {
		t.Fatal(err)
	}
	return &c.Rules[0]
}

// What a rule asks for and the log does not have is named, so that its row does not pass for what an edge would have done.
func TestWhatALogLacks(t *testing.T) {
	full := logged{requests: 10, hosts: 10, lines: 10, statuses: 10, agents: 10}
	bare := logged{requests: 10, lines: 10}
	for _, test := range []struct{ rule, full, bare string }{
		{"window: 1m", "", ""},
		{"match: {hosts: ['*']}", "", ""},
		{"match: {hosts: [a.example]}", "", "hosts"},
		{"match: {not: {hosts: [a.example]}}", "", "hosts"},
		{"key: host", "", "hosts"},
		{"match: {headers: {user-agent: 'curl*'}}", "", "header user-agent=curl*"},
		{"match: {headers: {x-api-key: a}}", "header x-api-key=a", "header x-api-key=a"},
		{"match: {not: {cookies: {sid: a}}}", "cookie sid=a", "cookie sid=a"},
		{"key: 'header:user-agent'", "", "header:user-agent"},
		{"key: ['header:x-api-key', source]", "header:x-api-key", "header:x-api-key"},
		{"key: 'cookie:sid'", "cookie:sid", "cookie:sid"},
		{"key: 'query:q'", "", ""},
		{"key: ja4", "TLS", "TLS"},
		{"key: [ja4, pass], action: challenge", "TLS and passes", "TLS and passes"},
		{"match: {ja4: [t13d1516h2_8daaf6152771_e5627efa2ab1]}", "TLS", "TLS"},
		{"key: ja4, match: {not: {ja4: [t13d1516h2_8daaf6152771_e5627efa2ab1]}}", "TLS", "TLS"},
		{"match: {not: {verified: [googlebot]}}", "what DNS says of robots", "what DNS says of robots"},
		{"key: path, action: challenge", "", ""},
		{"key: path, action: challenge, when: {origin_latency_p95: 1s}", "how fast an origin would have answered", "how fast an origin would have answered"},
		{"count: {statuses: [401]}", "", "statuses"},
	} {
		r := ruleOf(t, test.rule)
		for name, c := range map[string]struct {
			log  logged
			want string
		}{"full": {full, test.full}, "bare": {bare, test.bare}} {
			if got := c.log.lacks(r); got != c.want {
				t.Errorf("%s, a %s log: lacks %q, want %q", test.rule, name, got, c.want)
			}
		}
	}
}

// Whole seconds are too coarse for rules that ask when within one a request came.
func TestQuickRules(t *testing.T) {
	for yaml, want := range map[string]bool{
		"window: 10s": false,
		"window: 9s":  true,
		"window: 1m, windows: [{limit: 3, window: 1s}]":  true,
		"window: 1m, windows: [{limit: 99, window: 1h}]": false,
		"window: 1m, algorithm: token_bucket, burst: 10": true,
	} {
		if got := isQuick(ruleOf(t, yaml)); got != want {
			t.Errorf("%s: %t", yaml, got)
		}
	}
}

// --good is addresses, prefixes, or a share of good answers.
func TestGood(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7":                  "[192.0.2.7/32] 0",
		"::ffff:192.0.2.7":           "[192.0.2.7/32] 0",
		"192.0.2.7/24,2001:db8::/32": "[192.0.2.0/24 2001:db8::/32] 0",
		"answered=95%":               "[] 0.95",
		"answered=100%,192.0.2.7":    "[192.0.2.7/32] 1",
		"answered=95":                "want a share such as answered=95%",
		"answered=0%":                "want a share such as answered=95%",
		"answered=101%":              "want a share such as answered=95%",
		"everybody":                  "want an address such as 192.0.2.7",
	} {
		f := &askFlags{good: strings.Split(text, ",")}
		list, answered, err := f.called()
		got := fmt.Sprint(list, " ", answered)
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("--good %s: %q, want %q", text, got, want)
		}
	}
}

// Without a file the flags are the rule; what makes none is refused with the flag's name.
func TestRuleOfFlags(t *testing.T) {
	for line, want := range map[string]string{
		"":                                        "limit 100 window 1m timeout 1m algorithm sliding",
		"--limit 5 --window 10s":                  "limit 5 window 10s timeout 1m algorithm sliding",
		"--mitigation-timeout 0s":                 "limit 100 window 1m timeout 0s algorithm sliding",
		"--limit 0":                               "--limit",
		"--window 1ms":                            "--window",
		"--sub-windows 7":                         "--sub-windows",
		"--estimate upper":                        "--estimate upper: want nearest or lower",
		"--algorithm none":                        "--algorithm none: want one of",
		"--mitigation-timeout=-1s":                "--mitigation-timeout -1s",
		"--plan pro":                              "--plan pro: only rules of a file have plans",
		"--config /no/such/file":                  "cannot be read",
		"--algorithm token_bucket --burst 20":     "limit 100 window 1m timeout 1m algorithm token_bucket",
		"--algorithm sliding --burst 20":          "--burst",
		"--limit 7 --algorithm fixed --window 1h": "limit 7 window 1h timeout 1m algorithm fixed",
	} {
		set := pflag.NewFlagSet("what-if", pflag.ContinueOnError)
		f := addFlags(set)
		if err := set.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		c, err := f.load()
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", line, err, want)
			}
			continue
		}
		r := c.Rules[0]
		if got := fmt.Sprintf("limit %d window %v timeout %v algorithm %s", r.Limit, r.Window, r.MitigationTimeout, r.Algorithm); got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

// Where a client is follows from its address, which logs have: no note is about that, nor is a rule left out for it.
func TestPlacesAreLogged(t *testing.T) {
	of := func(names ...string) match.Config {
		m := match.Config{Facts: make(map[string]match.Values)}
		for _, name := range names {
			m.Facts[name] = match.Values{Texts: []string{"1"}}
		}
		return m
	}
	not := of("asns", "ja4", "countries")
	for _, test := range []struct {
		match match.Config
		want  string
	}{
		{of("asns", "countries"), "[] []"},
		{of("asns", "ja4"), "[TLS] [no log has TLS, so that rule r, about ja4, cannot be judged: it is about no request]"},
		{match.Config{Not: &not}, "[TLS] [no log has TLS, so that rule r leaves out nobody by ja4]"},
	} {
		r := &rules.Config{Name: "r", Match: test.match}
		if got := fmt.Sprint(notLogged(r), notLoggedNotes(r)); got != test.want {
			t.Errorf("%+v: %s, want %s", test.match, got, test.want)
		}
	}
}
