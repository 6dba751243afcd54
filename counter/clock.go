package counter

import (
	"time"

	"sluice/counter/algorithm"
)

// A table has its own clock: it starts with the wall clock's reading when the table is made, and
// goes on by the monotonic clock. An offset leads from it to the wall clock, by which edges agree
// on sub-windows. When the wall clock steps, the owner of the table calls Adjust: the offset
// changes, and what the table holds moves along by as many whole sub-windows, so that it keeps its
// age to within half of one. An hour forwards then forgets nothing, and an hour back does not make
// a source wait for it.
//
// The tier keeps what was reported under the old time. After a step of less than a window both old
// and new numbers are in the window, and would be added up; after a longer one each table would
// tell others of the same hits, moved by other steps. So a table with a tier keeps only what it has
// not reported, and reads the rest anew with the source's next request.

// ns is an instant on the table's clock.
func (t *core) ns(now time.Time) int64 {
	if t.options.Began.IsZero() {
		return now.UnixNano()
	}
	return t.began + int64(now.Sub(t.options.Began))
}

// position is where an instant of the table's clock lies in a source's sub-windows.
func (s *shard) position(r *algorithm.Spec, ns int64, phase uint16) algorithm.Position {
	return r.Position(ns+s.offset, phase)
}

// Wall is the wall clock's reading at now, by the last Adjust.
func (t *core) Wall(now time.Time) time.Time { return time.Unix(0, t.ns(now)+t.offset.Load()) }

// stepsFrom is how far the wall clock and the table's drift apart before it counts as a step. The
// clocks of two edges may differ by more.
const stepsFrom = 200 * time.Millisecond

// Stepped is how far the wall clock has stepped since Adjust was last called; 0 if not.
func (t *core) Stepped(now time.Time) time.Duration {
	if t.options.Began.IsZero() {
		return 0
	}
	if d := now.Round(0).Sub(t.Wall(now)); d.Abs() >= stepsFrom {
		return d
	}
	return 0
}

// Adjust takes in that the wall clock has stepped. Nothing may be under way to the tier, which
// would count it under the old time. tier reports whether the tier can be read.
func (t *core) Adjust(step time.Duration, tier bool, now time.Time) {
	ns := t.ns(now)
	t.offset.Add(int64(step))
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, st := range []*store{&s.narrow, &s.wide} {
			for i := range st.All() {
				if r := t.rule(st.head(i).rule); r != nil {
					s.shiftBy(st, i, r, ns, int64(step))
					if tier {
						s.unlearn(st, i, r)
					}
				}
			}
		}
		s.offset += int64(step)
		s.otherPoPs.Clear()
		s.mu.Unlock()
	}
}

// shiftBy moves the lanes of a counter by a step of the clock. It forgets when within their
// sub-windows hits came.
func (s *shard) shiftBy(st *store, i int, r *algorithm.Spec, ns, step int64) {
	h, groups := st.record(i)
	from := s.advance(st, i, r, ns)
	sub := int64(r.SubWindow())
	by := (step + sub/2) / sub
	if step < 0 {
		by = (step - sub/2) / sub
	}
	to := r.Position(ns+s.offset+step, h.phase)
	base := to.Group
	by -= int64(int32(base-h.base)) << r.Packing() // further than the groups move by themselves
	pending := uint32(0)
	if h.unconfirmed != 0 {
		pending = s.unconfirmed.At(h.unconfirmed).Hits
	}
	by = r.Step(groups, from, to, by, uint64(pending))
	h.base = base
	h.turn(0, r.Groups())
	if h.unconfirmed != 0 {
		s.stats.LostExpired += s.unconfirmed.Shift(s.unconfirmed.At(h.unconfirmed), by)
	}
	if h.state&hasHistogram != 0 {
		h.state &^= hasHistogram
		s.histograms.Unlink(i, st == &s.wide)
	}
}

// unlearn leaves of a counter only the hits that have not been reported, as if the tier had never
// answered about it.
func (s *shard) unlearn(st *store, i int, r *algorithm.Spec) {
	h, groups := st.record(i)
	for g := range groups[:r.Groups()] {
		groups[g] = 0
		if h.unconfirmed != 0 {
			groups[g] = s.unconfirmed.In(s.unconfirmed.At(h.unconfirmed), g).Pending
		}
	}
	h.lastReply = 0
}

// Groups gives the first and last group, modulo 2^32, that the tier may hold of a source with the
// given phase at now.
func (t Reports) Groups(r *algorithm.Spec, now time.Time, phase uint16) (oldest, newest uint32) {
	p := r.Position(t.ns(now)+t.offset.Load(), phase)
	return p.Group - uint32(r.Groups()-1), p.Group
}
