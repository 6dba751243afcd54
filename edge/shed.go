package edge

import (
	"net/netip"
	"time"

	"sluice/edge/address"
	"sluice/mitigation"
)

// shed reports whether a new connection is to be closed unanswered, because whatever it asks would be refused. That is known
// (with shed: connection) of a peer that is no trusted proxy, while it is mitigated under a rule about all requests that counts
// by source. It costs a source that goes on knocking the least possible, and its client an answer that says why.
func (s *Server) shed(peer netip.Addr) bool {
	snap := s.snap.Load()
	if len(snap.sheds) == 0 || address.IsIn(snap.sources.Trust, peer) || address.IsIn(snap.allow, peer) {
		return false
	}
	source, covering, now := snap.sources.Of(peer), s.limiter.Bits.Covering(address.Single(peer), nil), time.Now()
	if s.limiter.Bits.Says(mitigation.Allowed, covering, now) {
		return false
	}
	for _, r := range snap.sheds {
		for i := range r.Limits {
			l := &r.Limits[i]
			if src, counts := l.Of(source, peer); counts && !s.limiter.Bits.UntilOf(mitigation.Key{Rule: l.Counter.ID, Source: src}, covering, now).IsZero() {
				s.open.Stats.Shed.Add(1)
				return true
			}
		}
	}
	return false
}
