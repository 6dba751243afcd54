package anycast_test

import (
	"net/netip"
	"testing"
	"time"

	"sluice/loadgen/anycast"
)

func TestRoutes(t *testing.T) {
	var routes []anycast.Route
	for _, s := range []string{"10s 198.51.100.0/24 0", "20s 198.51.100.0/24 1", "15s 198.51.0.0/16 2", "10s 2001:db8:7::/48 2"} {
		r, err := anycast.ParseRoute(s)
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, r)
	}
	a, err := anycast.New(3, routes)
	if err != nil {
		t.Fatal(err)
	}
	f := func(addr string, at time.Duration, want int) {
		t.Helper()
		if got := a.PoP(netip.MustParseAddr(addr), at); got != want {
			t.Errorf("%s at %v: PoP %d, want %d", addr, at, got, want)
		}
	}
	home := a.PoP(netip.MustParseAddr("198.51.100.1"), 0)
	f("198.51.100.200", 9*time.Second, home) // the whole /24 goes one way
	f("198.51.100.1", 10*time.Second, 0)
	f("198.51.100.1", 19*time.Second, 0) // the longer prefix wins
	f("198.51.100.1", 20*time.Second, 1)
	f("::ffff:198.51.100.1", 20*time.Second, 1)
	f("198.51.7.1", 15*time.Second, 2)
	f("2001:db8:7:1::1", 10*time.Second, 2)
	f("2001:db8:7:ffff::1", 0, a.PoP(netip.MustParseAddr("2001:db8:7::"), 0))
}

// TestPrefixesAreSpreadEvenly: prefixes are spread over the PoPs evenly enough.
func TestPrefixesAreSpreadEvenly(t *testing.T) {
	a, err := anycast.New(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	var n [4]int
	for i := range 4096 {
		n[a.PoP(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}), 0)]++
	}
	for i, got := range n {
		if got < 900 || got > 1150 {
			t.Errorf("PoP %d has %d of 4096 prefixes", i, got)
		}
	}
}

func TestRoutesThatMakeNoSense(t *testing.T) {
	for _, s := range []string{"", "20s", "20s 198.51.100.0/24", "x 198.51.100.0/24 1", "-1s 198.51.100.0/24 1", "20s 198.51.100.0 1", "20s 198.51.100.0/24 -1", "20s 198.51.100.0/24 x"} {
		if r, err := anycast.ParseRoute(s); err == nil {
			t.Errorf("%q passes for %v", s, r)
		}
	}
	for _, s := range []string{"20s 198.51.100.0/24 2", "20s 198.51.100.0/25 1", "20s 2001:db8::/64 1"} {
		r, err := anycast.ParseRoute(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := anycast.New(2, []anycast.Route{r}); err == nil {
			t.Errorf("%q passes", s)
		}
	}
}
