package mitigation

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/counter"
)

// Of a prefix of which operators have spoken a verdict, and what another PoP says, hold for the prefix as a source and not for who is in it.
func TestVerdictsOnPrefixes(t *testing.T) {
	for _, by := range []By{ByEdge, ByPoP, ByPeer} {
		table, wide := New(0, nil), counter.SourceOf(netip.MustParseAddr("192.0.2.0"), 24, 64)
		table.Start(Key{Rule: 2, Source: wide}, bit(0, time.Hour, ByAdmin), start)
		table.Start(Key{Rule: 1, Source: wide}, bit(0, time.Minute, by), start)
		one := netip.MustParseAddr("192.0.2.1")
		covering, who := table.WiderPrefixes(netip.PrefixFrom(one, 32), nil), counter.SourceOf(one, 32, 64)
		if len(covering) != 1 || !table.UntilOf(Key{Rule: 1, Source: who}, covering, start).IsZero() || table.UntilOf(Key{Rule: 2, Source: who}, covering, start).IsZero() ||
			table.UntilOf(Key{Rule: 1, Source: wide}, covering, start).IsZero() {
			t.Errorf("%v: an address within is blocked, or the prefix is not", by)
		}
	}
}

// Of one prefix operators may have said several things: it is known until the last of them ends, whichever came first.
func TestPrefixIsKnownUntilTheLastEnd(t *testing.T) {
	one := netip.MustParseAddr("192.0.2.1")
	wide := counter.SourceOf(one, 24, 64)
	for _, ends := range [][]time.Duration{{time.Hour, time.Minute}, {time.Minute, time.Hour}} {
		table := New(0, nil)
		for rule, end := range ends {
			table.Start(Key{Rule: uint32(rule), Source: wide}, bit(0, end, ByAdmin), start)
		}
		for _, now := range []time.Duration{0, 2 * time.Minute, 2 * time.Hour} {
			table.Sweep(start.Add(now))
			covering := table.WiderPrefixes(netip.PrefixFrom(one, 32), nil)
			for rule, end := range ends {
				if until := table.UntilOf(Key{Rule: uint32(rule), Source: counter.SourceOf(one, 32, 64)}, covering, start.Add(now)); until.IsZero() != (now >= end) {
					t.Errorf("%v, after %v: rule %d until %v", ends, now, rule, until)
				}
			}
			if known := len(covering) > 0; known != (now < time.Hour) || known != (table.prefixes.tree.Load() != nil) {
				t.Errorf("%v, after %v: known %v", ends, now, known)
			}
		}
	}
}

// What operators say of a prefix holds for all in it, from the widest to the narrowest, each until its own end; a lift ends it, and what
// has ended is forgotten.
func TestPrefixes(t *testing.T) {
	table := New(0, nil)
	source := func(text string) counter.Source {
		s, err := counter.ParseSource(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	put := func(rule uint32, text string, until time.Duration, by By) {
		t.Helper()
		if !table.Start(Key{Rule: rule, Source: source(text)}, bit(0, until, by), start) {
			t.Errorf("%s under %d changed nothing", text, rule)
		}
	}
	// at returns of an address: until when it is mitigated under rules 1 and 2, and whether it is allowed and denied.
	at := func(after time.Duration, addr string) string {
		now, a := start.Add(after), netip.MustParseAddr(addr)
		covering := table.WiderPrefixes(netip.PrefixFrom(a, a.BitLen()), nil)
		var says []string
		for _, rule := range []uint32{1, 2} {
			if until := table.UntilOf(Key{Rule: rule, Source: source(addr)}, covering, now); !until.IsZero() {
				says = append(says, fmt.Sprintf("%d:%v", rule, until.Sub(start)))
			}
		}
		if table.Ordered(Allowed, covering, now) {
			says = append(says, "allowed")
		}
		if table.Ordered(Denied, covering, now) {
			says = append(says, "denied")
		}
		return strings.Join(says, " ")
	}
	expect := func(after time.Duration, want map[string]string) {
		t.Helper()
		for addr, says := range want {
			if got := at(after, addr); got != says {
				t.Errorf("after %v, %s: %q, want %q", after, addr, got, says)
			}
		}
	}
	put(1, "192.0.2.0/24", 10*time.Second, ByAdmin)
	put(1, "192.0.2.128/25", 5*time.Second, ByAdmin)
	put(AllRules, "192.0.2.192/26", 20*time.Second, ByAdmin)
	put(Denied, "198.51.100.7", time.Minute, ByAdmin)
	put(Allowed, "2001:db8::/32", time.Minute, ByAdmin)
	put(1, "203.0.113.1", time.Minute, ByEdge)
	expect(0, map[string]string{
		"192.0.2.1": "1:10s", "192.0.2.130": "1:10s", "192.0.2.200": "1:20s 2:20s", "192.0.3.1": "",
		"198.51.100.7": "denied", "198.51.100.8": "", "2001:db8:1::1": "allowed", "2001:db9::1": "", "203.0.113.1": "1:1m0s",
	})
	if !table.Lift(Key{Rule: AllRules, Source: source("192.0.2.192/26")}, start) || !table.Lift(Key{Rule: 1, Source: source("192.0.2.0/24")}, start) {
		t.Error("nothing lifted")
	}
	expect(0, map[string]string{"192.0.2.1": "", "192.0.2.130": "1:5s", "192.0.2.200": "1:5s"})
	expect(5*time.Second, map[string]string{"192.0.2.130": "", "198.51.100.7": "denied"})
	table.Sweep(start.Add(30 * time.Second))
	if n := len(table.prefixes.ends); n != 2 {
		t.Errorf("%d prefixes are remembered", n)
	}
	expect(30*time.Second, map[string]string{"198.51.100.7": "denied", "2001:db8::1": "allowed"})
	table.Sweep(start.Add(time.Hour))
	if table.prefixes.tree.Load() != nil {
		t.Error("prefixes are remembered after their end")
	}
}

// Looking for what operators have said costs nothing to speak of: no allocation, whether there is something or not.
func TestCoveringAllocatesNothing(t *testing.T) {
	table := New(0, nil)
	addr := netip.MustParsePrefix("192.0.2.1/32")
	var buf [4]counter.Source
	look := func() {
		covering := table.WiderPrefixes(addr, buf[:0])
		if table.Ordered(Denied, covering, start) {
			t.Error("denied")
		}
	}
	if n := testing.AllocsPerRun(100, look); n != 0 {
		t.Errorf("%v allocations where there is nothing", n)
	}
	s, _ := counter.ParseSource("10.0.0.0/8")
	table.Start(Key{Rule: Denied, Source: s}, bit(0, time.Hour, ByAdmin), start)
	if n := testing.AllocsPerRun(100, look); n != 0 {
		t.Errorf("%v allocations where there is something of others", n)
	}
}
