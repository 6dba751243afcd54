// Package anycast stands in for anycast where traffic is replayed: it says which PoP a source
// reaches. The network decides that by routed prefix, and the longest that routers accept from each
// other are /24 and /48. Here every prefix belongs to one PoP by a hash, the same in every run,
// until a route changes.
package anycast

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Affinity says which PoP a source reaches. It is safe for concurrent use.
type Affinity struct {
	pops   int
	routes []Route // the longest prefix first, of one prefix the latest
}

// Route is a change of routes: from At on (run time) the addresses of Prefix reach another PoP.
type Route struct {
	At     time.Duration
	Prefix netip.Prefix
	PoP    int // from 0
}

// The longest prefixes that are routed.
const (
	routedV4 = 24
	routedV6 = 48
)

// New spreads sources over so many PoPs, and lets routes change. A route to a PoP that is not
// there, or for a prefix that no router would take, is an error. Of two routes the one with the
// longer prefix wins, and of one prefix the later one.
func New(pops int, routes []Route) (*Affinity, error) {
	if pops < 1 {
		return nil, fmt.Errorf("anycast: %d PoPs: want at least 1", pops)
	}
	for _, r := range routes {
		switch {
		case r.PoP < 0 || r.PoP >= pops:
			return nil, fmt.Errorf("anycast: route of %s to PoP %d: there are %d, from 0", r.Prefix,
				r.PoP, pops)
		case !r.Prefix.IsValid() || r.At < 0 || r.Prefix.Bits() > routedBits(r.Prefix.Addr()):
			return nil,
				fmt.Errorf("anycast: route of %s at %v: want a prefix of at most /%d (IPv4) or /%d (IPv6)", r.Prefix, r.At, routedV4, routedV6)
		}
	}
	a := &Affinity{pops: pops, routes: slices.Clone(routes)}
	slices.SortStableFunc(a.routes, func(x, y Route) int {
		return cmp.Or(cmp.Compare(y.Prefix.Bits(), x.Prefix.Bits()), cmp.Compare(y.At, x.At))
	})
	return a, nil
}

// PoP is where an address is routed at a time.
func (a *Affinity) PoP(addr netip.Addr, at time.Duration) int {
	if a.pops == 1 {
		return 0
	}
	addr = addr.Unmap().WithZone("")
	for _, r := range a.routes {
		if r.At <= at && r.Prefix.Contains(addr) {
			return r.PoP
		}
	}
	p, err := addr.Prefix(routedBits(addr))
	if err != nil {
		return 0
	}
	b := p.Addr().As16()
	return int(xxhash.Sum64(b[:]) % uint64(a.pops))
}

func routedBits(a netip.Addr) int {
	if a.Is4() {
		return routedV4
	}
	return routedV6
}

// ParseRoute reads a change of routes such as "20s 198.51.100.0/24 1": when, what, and to which
// PoP.
func ParseRoute(s string) (Route, error) {
	words := strings.Fields(s)
	if len(words) != 3 {
		return Route{},
			fmt.Errorf(`anycast: route %q: want a time, a prefix and a PoP, as in "20s 198.51.100.0/24 1"`, s)
	}
	at, err := time.ParseDuration(words[0])
	if err != nil || at < 0 {
		return Route{},
			fmt.Errorf("anycast: route %q: %s is no time after the start: want one such as 20s", s,
				words[0])
	}
	prefix, err := netip.ParsePrefix(words[1])
	if err != nil {
		return Route{},
			fmt.Errorf("anycast: route %q: %s is no prefix: want one such as 198.51.100.0/24", s,
				words[1])
	}
	n, err := strconv.Atoi(words[2])
	if err != nil || n < 0 {
		return Route{}, fmt.Errorf("anycast: route %q: %s is no PoP: want its number, from 0", s,
			words[2])
	}
	return Route{at, prefix.Masked(), n}, nil
}
