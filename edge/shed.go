package edge

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"sluice/edge/config"
	"sluice/mitigation"
)

// shedPeer is shed for a connection. Modules are told of a peer that is closed.
func (s *Server) shedPeer(peer netip.Addr) bool {
	blocked := s.shed(peer)
	if p, ok := blocked.Prefix(); ok {
		for _, tell := range s.snap.Load().closed {
			tell(p)
		}
	}
	return blocked.IsValid()
}

// nat64 holds clients of IPv4, each a separate source, whose packets come from IPv6
// (counter.Plain).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// BlockedPrefix returns until when shed is true for each address of a prefix, as far as is known
// now, or the zero Time, also without shed: kernel. It may return an earlier time than before once Loosened has changed.
func (s *Server) BlockedPrefix(p netip.Prefix, now time.Time) (until time.Time) {
	snap, bits := s.snap.Load(), s.limiter.Blocks
	if snap.config.Shed != config.Kernel || overlaps(snap.sources.Trust, p) ||
		snap.allow.Overlaps(p) || nat64.Overlaps(p) {
		return time.Time{}
	}
	covering := bits.WiderPrefixes(p, nil)
	if bits.Ordered(mitigation.Allowed, covering, now) || bits.OrderedWithin(mitigation.Allowed, p,
		now) {
		return time.Time{}
	}
	source := snap.sources.Of(p.Addr())
	for _, r := range snap.sheds {
		if end := r.BlocksPrefix(&s.limiter, p, source, covering, now); end.After(until) {
			until = end
		}
	}
	return until
}

// Loosened is another number whenever a block may have been lifted, or rules are others.
func (s *Server) Loosened() uint64 {
	return s.limiter.Blocks.Loosened() + uint64(s.snap.Load().generation)
}

// Leaving reports that the edge accepts no more connections.
func (s *Server) Leaving() bool { return s.leaving.draining.Load() }

func overlaps(t *bart.Lite, p netip.Prefix) bool { return t != nil && t.OverlapsPrefix(p) }

// Ports are those that connections of clients come in at.
func (s *Server) Ports() (list []uint16) {
	s.apply.Lock()
	defer s.apply.Unlock()
	for _, l := range s.listening.listeners {
		if addr, ok := l.Addr().(*net.TCPAddr); ok {
			list = append(list, uint16(addr.Port))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
