package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cmd/internal/labtest"
)

// TestMain lets the test binary be sluice itself, so that signals and exit codes can be tested.
func TestMain(m *testing.M) {
	if os.Getenv("SLUICE_UNDER_TEST") == "1" {
		main()
		return
	}
	labtest.Prepare()
	os.Exit(m.Run())
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// Bad input gets one sentence that names the thing and the remedy, and nothing is started.
func TestBadInput(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer busy.Close()
	origin := "http://" + busy.Addr().String()
	taken := busy.Addr().String()
	const anywhere = "{listen: ':0', admin: '127.0.0.1:0'"
	rules := write(t, anywhere+", rules: [{name: a, limit: 1}]}")
	wrong := write(t, "rules: [{name: a, limit: 0}]\nlisten: x\n")
	nodes := write(t, "pop:\n memcached:\n - ''\n - 10.0.0.1\n - LOCALHOST:11211\n - localhost:11211\n -\n")
	hosts := write(t, anywhere+", origins: [{servers: [\"http://10.0.0.1\"]}], rules: [{name: shop, match: {hosts: [shop.example]}, limit: 1}]}")
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"", 1, "sluice: no origin: give one with --origin URL or under origins in the configuration file\n"},
		{"--origin localhost:3000", 1, `sluice: --origin: "localhost:3000" is not the URL of an origin: want http://HOST:PORT, https://HOST:PORT, h2c://HOST:PORT, h2://HOST:PORT or unix:/PATH` + "\n"},
		{"--origin http://no-such-host.invalid:1", 1, "sluice: origin http://no-such-host.invalid:1: the name no-such-host.invalid cannot be found: check its spelling or the name server\n"},
		{"--origin " + origin + " --listen " + taken, 1, "sluice: listen " + taken + ": the port is in use: stop what uses it or choose another with --listen\n"},
		{"--origin " + origin + " --listen 127.0.0.1:0 --admin " + taken, 1, "sluice: admin " + taken + ": the port is in use: stop what uses it or choose another with --admin\n"},
		{"--origin " + origin + " --listen 203.0.113.99:1", 1, "sluice: listen 203.0.113.99:1: one cannot listen there (listen tcp 203.0.113.99:1: bind: cannot assign requested address): give an address of this machine with --listen\n"},
		{"--origin " + origin + " --listen nowhere", 1, `sluice: --listen: "nowhere" is not an address to listen on: want HOST:PORT or :PORT, the port from 0 to 65535` + "\n"},
		{"--origin " + origin + " --admin 0.0.0.0:0", 1, "sluice: admin is 0.0.0.0:0, which others than this machine may reach, and anyone who does may change rules and blocks: " +
			"give admin_token_file, listen on 127.0.0.1, or say admin_insecure: true\n"},
		{"--origin " + origin + " --limit 0", 1, "sluice: --limit 0 is out of range: want 1 to 1000000000\n"},
		{"--origin " + origin + " --limit 1000000001", 1, "sluice: --limit 1000000001 is out of range: want 1 to 1000000000\n"},
		{"--origin " + origin + " --window 1ms", 1, "sluice: --window 1ms is out of range: want 1s to 24h\n"},
		{"--origin " + origin + " --mitigation-timeout 25h", 1, "sluice: --mitigation-timeout 25h0m0s is out of range: want 0 to 24h\n"},
		{"--origin " + origin + " --estimate best", 1, `sluice: --estimate "best": want nearest or lower` + "\n"},
		{"--origin " + origin + " --pop a/b", 1, `sluice: --pop: "a/b" is not a name for a PoP: want 1 to 64 letters, digits, dots, dashes or underscores` + "\n"},
		{"--origin " + origin + " --memcached nowhere", 1, `sluice: --memcached: "nowhere" is not the address of a node: it has no port: want HOST:PORT, such as nowhere:11211` + "\n"},
		{"--origin " + origin + " --memcached a:1,,b:2", 1, "sluice: --memcached: a node without a name: want HOST:PORT\n"},
		{"--origin " + origin + " --memcached=", 1, "sluice: --memcached names no node: leave it out to count alone\n"},
		{"--origin " + origin + " --memcached LOCALHOST:11211,localhost:11211", 1, `sluice: --memcached: "LOCALHOST:11211" and "localhost:11211" are the same node: name it once` + "\n"},
		{"check " + nodes, 1, nodes + `:3:4: pop.memcached: a node without a name: want HOST:PORT` + "\n" +
			nodes + `:4:4: pop.memcached: "10.0.0.1" is not the address of a node: it has no port: want HOST:PORT, such as 10.0.0.1:11211` + "\n" +
			nodes + `:6:4: pop.memcached: "LOCALHOST:11211" and "localhost:11211" are the same node: name it once` + "\n" +
			nodes + ":7:4: pop.memcached: want a value, not nothing\n"},
		{"--config /nonexistent/x.yaml", 1, "sluice: /nonexistent/x.yaml: cannot be read: no such file or directory: give the path of a readable file\n"},
		{"--config " + wrong, 1, "sluice: " + wrong + ":1:26: limit: 0 is out of range: want 1 to 1000000000 (and 1 more: sluice check FILE shows all)\n"},
		{"--config " + rules + " --origin " + origin + " --limit 5", 1, "sluice: --limit: " + rules + " gives rules, so there is no default rule to set: remove the flag or the rules\n"},
		{"--frobnicate", 2, "sluice: unknown flag: --frobnicate (sluice --help tells more)\n"},
		{"--window 1d", 2, "sluice: --window 1d: want a time with a unit, such as 30s, 10m or 48h (sluice --help tells more)\n"},
		{"--limit many", 2, `sluice: --limit many: want a number (sluice --help tells more)` + "\n"},
		{"--log-level loud", 2, `sluice: --log-level "loud": want debug, info, warn or error (sluice --help tells more)` + "\n"},
		{"--log-format xml", 2, `sluice: --log-format "xml": want text or json (sluice --help tells more)` + "\n"},
		{"--origin x y", 2, `sluice: unexpected argument "y" (sluice --help tells more)` + "\n"},
		{"staus", 2, `sluice: unknown command "staus" (did you mean status?): sluice help lists them; flags alone serve (sluice --help tells more)` + "\n"},
		{"frobnicate", 2, `sluice: unknown command "frobnicate": sluice help lists them; flags alone serve (sluice --help tells more)` + "\n"},
		{"check", 2, "sluice: check wants one file: sluice check FILE (sluice --help tells more)\n"},
		{"check " + wrong, 1, wrong + ":1:26: limit: 0 is out of range: want 1 to 1000000000\n" +
			wrong + `:2:9: listen: "x" is not an address to listen on: want HOST:PORT or :PORT, the port from 0 to 65535` + "\n"},
		{"check " + rules, 0, ""},
		{"-t " + rules, 0, ""},
		{"-t", 2, "sluice: check wants one file: sluice check FILE (sluice --help tells more)\n"},
		{"check " + hosts, 0, hosts + ": warning: rule shop is about the host shop.example, but http://10.0.0.1 answers for every host, so a request with another Host gets there without the rule: " +
			"name the hosts under origins.hosts, or leave match.hosts out\n"},
		{"version", 0, ""},
		{"--version", 0, ""},
		{"--version x", 2, "sluice: version wants --json or nothing (sluice --help tells more)\n"},
		{"--help", 0, ""},
	} {
		t.Run(strings.ReplaceAll(test.args, "/", "_"), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(strings.Fields(test.args), &stdout, &stderr)
			if code != test.code || stderr.String() != test.says {
				t.Errorf("exit %d\n got %swant %s", code, stderr.String(), test.says)
			}
			if (code == 0) != (stdout.Len() > 0) {
				t.Errorf("standard output: %q", stdout.String())
			}
		})
	}
}

func origin(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	t.Cleanup(s.Close)
	return s.URL
}

// must ends a test that cannot go on.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// sluice runs sluice with arguments.
func sluice(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}
