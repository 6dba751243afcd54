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

// Where programs may ask: beyond this machine they must have a token, or somebody has said that they need none.
func TestLimitAPIAddress(t *testing.T) {
	f := func(fields, want string) { t.Helper(); checks(t, "limit_api", fields, want) }
	f(`listen: "127.0.0.1:8083"`, "") // and no origin is needed
	f(`listen: "unix:/run/sluice.sock"`, "")
	f(`listen: ":8083"`, "give limit_api.token_file, or cert_file, key_file and client_ca_file, listen on 127.0.0.1, or say insecure: true")
	f(`listen: ":8083", cert_file: c, key_file: k`, "others than this machine may reach")
	f(`listen: ":8083", cert_file: c, key_file: k, client_ca_file: a`, "")
	f(`listen: ":8083", token_file: t, client_ca_file: a`, "over TLS only")
	f(`listen: "127.0.0.1:8083", key_file: k`, "belong together")
	f(`listen: ":8083", token_file: t`, "")
	f(`listen: ":8083", insecure: true`, "")
	f(`listen: ":8080", insecure: true`, "where something else listens already")
	f(`listen: "127.0.0.1:8083"}
rate_limit_service: {listen: "127.0.0.1:8083"`, "where something else listens already")
	f(`token_file: t}
check_path: /check
access_log: {format: json`, "limit_api has files but listens nowhere")
	f(`insecure: false`, "no origin")
}
