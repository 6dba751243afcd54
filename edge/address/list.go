package address

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/gaissmai/bart"

	"sluice/counter"
)

// A List is a named list of prefixes, whose content may change while requests look at it: a look
// takes no lock. The zero List is empty.
type List struct{ prefixes atomic.Pointer[bart.Lite] }

// Set replaces the content, for all who look from now on. The caller must not change t any more;
// nil is empty.
func (l *List) Set(t *bart.Lite) { l.prefixes.Store(t) }

// Has reports whether an address, as a plain one, is in the list.
func (l *List) Has(addr netip.Addr) bool { return IsIn(l.prefixes.Load(), addr) }

// InAny reports whether an address is in one of several lists.
func InAny(lists []*List, addr netip.Addr) bool {
	for _, l := range lists {
		if l.Has(addr) {
			return true
		}
	}
	return false
}

// Named returns lists by their names. Each must be there.
func Named(named map[string]*List, names []string) (found []*List) {
	for _, name := range names {
		found = append(found, named[name])
	}
	return found
}

// A Group is some prefixes, named lists, and addresses of which something else is known, together.
// A nil Group has no address.
type Group struct {
	prefixes *bart.Lite
	lists    []*List
	known    []func(netip.Addr) bool
}

// NewGroup returns nil where there is nothing to be in.
func NewGroup(prefixes []netip.Prefix, lists []*List, known []func(netip.Addr) bool) *Group {
	if len(prefixes)+len(lists)+len(known) == 0 {
		return nil
	}
	return &Group{NewPrefixes(prefixes), lists, known}
}

// Has reports whether an address, as a plain one, is in it.
func (g *Group) Has(addr netip.Addr) bool {
	if g == nil || IsIn(g.prefixes, addr) || InAny(g.lists, addr) {
		return g != nil
	}
	for _, is := range g.known {
		if is(addr) {
			return true
		}
	}
	return false
}

// Covers reports whether all of p is known to be in it, Overlaps whether some of p may be. Of a
// prefix of several addresses only prefixes are known.
func (g *Group) Covers(p netip.Prefix) bool {
	if p.IsSingleIP() {
		return g.Has(p.Addr())
	}
	return g.any(func(t *bart.Lite) bool { return t.LookupPrefix(p) })
}

func (g *Group) Overlaps(p netip.Prefix) bool {
	return g.any(func(t *bart.Lite) bool { return t.OverlapsPrefix(p) }) ||
		g != nil && len(g.known) > 0 && (!p.IsSingleIP() || g.Has(p.Addr()))
}

// Bits is the length of the longest prefix in it that covers p: 0 of what is known otherwise, and -1
// if none does.
func (g *Group) Bits(p netip.Prefix) int {
	if !g.Covers(p) {
		return -1
	}
	bits := longest(g.prefixes, p)
	for _, l := range g.lists {
		bits = max(bits, longest(l.prefixes.Load(), p))
	}
	return bits
}

// longest is the length of the longest prefix that covers p, 0 if none does.
func longest(t *bart.Lite, p netip.Prefix) int {
	if t == nil {
		return 0
	}
	found, _ := t.LookupPrefixLPM(p)
	return max(0, found.Bits())
}

// Listed reports whether a client is always refused, or never limited, by the lengths of the longest
// prefixes of both lists that cover its address, -1 where none does: the longer prefix is right, and
// deny at a tie.
func Listed(deny, allow int) (denied, allowed bool) {
	return deny >= 0 && deny >= allow, allow > deny
}

func (g *Group) any(is func(*bart.Lite) bool) bool {
	if g == nil {
		return false
	}
	return g.prefixes != nil && is(g.prefixes) || slices.ContainsFunc(g.lists, func(l *List) bool {
		t := l.prefixes.Load()
		return t != nil && is(t)
	})
}

// ParsePrefix reads a prefix or an address, mapped addresses as IPv4.
func ParsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		if addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q has a zone: write the address alone", text)
		}
		addr = counter.Plain(addr)
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p,
			fmt.Errorf("%q is not a prefix: want CIDR such as 192.0.2.0/24 or 2001:db8::/48, or an address", text)
	case p.Masked() != p:
		return p, fmt.Errorf("%s has bits beyond its prefix: write %s", text, p.Masked())
	case p.Addr().Is6() && counter.Plain(p.Addr()).Is4() && p.Bits() >= 96:
		return p, fmt.Errorf("%s is IPv4 in IPv6: write the IPv4 prefix", text)
	}
	return p, nil
}
