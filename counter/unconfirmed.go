package counter

import (
	"sluice/counter/algorithm"
	"sluice/counter/internal/unconfirmed"
)

// unconfirmedOf gives the counter at i its entry; 0 if there can be none.
func (s *shard) unconfirmedOf(r *algorithm.Spec, st *store, i int, reserve bool) uint16 {
	h := st.head(i)
	if h.unconfirmed != 0 {
		return h.unconfirmed
	}
	h.unconfirmed = s.unconfirmed.Begin(r, i, reserve)
	// Otherwise the line that all shards share is not written
	if h.unconfirmed != 0 && s.activeShards.Load()&s.bit == 0 {
		s.activeShards.Or(s.bit)
	}
	return h.unconfirmed
}

// releaseEmpty releases an entry in which nothing is left.
func (s *shard) releaseEmpty(w uint16) {
	if k := s.unconfirmed.At(w); k.IsEmpty() {
		s.store(k.Rule).head(int(k.Slot)).unconfirmed = 0
		s.unconfirmed.Release(w)
	}
}

// source is the source of the counter that an entry belongs to.
func (s *shard) source(k *unconfirmed.Entry) Source {
	return s.store(k.Rule).head(int(k.Slot)).source()
}

// count adds hits to the counter at i and, with a tier, to its unreported hits.
func (s *shard) count(t *core, r *algorithm.Spec, st *store, i int, at algorithm.Position,
	hits uint32, estimate float64, now int64) {
	groups := st.groups(i)
	switch r.Remembers() {
	case algorithm.Level:
		r.Pour(groups, at, hits)
	case algorithm.Instants:
		s.log(r, st, i, at, hits, estimate)
	case algorithm.Bins:
		s.note(r, st, i, at, hits, estimate)
	}
	groups[0] = r.Packing().Add(groups[0], at.Lane, uint64(hits))
	if !t.options.Tier {
		return
	}
	if r.Packing().Lane(groups[0], at.Lane) > r.Packing().ReportMax() {
		s.stats.LostSaturated += uint64(hits)
		return
	}
	w := s.unconfirmedOf(r, st, i, false)
	if w == 0 {
		s.stats.LostBacklog += uint64(hits)
		return
	}
	k := s.unconfirmed.At(w)
	if !s.unconfirmed.Count(k, r, at.Lane, hits) {
		s.stats.LostBacklog += uint64(hits)
		return
	}
	k.Urgent = k.Urgent || s.unconfirmed.Few() || t.urgent(r, st.head(i), k.Hits, estimate, now)
	if k.Urgent && !s.unconfirmed.HasInFlight(k) {
		s.queue(w) // otherwise it is the next report, when the one under way is answered
	}
}

func (s *shard) queue(w uint16) {
	if k := s.unconfirmed.At(w); k.Idle {
		k.Idle, k.Queued = false, true
		s.dirty = append(s.dirty, w)
		if len(s.dirty) == 1 {
			s.dirtyShards.Or(s.bit)
			s.wakes = true
		}
	}
}

func (s *shard) hold(a *Reservation, l *lookup) bool {
	if !s.unconfirmed.CanHold(a.Hits) {
		return false
	}
	w := s.unconfirmedOf(a.Rule, l.store, l.i, true)
	if w == 0 {
		return false
	}
	s.unconfirmed.Hold(s.unconfirmed.At(w), a.Hits)
	return true
}

func (s *shard) unhold(st *store, i int, hits uint32) {
	if w := st.head(i).unconfirmed; w != 0 {
		s.unconfirmed.Unhold(s.unconfirmed.At(w), hits)
		s.releaseEmpty(w)
	}
}
