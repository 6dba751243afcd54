package config

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/edge/rules"
	"sluice/edge/rules/match"
)

// What is no YAML is an error with its place, whatever the library says of it. wrong.txt has all else that can be wrong.
func TestNotYAML(t *testing.T) {
	for _, broken := range []string{"a: [", "a: {", "\tx", "a: b: c", "'", "rules:\n  - name: a\n limit: 1", "a: \"\\x"} {
		if _, err := Parse("f.yaml", []byte(broken)); err == nil || !strings.HasPrefix(err.Error(), "f.yaml:") {
			t.Errorf("%q: %v", broken, err)
		}
	}
}

func TestNodesAreChecked(t *testing.T) {
	p := Parser{Nodes: func(names []string) error {
		if last := names[len(names)-1]; last == "bad" {
			return errors.New("it is bad")
		}
		return nil
	}}
	_, err := p.Parse("f.yaml", []byte("pop:\n  memcached: [a:1, bad, b:2]\n  edges: -1\n"))
	want := "f.yaml:2:20: pop.memcached: it is bad\nf.yaml:3:10: pop.edges: -1 is out of range: want 0 to 64"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// What goes wrong if a field is missing in the operators' manual, or has another default there than in the code: nobody can know it.
func TestConfigDefaults(t *testing.T) {
	text := manual(t)
	got, err := reading.Parse(fieldsFile, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want, err := reading.Parse("", []byte("origins: [{servers: [\"http://127.0.0.1:3000\"]}]\nrules: [{name: login, limit: 5}]"))
	if err != nil {
		t.Fatal(err)
	}
	// What says nothing, and what says in so many words what that means.
	if rule := &got.Rules[0]; rule.Match.Everything() && *rule.Estimate == want.Estimate {
		rule.Match, rule.Estimate = match.Config{}, nil
	}
	for _, m := range got.Modules {
		if own := got.Rules[0].Own; m.Rule != nil && cmp.Equal(own[m.Name], m.Rule()) {
			delete(own, m.Name)
		}
	}
	if slices.Equal(got.Origins[0].Upgrades, []string{"websocket"}) {
		got.Origins[0].Upgrades = nil
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{}), cmpopts.IgnoreUnexported(match.Config{}), cmpopts.IgnoreFields(Config{}, "Modules")); diff != "" {
		t.Errorf("what the manual calls the defaults is not (-default +manual):\n%s", diff)
	}
}

// An edge that counts alone keeps what operators change of its rules, and only that.
func TestStateDirAlone(t *testing.T) {
	const origins = "origins: [{servers: [\"http://127.0.0.1:1\"]}]\nstate_dir: /var/lib/sluice\nedge_id: web1\n"
	for text, want := range map[string]int{origins: 1, origins + "pop: {memcached: [\"127.0.0.1:11211\"]}\n": 0} {
		c, err := Parse("", []byte(text))
		if err != nil || c.StateDir != "/var/lib/sluice" || c.EdgeID != "web1" || c.Check() != nil {
			t.Fatalf("%+v, %v", c, err)
		}
		if w := c.Warnings(); len(w) != want {
			t.Errorf("%s: %v", text, w)
		}
	}
}

func TestRuleAsJSON(t *testing.T) {
	r := rules.Default("login", 5)
	r.Window = rules.Duration(90 * time.Minute)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	// JSON is YAML: what the API shows may stand in a file.
	c, err := Parse("", []byte(`{"rules":[`+string(text)+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, c.Rules[0], cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(match.Config{})); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("rules:\n- name: a\n  limit: 1\n")
	f.Add("a: &x [1]\nb: *x\n")
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f", []byte(text))
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
	})
}

