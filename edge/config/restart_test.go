package config

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// Whatever the file comes to say, what is read at the start only runs on as it was, and is listed as waiting; all else
// runs.
func TestRunning(t *testing.T) {
	const base = "origins: [{servers: ['http://127.0.0.1:1']}]\nrules: [{name: r, limit: 5}]\n"
	f := func(before, now string, want ...string) {
		t.Helper()
		a, err := reading.Parse("before", []byte(base+before))
		if err != nil {
			t.Fatal(err)
		}
		b, err := reading.Parse("now", []byte(base+now))
		if err != nil {
			t.Fatal(err)
		}
		runs := Running(a, b)
		got := []string{}
		for _, w := range Waiting(runs, b) {
			got = append(got, fmt.Sprint(w.Field, " ", w.Runs, " ", w.File))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, then %q: %q waits, want %q", before, now, got, want)
		}
		for _, d := range Differing(a, b) {
			waits := slices.ContainsFunc(Waiting(runs, b), func(w Wait) bool { return w.Field == d.Field })
			if waits == b.Reloads(d.Field) && d.Field != "pop.memcached" {
				t.Errorf("%q, then %q: %s waits: %v, and Reloads says that it does not", before, now, d.Field, waits)
			}
		}
		if again := Running(runs, b); !reflect.DeepEqual(again, runs) {
			t.Errorf("%q, then %q, read again: %+v runs", before, now, again)
		}
		if back := Waiting(Running(runs, a), a); len(back) != 0 {
			t.Errorf("%q, then %q, and back: %v waits", before, now, back)
		}
	}
	f("", "")
	f("", "deny: [192.0.2.0/24]")
	f("", "listen: ':9090'", "listen [:8080] [:9090]")
	f("", "listen: [':8080', {address: ':80', redirect: 443}]", "listen [:8080] [:8080 map[address::80 redirect:443]]")
	f("listen_tls: ':1'\ntls: {folder: /c}", "listen_tls: ':1'\ntls: {folder: /c}\nhsts: {max_age: 1h}")
	f("", "cors: {origins: ['https://a.example']}")
	f("", "acme: {email: a@example.com}", "acme.email none a@example.com")
	f("edge_id: a", "admin: '127.0.0.1:1'", "admin 127.0.0.1:8081 127.0.0.1:1", "edge_id a none")
	f("", "limits: {idle_timeout: 2m, connections: 2000}", "limits.connections 10000 2000", "limits.idle_timeout 1m0s 2m0s")
	f("pop: {name: a}", "pop: {name: b}", "pop.name a b")
	f("", "pop: {memcached: ['a:1']}", "pop.memcached [] [a:1]")
	f("pop: {memcached: ['a:1']}", "", "pop.memcached [a:1] []")
	f("pop: {memcached: ['a:1']}", "pop: {memcached: ['b:1']}")
	f("", "table: {counters: 2000}", "table.counters 1000000 2000")
	f("", "metrics_token: true", "metrics_token false true")
	f("", "source: {ipv4_prefix: 24, trust: [192.0.2.1], header: Forwarded}\nallow: [192.0.2.0/24]\nshed: connection\ncheck_path: /check\nverdict_header: true\npop: {peers_mode: off}\njwt: {keys_file: a, issuer: b}")
	f("", "plans: {key: 'header:A', default: b, store: 'sqlite:/a', refresh: 9s}", "plans.refresh 5s 9s", "plans.store none sqlite:/a")
}
