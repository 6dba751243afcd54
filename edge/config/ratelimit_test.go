package config

import (
	"strings"
	"testing"
)

// Where proxies may ask: beyond this machine they must be known, or somebody has said that they need not be.
func TestRateLimitServiceAddress(t *testing.T) {
	f := func(fields, want string) { t.Helper(); checks(t, "rate_limit_service", fields, want) }
	f(`listen: "127.0.0.1:8082"`, "") // and no origin is needed
	f(`listen: "unix:/run/sluice.sock"`, "")
	f(`listen: ":8082"`, "others than this machine may reach")
	f(`listen: "10.0.0.5:8082"`, "others than this machine may reach")
	f(`listen: ":8082", insecure: true`, "")
	f(`listen: ":8082", cert_file: c, key_file: k`, "others than this machine may reach")
	f(`listen: ":8082", cert_file: c, key_file: k, client_ca_file: a`, "")
	f(`listen: ":8082", client_ca_file: a`, "over TLS only")
	f(`listen: "127.0.0.1:8082", cert_file: c`, "belong together")
	f(`cert_file: c, key_file: k}
check_path: /check
access_log: {format: json`, "listens nowhere")
	f(`listen: ":8080", insecure: true`, "where something else listens already")
	f(`listen: "127.0.0.1:8081"`, "where something else listens already")
	f(`listen: "127.0.0.1:8083"}
pop: {name: a, memcached: ["127.0.0.1:1"], secret_file: s, peers_listen: "127.0.0.1:8083", peers_secret_file: p, peers: [{name: b, edges: ["127.0.0.1:2"]}]`, "where something else listens already")
	f(`insecure: false`, "no origin")
}

// checks says whether what is wrong with a service's fields is what is wanted; "": nothing.
func checks(t *testing.T, service, fields, want string) {
	t.Helper()
	c, err := reading.Parse("f.yaml", []byte("listen: \":8080\"\n"+service+": {"+fields+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	if err := c.Check(); err != nil {
		got = err.Error()
	}
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("%s: %s: %q, want %q", service, fields, got, want)
	}
}

// Nobody asks about descriptors where nobody can: that is said.
func TestRulesThatNoProxyCalls(t *testing.T) {
	const rules = "rules: [{name: a, limit: 1, match: {descriptors: {domain: d, entries: [{key: k}]}}}]\n"
	for text, want := range map[string]bool{rules: true, rules + "rate_limit_service: {listen: \"127.0.0.1:1\"}\n": false, strings.Replace(rules, "limit: 1", "limit: 1, mode: off", 1): false} {
		c, err := reading.Parse("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(c.Warnings(), "\n"), "no proxy can send any here"); got != want {
			t.Errorf("%s warns: %t", text, got)
		}
	}
}