// A rule about some hosts is got round by another Host where the same server answers for that as well.
func TestWarnings(t *testing.T) {
	f := func(origins, hosts string, want ...string) {
		t.Helper()
		c, err := Parse("f.yaml", []byte("origins: ["+origins+"]\nrules: [{name: r, limit: 1, match: {hosts: ["+hosts+"]}}, {name: x, mode: \"off\", limit: 1, match: {hosts: [a]}}, {name: y, limit: 1}]"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range c.Warnings() {
			w, _, _ = strings.Cut(w, " answers")
			got = append(got, w)
		}
		if !cmp.Equal(got, want) {
			t.Errorf("%s for %s: %q, want %q", hosts, origins, got, want)
		}
	}
	const any, other, one = "{servers: [\"http://s\"]}", "{hosts: [\"*\"], servers: [\"http://t\"]}", "{hosts: [a], servers: [\"http://s\"]}"
	f(any, "a", "rule r is about the host a, but http://s")
	f(any, "b, a", "rule r is about the host b, but http://s")
	f(any, "\"*.a\"", "rule r is about the host *.a, but http://s")
	f(any, "\"*\"")
	f(any, "a, \"*\"")
	f(one, "a")
	f(one, "b") // nobody answers for b
	f(one+", "+other, "a")
	f(one+", "+other, "a, b", "rule r is about the host b, but http://t")
	f(one+", "+any, "a", "rule r is about the host a, but http://s")
	f("{hosts: [\"*.a\"], servers: [\"http://s\"]}, "+other, "b.a")
	f("{hosts: [\"*.a\"], servers: [\"http://s\"]}, "+any, "b.a", "rule r is about the host b.a, but http://s")
}

// Limits by plan without a store of who is on which are one limit for everybody.
func TestPlansWarnings(t *testing.T) {
	f := func(plans, rule, want string) {
		t.Helper()
		c, err := Parse("f.yaml", []byte("origins: [{servers: [\"http://s\"]}]\nplans: {key: \"header:k\", default: free"+plans+"}\nrules: [{name: r, limit: 1, "+rule+"}, {name: y, limit: 1}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Warnings(), "; "); got != want {
			t.Errorf("%s %s: %q, want %q", plans, rule, got, want)
		}
	}
	const none = "plans: nothing says which client is on which plan, so every client is on free: give plans.store"
	f("", `key: "header:k", plans: {pro: 5}`, none)
	f("", `match: {not: {plans: [pro]}}`, none)
	f("", `key: "header:k"`, "")
	f(`, store: "sqlite:/plans.db"`, `key: "header:k", plans: {pro: 5}`, "")
}

// Places that all clients share want a rule by which no source holds them all.
func TestSharedSlotsWarning(t *testing.T) {
	const shared, want = "{name: r, match: {path: /r}, concurrency: 40, key: ", "rule r has 40 slots for all clients together"
	for text, warns := range map[string]bool{
		shared + "global}":                                                   true,
		shared + "[host, path]}":                                             true,
		shared + "source}":                                                   false,
		shared + "[path, \"header:x-account\"]}":                             false,
		shared + "global}, {name: s, concurrency: 39}":                       false,
		shared + "global}, {name: s, concurrency: 40}":                       true,
		shared + "global}, {name: s, limit: 5}":                              true,
		shared + "global}, {name: s, mode: shadow, concurrency: 5}":          true,
		shared + "global}, {name: s, match: {path: /r}, concurrency: 5}":     false,
		shared + "global}, {name: s, match: {path: /other}, concurrency: 5}": true,
		shared + "global, mode: \"off\"}":                                    false,
	} {
		c, err := Parse("", []byte("origins: [{servers: [\"http://127.0.0.1:1\"]}]\nrules: ["+text+"]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Warnings(), "\n"); strings.Contains(got, want) != warns {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// A length that is too long for IPv4 is one of IPv6, and of many clients: who meant an IPv4 address would have them share a limit.
func TestPrefixOfManyWarning(t *testing.T) {
	for prefixes, warns := range map[string]bool{"[33]": true, "[32, 40]": true, "[47, 44]": true, "[48]": false, "[32, 24, 64, 40]": false, "[24]": false, "[]": false} {
		c, err := Parse("", []byte("origins: [{servers: [\"http://127.0.0.1:1\"]}]\nrules: [{name: r, limit: 5, prefixes: "+prefixes+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Warnings(), "\n"); strings.Contains(got, "rule r: prefixes above 32 are of IPv6") != warns {
			t.Errorf("%s: %q", prefixes, got)
		}
	}
}

// What would let everybody in: operators' rights for whoever reaches the listener, and clients that say themselves who they are.
func TestGuards(t *testing.T) {
	const admin, trust = "anyone who does may change rules and blocks", "each client can claim to be any other"
	for yaml, want := range map[string]string{
		"":                                            "",
		"admin: ':8081'":                              admin,
		"admin: '0.0.0.0:8081'":                       admin,
		"admin: '[::]:8081'":                          admin,
		"admin: '10.0.0.1:8081'":                      admin,
		"admin: 'edge.example:8081'":                  admin,
		"admin: 'localhost:8081'":                     "",
		"admin: '127.9.9.9:8081'":                     "",
		"admin: '[::1]:8081'":                         "",
		"admin: 'unix:/run/s'":                        "",
		"{admin: ':8081', admin_insecure: true}":      "",
		"{admin: ':8081', admin_token_file: /t}":      "",
		"metrics_token: true":                         "there is no token",
		"{metrics_token: true, admin_token_file: /t}": "",
		"source: {trust: [0.0.0.0/0]}":                trust,
		"pop: {memcached: [\"a:1\"], peers_secret_file: /s, peers_listen: ':8082', peers: [{name: ams1, edges: [\"b:1\"]}]}":             "",
		"pop: {peers_secret_file: /s, peers_listen: ':8082', peers: [{name: ams1, edges: [\"b:1\"]}]}":                                   "give pop.memcached",
		"pop: {memcached: [\"a:1\"], peers_listen: ':8082', peers: [{name: ams1, edges: [\"b:1\"]}]}":                                    "give pop.peers_secret_file",
		"pop: {memcached: [\"a:1\"], peers_secret_file: /s, peers: [{name: ams1, edges: [\"b:1\"]}]}":                                    "give pop.peers_listen",
		"pop: {memcached: [\"a:1\"], peers_secret_file: /s, peers_listen: ':8080', peers: [{name: ams1, edges: [\"b:1\"]}]}":             "something else listens already",
		"pop: {name: ams1, memcached: [\"a:1\"], peers_secret_file: /s, peers_listen: ':8082', peers: [{name: ams1, edges: [\"b:1\"]}]}": "which is this PoP",
		"pop: {peers_secret_file: /s}": "there are no peers",
		"pop: {peers_listen: ':8082'}": "no PoP may send anything",
		"pop: {peers_mode: off}":       "there are no peers",
		"http2: {cleartext: true}":     "no proxy is trusted",
		"{http2: {cleartext: true, enabled: false}, source: {trust: [10.0.0.1]}}":                            "turn enabled on",
		"{http2: {cleartext: true}, source: {trust: [10.0.0.1]}}":                                            "",
		"source: {trust: [10.0.0.0/8, '::/0']}":                                                              trust,
		"source: {trust: ['::/0', 0.0.0.0/0], trust_everybody: true}":                                        "",
		"source: {trust: [10.0.0.0/8, '2001:db8::/32'], header: X-Client}":                                   "",
		"{pop: {memcached: ['a:1'], wait: 0s}, rules: [{name: r, limit: 1, check: sync, algorithm: exact}]}": "give pop.wait a time",
		"{pop: {wait: 0s}, rules: [{name: r, limit: 1, check: sync, algorithm: exact}]}":                     "",
	} {
		c, err := Parse("f.yaml", []byte(yaml+"\n"))
		if err != nil {
			t.Errorf("%s: %v", yaml, err)
			continue
		}
		c.CheckPath = "/check" // instead of an origin
		if err := c.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", yaml, err, want)
		}
	}
}
