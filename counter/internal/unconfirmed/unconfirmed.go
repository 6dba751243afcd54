// Package unconfirmed keeps what the tier has not confirmed of counters: hits that wait to be
// reported, hits that are being reported, and open reservations.
//
// A counter has an Entry only while there is any of these, so a table pays for it only where
// something happens. Most entries are made and ended within one group. A Set has those of a shard,
// each under an index that the counter knows. All hits go in by Count and out by Answer or as lost,
// so that Hits of a Set is what all its entries have, and of an Entry what its groups have. The
// table knows which counter has which index, and when to report.
package unconfirmed

import (
	"math"

	"sluice/counter/algorithm"
	"sluice/counter/internal/lanes"
	"sluice/counter/internal/records"
)

// An Entry is that of one counter. Its groups are those of the counter.
type Entry struct {
	Rule *algorithm.Spec // nil: released
	Slot int32           // the counter's index in its store
	held uint32
	Hits uint32 // pending and in flight, all lanes
	// 0: no group but the newest is in use; else where the others are, in Set.narrow or Set.wide
	older  uint16
	Idle   bool // in use, not queued, and not given out to be reported
	Queued bool // waits to be given out
	Urgent bool // to be reported at once
	newest Group
}

// Group is what of a group the tier has not confirmed: lanes of hits that wait to be reported, and
// of those that are being reported.
type Group struct {
	Pending, InFlight uint64
}

const (
	share = 6         // counters for each entry
	most  = 1<<15 - 1 // of a shard: their number has 16 bits
)

// Set is the entries of a shard.
type Set struct {
	holds   uint32 // hits in open reservations, of all entries
	most    int32  // entries for hits
	Hits    uint64 // pending and in flight, of all entries
	entries records.Slab[Entry]
	// Groups but the newest, of entries that have had others
	narrow records.Slab[[lanes.NarrowGroups - 1]Group]
	wide   records.Slab[[lanes.MaxGroups - 1]Group]
}

// NewSet makes a Set for so many counters.
func NewSet(counters int) Set { return Set{most: int32(min(max(counters/share, 128), most/2))} }

// Len is one more than the largest index, InUse how many entries there are, and Cap how many there
// may be for hits.
func (s *Set) Len() int   { return s.entries.Len() }
func (s *Set) InUse() int { return s.entries.InUse() }
func (s *Set) Cap() int   { return int(s.most) }

// Bytes is what they take.
func (s *Set) Bytes() int { return s.entries.Bytes() + s.narrow.Bytes() + s.wide.Bytes() }

// Few reports whether so few entries are left that hits should not wait in one: sources that never
// come again would keep the entries from others until their groups end.
func (s *Set) Few() bool { return 4*(s.entries.InUse()+1) > 3*int(s.most) }

// Full reports whether there is no entry left for hits.
func (s *Set) Full() bool { return s.entries.Free() == 0 && s.entries.Len() > int(s.most) }

// At is the entry under an index.
func (s *Set) At(w uint16) *Entry { return s.entries.At(int(w)) }

// Begin makes an entry. For hits there are so many at most, and then it is 0; for a reservation
// there always is one: there are no more of those than requests under way.
func (s *Set) Begin(r *algorithm.Spec, slot int, reserve bool) (w uint16) {
	if s.Full() && !(reserve && s.entries.Len() < most) {
		return 0
	}
	w = s.entries.Take() // zero, as it was made or released
	k := s.At(w)
	k.Rule, k.Slot, k.Idle = r, int32(slot), true
	return w
}

// Release gives up the entry of which the counter has gone or goes away. It returns how many hits
// were still in it, which are lost.
func (s *Set) Release(w uint16) (lost uint64) {
	k := s.At(w)
	lost = uint64(k.Hits)
	s.Hits -= lost
	s.holds -= k.held
	s.endOlder(k)
	*k = Entry{Queued: k.Queued}
	if !k.Queued { // a queued one is given back when it leaves the queue
		s.entries.Give(w)
	}
	return lost
}

// Leave takes an entry out of the queue. It is nil if it was released while it waited.
func (s *Set) Leave(w uint16) *Entry {
	k := s.At(w)
	if k.Queued = false; k.Rule == nil {
		s.entries.Give(w)
		return nil
	}
	return k
}

// IsEmpty reports whether nothing is left in an entry.
func (k *Entry) IsEmpty() bool { return k.Hits == 0 && k.held == 0 }

// older is the groups of an entry but the newest, those that follow it first; none if they are not
// in use.
func (s *Set) older(k *Entry) []Group {
	switch {
	case k.older == 0:
		return nil
	case k.Rule.Wide():
		return s.wide.At(int(k.older))[:]
	}
	return s.narrow.At(int(k.older))[:]
}

// needOlder is older, and has them in use.
func (s *Set) needOlder(k *Entry) []Group {
	if k.older == 0 {
		if k.Rule.Wide() {
			k.older = s.wide.Take()
		} else {
			k.older = s.narrow.Take()
		}
	}
	return s.older(k)
}

// endOlder gives up the groups but the newest of an entry that is released.
func (s *Set) endOlder(k *Entry) {
	if k.older == 0 {
		return
	}
	clear(s.older(k))
	if k.Rule.Wide() {
		s.wide.Give(k.older)
	} else {
		s.narrow.Give(k.older)
	}
}

