package main

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"sluice/edge/config"
)

// A server of an origin is this edge if it has an address that this edge listens at, on this machine.
func TestOriginsHere(t *testing.T) {
	t.Parallel()
	own := map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true, netip.MustParseAddr("2001:db8::1"): true}
	for _, test := range []struct {
		server, listens string
		here            bool
	}{
		{"http://127.0.0.1:8080", "127.0.0.1:8080", true},
		{"http://127.0.0.1:8080", ":8080", true},
		{"http://127.0.0.1:8080", "0.0.0.0:8080", true},
		{"http://127.0.0.1:8080", "[::]:8080", true},
		{"http://127.0.0.1:8080", "127.0.0.1:8081", false},
		{"http://127.0.0.2:8080", "127.0.0.1:8080", false},
		{"http://127.0.0.2:8080", ":8080", true},
		{"http://localhost:8080", "127.0.0.1:8080", true},
		{"http://127.0.0.1", ":80", true},
		{"http://127.0.0.1", ":http", true},
		{"https://192.0.2.1", ":443", true},
		{"h2://192.0.2.1", "192.0.2.1:443", true},
		{"http://192.0.2.1:80", "127.0.0.1:80", false},
		{"http://192.0.2.2:80", ":80", false}, // another machine's
		{"http://0.0.0.0:8080", "127.0.0.1:8080", true},
		{"http://[::1]:8080", "[::]:8080", true},
		{"http://[::1]:8080", "0.0.0.0:8080", false},
		{"http://[2001:db8::1]:8080", ":8080", true},
		{"http://127.0.0.1:8080", "127.0.0.1:0", false},
		{"unix:/run/a", "unix:/run/a", true},
		{"unix:/run/a", "unix:/run/b", false},
		{"http://127.0.0.1:8080", "unix:/run/a", false},
	} {
		u, err := url.Parse(test.server)
		if err != nil {
			t.Fatal(err)
		}
		var addrs []netip.Addr
		if u.Scheme != "unix" {
			addrs = addressesOf(u.Hostname())
		}
		if got := leadsTo(u, addrs, test.listens, own); got != test.here {
			t.Errorf("%s at %s: %v", test.server, test.listens, got)
		}
	}
	c, err := config.Parse("test.yaml", []byte("listen: '127.0.0.1:8080'\norigins: [{servers: ['http://127.0.0.1:3000', 'http://127.0.0.1:8080']}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if w := originsHere(c); len(w) != 1 || !strings.HasPrefix(w[0], "origin http://127.0.0.1:8080 is this edge: it is served at listen 127.0.0.1:8080") {
		t.Errorf("%q", w)
	}
}
