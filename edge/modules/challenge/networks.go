package challenge

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"
)

// mostNetworks is from how many networks a rule may let a pass be shown.
const mostNetworks = 16

// uses are the networks from which passes were shown that may be shown from a few alone. They are
// this edge's: another edge knows others. Where there is no room, what is forgotten is whichever
// pass comes first, and it may be shown from as many again.
type uses struct{ shards [useShards]useShard }

type useShard struct {
	sync.Mutex
	of map[ID]*use
}

const (
	useShards = 64
	usesMost  = 1 << 16 // in all, of about 150 bytes
)

// A use is where a pass was shown.
type use struct {
	end      time.Time
	networks [mostNetworks]uint64
	n        uint8
	over     bool
}

// within notes that a pass is shown from an address, and reports whether it may be: of a pass that
// was shown from more networks than it may, no more. A pass that may be shown from any costs
// nothing.
func (u *uses) within(p *Pass, from netip.Addr, now time.Time) bool {
	if p.Networks == 0 {
		return true
	}
	of := networkOf(from)
	network := binary.BigEndian.Uint64(of[:8])
	if from.Unmap().Is4() {
		network = binary.BigEndian.Uint64(of[8:])
	}
	s := &u.shards[p.ID[0]%useShards]
	s.Lock()
	defer s.Unlock()
	seen := s.of[p.ID]
	if seen == nil {
		if s.of == nil {
			s.of = make(map[ID]*use)
		}
		if len(s.of) >= usesMost/useShards {
			s.makeRoom(now)
		}
		seen = &use{end: p.End}
		s.of[p.ID] = seen
	}
	for _, known := range seen.networks[:seen.n] {
		if known == network {
			return !seen.over
		}
	}
	if seen.over = seen.over || int(seen.n) >= min(p.Networks, mostNetworks); seen.over {
		return false
	}
	seen.networks[seen.n] = network
	seen.n++
	return true
}

// makeRoom drops one: of a few that come first, one that has ended, or else the last of them.
func (s *useShard) makeRoom(now time.Time) {
	looked := 0
	for id, seen := range s.of {
		if looked++; looked == 8 || !now.Before(seen.end) {
			delete(s.of, id)
			return
		}
	}
}
