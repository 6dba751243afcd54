package counter

import (
	"math"

	"sluice/counter/algorithm"
	"sluice/counter/internal/lanes"
)

// unconfirmed is an entry of what is on its way of a counter: hits that the tier has not been told of, hits that it is being told of, and
// open reservations. A counter has one only while there is any of these, so a table pays for it only where something
// happens. Its groups are those of the counter. Most entries are made and ended within one.
type unconfirmed struct {
	rule   *algorithm.Rule // nil: released
	slot   int32           // the counter's index in its store
	held   uint32
	hits   uint32 // pending and in flight, all lanes
	older  uint16 // 0: no group but the newest is in use; else where the others are, in shard.olderNarrow or olderWide
	phase  uint16 // the counter's,
	base   uint16 // and the end of its base: until that changes nothing of an entry without older groups has ended
	idle   bool   // in use, not queued, and not given out by Dirty to be taken
	queued bool   // in shard.dirty
	urgent bool   // to be reported at once; else it may wait until its group ends
	newest unconfirmedGroup
}

const (
	unconfirmedShare = 6         // counters for each entry
	maxUnconfirmed   = 1<<15 - 1 // of a shard: their number has 16 bits
)

// unconfirmedGroup is what of a group the tier has not confirmed: lanes of hits that it has not been told of, and of those that it is being told of.
type unconfirmedGroup struct {
	pending, inFlight uint64
}

// older is the groups of an entry but the newest, those that follow it first; none if they are not in use.
func (s *shard) older(k *unconfirmed) []unconfirmedGroup {
	switch {
	case k.older == 0:
		return nil
	case k.rule.Wide():
		return s.olderWide.At(int(k.older))[:]
	}
	return s.olderNarrow.At(int(k.older))[:]
}

// needOlder is older, and has them in use.
func (s *shard) needOlder(k *unconfirmed) []unconfirmedGroup {
	if k.older == 0 {
		if k.rule.Wide() {
			k.older = s.olderWide.Take()
		} else {
			k.older = s.olderNarrow.Take()
		}
	}
	return s.older(k)
}

// endOlder gives up the groups but the newest of an entry that is released.
func (s *shard) endOlder(k *unconfirmed) {
	if k.older == 0 {
		return
	}
	clear(s.older(k))
	if k.rule.Wide() {
		s.olderWide.Give(k.older)
	} else {
		s.olderNarrow.Give(k.older)
	}
}

// group is a group of an entry, or nil if it is not in use.
func (s *shard) group(k *unconfirmed, g int) *unconfirmedGroup {
	if g == 0 {
		return &k.newest
	}
	if older := s.older(k); g <= len(older) {
		return &older[g-1]
	}
	return nil
}

// in is what a group of an entry has.
func (s *shard) in(k *unconfirmed, g int) (u unconfirmedGroup) {
	if at := s.group(k, g); at != nil {
		u = *at
	}
	return u
}

// hasInFlight reports whether any hits are on their way.
func (s *shard) hasInFlight(k *unconfirmed) bool {
	some := k.newest.inFlight
	for _, u := range s.older(k) {
		some |= u.inFlight
	}
	return some != 0
}

// hasOlderPending reports whether any hits of groups but the newest are pending.
func (s *shard) hasOlderPending(k *unconfirmed) bool {
	var some uint64
	for _, u := range s.older(k) {
		some |= u.pending
	}
	return some != 0
}

// source is whose counter an entry belongs to.
func (s *shard) source(k *unconfirmed) Source {
	return s.store(k.rule).head(int(k.slot)).source()
}

// unconfirmedOf gives the counter at i its entry. For hits there are so many at most, and then it is 0; a reservation always has one: there are
// no more of those than requests under way.
func (s *shard) unconfirmedOf(r *algorithm.Rule, st *store, i int, reserve bool) uint16 {
	h := st.head(i)
	if h.unconfirmed != 0 {
		return h.unconfirmed
	}
	switch {
	case s.unconfirmed.Free() > 0:
	case s.unconfirmed.Len() <= s.maxUnconfirmed || reserve && s.unconfirmed.Len() < maxUnconfirmed:
	default:
		return 0
	}
	w := s.unconfirmed.Take() // zero, as it was made or released
	k := s.unconfirmed.At(int(w))
	k.rule, k.slot = r, int32(i)
	k.phase, k.base, k.idle = h.phase, uint16(h.base), true
	if s.activeShards.Load()&s.bit == 0 { // else nobody writes to what all shards share
		s.activeShards.Or(s.bit)
	}
	h.unconfirmed = w
	return w
}

