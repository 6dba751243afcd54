package address

import (
	"net/netip"
	"testing"
)

// Of a prefix of several addresses nobody knows whether all, or any, have what is known of single ones: they may, and are not known to.
func TestGroupOfPlaces(t *testing.T) {
	known := Known(func(a netip.Addr) bool { return a == netip.MustParseAddr("192.0.2.1") })
	places := NewGroup([]netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, known)
	prefixes := NewGroup([]netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")})
	empty, list := new(List), new(List)
	list.Set(NewPrefixes([]netip.Prefix{netip.MustParsePrefix("198.51.100.0/28"), netip.MustParsePrefix("203.0.113.0/26")}))
	all := NewGroup([]netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, known, OfLists([]*List{empty, list}))
	for _, test := range []struct {
		group            *Group
		prefix           string
		covers, overlaps bool
	}{
		{places, "192.0.2.1/32", true, true}, {places, "192.0.2.2/32", false, false}, {places, "192.0.2.0/24", false, true},
		{places, "198.51.100.0/25", true, true}, {places, "2001:db8::/64", false, true},
		{prefixes, "192.0.2.1/32", false, false}, {prefixes, "192.0.2.0/24", false, false}, {prefixes, "198.51.100.0/25", true, true},
		{nil, "192.0.2.1/32", false, false}, {all, "203.0.113.9/32", true, true}, {all, "203.0.113.0/24", false, true},
		{OfLists([]*List{list}), "203.0.113.0/24", false, true}, {OfLists([]*List{empty}), "203.0.113.9/32", false, false},
	} {
		p := netip.MustParsePrefix(test.prefix)
		if c, o := test.group.Bits(p) >= 0, test.group.Overlaps(p); c != test.covers || o != test.overlaps {
			t.Errorf("%s: covers %t, overlaps %t, want %t and %t", p, c, o, test.covers, test.overlaps)
		}
	}
	for _, test := range []struct {
		group  *Group
		prefix string
		bits   int
	}{
		{places, "192.0.2.1/32", 0}, {places, "192.0.2.2/32", -1}, {places, "198.51.100.7/32", 24}, {prefixes, "198.51.100.0/24", 24},
		{prefixes, "198.51.0.0/16", -1}, {nil, "192.0.2.1/32", -1}, {all, "198.51.100.7/32", 28}, {all, "198.51.100.16/32", 24},
		{all, "203.0.113.0/27", 26}, {all, "203.0.113.0/25", -1}, {all, "192.0.2.1/32", 0}, {all, "192.0.2.0/31", -1},
	} {
		if bits := test.group.Bits(netip.MustParsePrefix(test.prefix)); bits != test.bits {
			t.Errorf("%s: %d bits, want %d", test.prefix, bits, test.bits)
		}
		p := netip.MustParsePrefix(test.prefix)
		if p.IsSingleIP() && test.group.Has(p.Addr()) != (test.bits >= 0) {
			t.Errorf("%s: has it: %t", test.prefix, test.bits < 0)
		}
		if n := testing.AllocsPerRun(100, func() { test.group.Has(p.Addr()); test.group.Bits(p); test.group.Overlaps(p) }); n != 0 {
			t.Errorf("%s: %v allocations", test.prefix, n)
		}
	}
	if NewGroup(nil) != nil {
		t.Error("a group of nobody")
	}
}

// Of a prefix on each list the longer is right, and deny where both have one length.
func TestListed(t *testing.T) {
	for _, test := range []struct {
		deny, allow     int
		denied, allowed bool
	}{
		{-1, -1, false, false}, {0, -1, true, false}, {-1, 0, false, true}, {0, 0, true, false}, {24, 24, true, false}, {24, 25, false, true}, {32, 24, true, false},
	} {
		if denied, allowed := Listed(test.deny, test.allow); denied != test.denied || allowed != test.allowed {
			t.Errorf("deny /%d, allow /%d: denied %t, allowed %t", test.deny, test.allow, denied, allowed)
		}
	}
}
