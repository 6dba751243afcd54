package control

import (
	"net/netip"
	"time"

	"sluice/counter"
	"sluice/edge/address"
	"sluice/mitigation"
)

// Longest is the length of the longest prefix that covers p, which may be one address, on a list:
// of those that the configuration has (fixed) and that operators have put there (what:
// mitigation.Allowed or Denied; covering: those of mitigation.Table.WiderPrefixes). -1: none does.
func Longest(p netip.Prefix, fixed *address.Group, what uint32, blocks *mitigation.Table,
	covering []counter.Source, now time.Time) int {
	bits := fixed.Bits(p)
	for i := range covering { // the narrowest first
		if blocks.Ordered(what, covering[i:i+1], now) {
			ordered, _ := covering[i].Prefix()
			return max(bits, ordered.Bits())
		}
	}
	return bits
}

// listed reports whether all of a prefix is always refused, or never limited, and which prefixes
// that operators have spoken of cover it.
func (c *Admin) listed(p netip.Prefix,
	now time.Time) (denied, allowed bool, covering []counter.Source) {
	in, blocks := c.with.View(), c.with.Limiter.Blocks
	covering = blocks.WiderPrefixes(p, nil)
	denied, allowed = address.Listed(Longest(p, in.Deny, mitigation.Denied, blocks, covering, now),
		Longest(p, in.Allow, mitigation.Allowed, blocks, covering, now))
	return denied, allowed, covering
}
