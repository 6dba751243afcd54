package address

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/gaissmai/bart"

	"sluice/counter"
)

// A List is prefixes that may change while requests look at them: a look takes no lock. The zero
// List is empty.
type List struct{ prefixes atomic.Pointer[bart.Lite] }

// Set replaces the content, for all who look from now on. The caller must not change t any more;
// nil is empty.
func (l *List) Set(t *bart.Lite) { l.prefixes.Store(t) }

// Has reports whether an address, as a plain one, is in the list.
func (l *List) Has(addr netip.Addr) bool { return IsIn(l.prefixes.Load(), addr) }

// A Group is some prefixes, lists, and addresses of which something else is known, together. A nil
// Group has no address.
type Group struct {
	prefixes *bart.Lite
	lists    []*List
	known    []func(netip.Addr) bool
}

// OfLists is the group of some lists, and Known that of the addresses of which something is known.
func OfLists(lists []*List) *Group          { return &Group{lists: lists} }
func Known(is func(netip.Addr) bool) *Group { return &Group{known: []func(netip.Addr) bool{is}} }

// NewGroup is one of prefixes and other groups; nil where there is nothing to be in.
func NewGroup(prefixes []netip.Prefix, others ...*Group) *Group {
	if len(prefixes)+len(others) == 0 {
		return nil
	}
	g := &Group{prefixes: NewPrefixes(prefixes)}
	for _, o := range others {
		g.lists, g.known = append(g.lists, o.lists...), append(g.known, o.known...)
	}
	return g
}

// Has reports whether an address, as a plain one, is in it.
func (g *Group) Has(addr netip.Addr) bool {
	if g == nil {
		return false
	}
	if IsIn(g.prefixes, addr) {
		return true
	}
	for _, l := range g.lists {
		if l.Has(addr) {
			return true
		}
	}
	return g.isKnown(addr)
}

func (g *Group) isKnown(addr netip.Addr) bool {
	for _, is := range g.known {
		if is(addr) {
			return true
		}
	}
	return false
}

// Overlaps reports whether some of p may be in it. Of a prefix of several addresses only prefixes
// are known.
func (g *Group) Overlaps(p netip.Prefix) bool {
	if g == nil {
		return false
	}
	overlaps := func(t *bart.Lite) bool { return t != nil && t.OverlapsPrefix(p) }
	return overlaps(g.prefixes) ||
		slices.ContainsFunc(g.lists, func(l *List) bool { return overlaps(l.prefixes.Load()) }) ||
		len(g.known) > 0 && (!p.IsSingleIP() || g.isKnown(p.Addr()))
}

// Bits is the length of the longest prefix in it that covers p: 0 of what is known otherwise, and -1
// if none does.
func (g *Group) Bits(p netip.Prefix) int {
	if g == nil {
		return -1
	}
	bits := longest(g.prefixes, p)
	for _, l := range g.lists {
		bits = max(bits, longest(l.prefixes.Load(), p))
	}
	if bits < 0 && p.IsSingleIP() && g.isKnown(p.Addr()) {
		return 0
	}
	return bits
}

// longest is the length of the longest prefix that covers p, -1 if none does.
func longest(t *bart.Lite, p netip.Prefix) int {
	if t == nil {
		return -1
	}
	found, _ := t.LookupPrefixLPM(p) // the zero Prefix has -1
	return found.Bits()
}

// Listed reports whether a client is always refused, or never limited, by the lengths of the longest
// prefixes of both lists that cover its address, -1 where none does: the longer prefix is right, and
// deny at a tie.
func Listed(deny, allow int) (denied, allowed bool) {
	return deny >= 0 && deny >= allow, allow > deny
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