// release gives up the entry of which the counter has gone or goes away. It returns how many hits were still in it, which are lost.
func (s *shard) release(w uint16) (lost uint64) {
	k := s.unconfirmed.At(int(w))
	lost = uint64(k.hits)
	s.stats.Unreported -= lost
	s.holds -= k.held
	s.endOlder(k)
	*k = unconfirmed{queued: k.queued}
	if !k.queued { // a queued one is given back when it leaves the queue
		s.unconfirmed.Give(w)
	}
	return lost
}

// releaseEmpty releases an entry in which nothing is left.
func (s *shard) releaseEmpty(w uint16) {
	if k := s.unconfirmed.At(int(w)); k.hits == 0 && k.held == 0 {
		s.store(k.rule).head(int(k.slot)).unconfirmed = 0
		s.release(w)
	}
}

// age makes the groups of an entry older by n; hits that fall off its end are lost.
func (s *shard) age(k *unconfirmed, r *algorithm.Rule, n int) {
	groups := r.Groups()
	for i := max(groups-n, 0); i < groups; i++ {
		u := s.in(k, i)
		lost := r.Lanes().Sum(u.pending) + r.Lanes().Sum(u.inFlight)
		k.hits -= uint32(lost)
		s.stats.Unreported -= lost
		s.stats.LostExpired += r.Lanes().Sum(u.pending)
		s.stats.LostUnknown += r.Lanes().Sum(u.inFlight) // whatever their answer is, it comes too late
	}
	older := s.needOlder(k)[:groups-1]
	if n < groups {
		lanes.Older(older, n)
		older[n-1] = k.newest
	} else {
		clear(older)
	}
	k.newest = unconfirmedGroup{}
}

// count adds hits to the counter at i and, with a tier, to what it must be told.
func (s *shard) count(t *Table, r *algorithm.Rule, st *store, i int, at algorithm.Position, hits uint32, estimate float64, now int64) {
	groups := st.groups(i)
	switch r.Remembers() {
	case algorithm.Level:
		r.Pour(groups, at, hits)
	case algorithm.Instants:
		s.log(r, st, i, at, hits, estimate)
	case algorithm.Bins:
		if !r.Sync || !t.options.Tier { // else it is noted when it has its rank
			s.note(r, st, i, at, hits, estimate)
		}
	}
	groups[0] = r.Lanes().Add(groups[0], at.Lane, uint64(hits))
	if !t.options.Tier {
		return
	}
	if r.Lanes().Lane(groups[0], at.Lane) > r.Lanes().ReportMax() {
		s.stats.LostSaturated += uint64(hits)
		return
	}
	w := s.unconfirmedOf(r, st, i, false)
	if w == 0 {
		s.stats.LostBacklog += uint64(hits)
		return
	}
	k := s.unconfirmed.At(int(w))
	if k.hits > math.MaxUint32-hits { // costly ones, of which the tier has not been told for long
		s.stats.LostBacklog += uint64(hits)
		return
	}
	k.rule = r
	k.newest.pending = r.Lanes().Add(k.newest.pending, at.Lane, uint64(hits))
	k.hits += hits
	s.stats.Unreported += uint64(hits)
	k.urgent = k.urgent || s.fewLeft() || t.urgent(r, st.head(i), k.hits, estimate, now)
	if k.urgent && !s.hasInFlight(k) {
		s.queue(w) // else it is the next report, when the one under way is answered
	}
}

// fewLeft reports whether so few entries are left that hits should not wait in one: strangers of whom nobody will hear again would
// keep them from others until their groups end.
func (s *shard) fewLeft() bool { return 4*(s.unconfirmed.InUse()+1) > 3*s.maxUnconfirmed }

func (s *shard) queue(w uint16) {
	if k := s.unconfirmed.At(int(w)); k.idle {
		k.idle, k.queued = false, true
		s.dirty = append(s.dirty, w)
		if len(s.dirty) == 1 {
			s.dirtyShards.Or(s.bit)
			s.wakes = true
		}
	}
}

func (s *shard) hold(a *Ask, l *lookup) bool {
	if s.holds > math.MaxUint32-a.Hits {
		return false
	}
	w := s.unconfirmedOf(a.Rule, l.store, l.i, true)
	if w == 0 {
		return false
	}
	s.unconfirmed.At(int(w)).held += a.Hits
	s.holds += a.Hits
	return true
}

// held is how many hits of a counter are in open reservations. Mostly there are none in the shard, and an entry would have to be
// waited for.
func (s *shard) held(h *head) uint32 {
	if s.holds == 0 || h.unconfirmed == 0 {
		return 0
	}
	return s.unconfirmed.At(int(h.unconfirmed)).held
}

func (s *shard) unhold(st *store, i int, hits uint32) {
	w := st.head(i).unconfirmed
	if w == 0 {
		return
	}
	k := s.unconfirmed.At(int(w))
	hits = min(hits, k.held)
	k.held -= hits
	s.holds -= hits
	s.releaseEmpty(w)
}