// group is a group of an entry, or nil if it is not in use.
func (s *Set) group(k *Entry, g int) *Group {
	if g == 0 {
		return &k.newest
	}
	if older := s.older(k); g <= len(older) {
		return &older[g-1]
	}
	return nil
}

// In is what a group of an entry has.
func (s *Set) In(k *Entry, g int) (u Group) {
	if at := s.group(k, g); at != nil {
		u = *at
	}
	return u
}

// HasInFlight reports whether any hits are on their way.
func (s *Set) HasInFlight(k *Entry) bool {
	some := k.newest.InFlight
	for _, u := range s.older(k) {
		some |= u.InFlight
	}
	return some != 0
}

// HasPending reports whether any hits are pending.
func (s *Set) HasPending(k *Entry) bool {
	some := k.newest.Pending
	for _, u := range s.older(k) {
		some |= u.Pending
	}
	return some != 0
}

// Count adds hits to a lane of the newest group, under a rule, unless there are too many: costly
// ones, that have not been reported for long.
func (s *Set) Count(k *Entry, r *algorithm.Spec, lane int, hits uint32) bool {
	if k.Hits > math.MaxUint32-hits {
		return false
	}
	k.Rule = r
	k.newest.Pending = r.Packing().Add(k.newest.Pending, lane, uint64(hits))
	k.Hits += hits
	s.Hits += uint64(hits)
	return true
}

// drop takes hits out that are in no group any more.
func (s *Set) drop(k *Entry, n uint64) {
	k.Hits -= uint32(n)
	s.Hits -= n
}

// Send puts on their way what may be reported at once of the pending hits of a group, of which
// known is counted in all. In a lane that the tier has full, hits are given up: counted there, they
// would carry into the next.
func (s *Set) Send(k *Entry, g int, known uint64) (hits, saturated uint64) {
	at, l := s.group(k, g), k.Rule.Packing()
	room := l.Minus(l.All(l.ReportMax()), l.Minus(known, at.Pending))
	if full := l.Minus(at.Pending, room); full != 0 {
		saturated = l.Sum(full)
		at.Pending = l.Minus(at.Pending, full)
		s.drop(k, saturated)
	}
	hits = l.AtMost(at.Pending, l.ReportMax()/lanes.MaxEdges)
	at.Pending = l.Minus(at.Pending, hits)
	at.InFlight = hits
	return hits, saturated
}

// Answer ends the flight of hits of a group, and reports whether it was these that were in flight.
func (s *Set) Answer(k *Entry, g int, hits uint64) bool {
	u := s.group(k, g)
	if u == nil || u.InFlight != hits {
		return false
	}
	u.InFlight = 0
	s.drop(k, k.Rule.Packing().Sum(hits))
	return true
}

// Return takes back hits of a group that were answered and certainly did not reach the tier: they
// are pending again.
func (s *Set) Return(k *Entry, g int, hits uint64) {
	u, n := s.group(k, g), k.Rule.Packing().Sum(hits)
	u.Pending = k.Rule.Packing().Plus(u.Pending, hits)
	k.Hits += uint32(n)
	s.Hits += n
}

// Age makes the groups of an entry older by n. It returns how many hits fall off its end: pending
// ones, and such as were in flight, for which any answer comes too late.
func (s *Set) Age(k *Entry, n int) (pending, inFlight uint64) {
	r := k.Rule
	groups := r.Groups()
	for i := max(groups-n, 0); i < groups; i++ {
		u := s.In(k, i)
		pending += r.Packing().Sum(u.Pending)
		inFlight += r.Packing().Sum(u.InFlight)
	}
	s.drop(k, pending+inFlight)
	older := s.needOlder(k)[:groups-1]
	if n < groups {
		lanes.Older(older, n)
		older[n-1] = k.newest
	} else {
		clear(older)
	}
	k.newest = Group{}
	return pending, inFlight
}

// Shift moves pending hits by so many lanes. It returns how many are lost. Nothing may be in
// flight.
func (s *Set) Shift(k *Entry, by int64) (lost uint64) {
	s.needOlder(k)
	lost = k.Rule.Packing().Shift(k.Rule.Groups(), by, func(g int) *uint64 {
		return &s.group(k, g).Pending
	})
	s.drop(k, lost)
	return lost
}

// CanHold reports whether so many more hits can be reserved.
func (s *Set) CanHold(hits uint32) bool { return s.holds <= math.MaxUint32-hits }

// Hold reserves hits.
func (s *Set) Hold(k *Entry, hits uint32) {
	k.held += hits
	s.holds += hits
}

// Unhold ends a reservation of hits.
func (s *Set) Unhold(k *Entry, hits uint32) {
	hits = min(hits, k.held)
	k.held -= hits
	s.holds -= hits
}

// Held is how many hits of the entry under an index, if it is not 0, are reserved. Mostly there are
// none in the shard, and an entry would have to be waited for.
func (s *Set) Held(w uint16) uint32 {
	if s.holds == 0 || w == 0 {
		return 0
	}
	return s.At(w).held
}
