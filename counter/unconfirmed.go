package counter

import (
	"iter"
	"math/bits"
)

// work is what of a counter is on its way: hits that the tier has not been told of, hits that it is being told of, and
// open reservations. A counter has one only while there is any of these, so a table pays for it only where something
// happens. Its groups are those of the counter, the newest first.
type work struct {
	rule   *Rule
	source Source
	slot   int32
	queued bool // in shard.dirty
	urgent bool // to be reported at once; else it may wait until its group ends
	aged   bool // groups but the first may be in use; a work is made and ended without them, which are in other lines of a processor's cache
	held   uint32
	hits   uint32 // pending and flying, all lanes
	phase  uint16 // the counter's,
	base   uint16 // and the end of its base: until that changes nothing of a work that is not aged has ended
	groups [maxGroups]lag
}

// lag is what of a group the tier has not confirmed: lanes of hits that it has not been told of, and of those that it is being told of.
type lag struct {
	pending, flying uint64
}

// flies reports whether any hits are on their way.
func (k *work) flies() bool {
	if !k.aged {
		return k.groups[0].flying != 0
	}
	for _, g := range k.groups {
		if g.flying != 0 {
			return true
		}
	}
	return false
}

// waits reports whether any hits of groups from the given one on are pending.
func (k *work) waits(from int) bool {
	if !k.aged {
		return from == 0 && k.groups[0].pending != 0
	}
	for _, g := range k.groups[from:] {
		if g.pending != 0 {
			return true
		}
	}
	return false
}

// clear leaves of a work only what says that it is queued.
func (k *work) clear() {
	if !k.aged {
		k.groups[0] = lag{}
	} else {
		k.groups = [maxGroups]lag{}
	}
	k.rule, k.source, k.urgent, k.aged, k.held, k.hits = nil, Source{}, false, false, 0, 0
}

// works are kept in blocks, which stay where they are when more are needed.
type works struct {
	blocks []*worksBlock
	n      int // how many there are
}

type worksBlock struct {
	resting uint32 // a bit for each work that is in use, not queued, and not given out by Dirty to be taken
	works   [blockWorks]work
}

const (
	blockWorks = 32
	maxWorks   = 1<<15 - 1 // of a shard: their number has 16 bits
)

func (ws *works) at(w uint16) *work { return &ws.blocks[w/blockWorks].works[w%blockWorks] }

func (ws *works) resting(w uint16) bool {
	return ws.blocks[w/blockWorks].resting>>(w%blockWorks)&1 != 0
}

func (ws *works) setResting(w uint16, is bool) {
	b := ws.blocks[w/blockWorks]
	b.resting &^= 1 << (w % blockWorks)
	if is {
		b.resting |= 1 << (w % blockWorks)
	}
}

// allResting ranges over the works that rest; they may stop to.
func (ws *works) allResting() iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		for i, b := range ws.blocks {
			for some := b.resting; some != 0; some &= some - 1 {
				if !yield(uint16(i*blockWorks + bits.TrailingZeros32(some))) {
					return
				}
			}
		}
	}
}

func (ws *works) add() (w uint16) {
	if ws.n/blockWorks == len(ws.blocks) {
		ws.blocks = append(ws.blocks, new(worksBlock))
	}
	ws.n++
	return uint16(ws.n - 1)
}

// workPlace is the number of a shard and the index of a work in it, which is not 0.
type workPlace uint32

// workOf gives the counter at i its work. For hits there are so many at most, and then it is 0; a reservation always has one: there are
// no more of those than requests under way.
func (s *shard) workOf(r *Rule, st *store, i int, reserve bool) uint16 {
	h := st.head(i)
	if h.work != 0 {
		return h.work
	}
	var w uint16
	switch {
	case len(s.free) > 0:
		w = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
	case s.works.n <= s.maxWorks || reserve && s.works.n < maxWorks:
		w = s.works.add()
	default:
		return 0
	}
	k := s.works.at(w) // zero, as it was made or released
	k.rule, k.source, k.slot = r, h.source(), int32(i)
	k.phase, k.base = h.phase, uint16(h.base)
	s.works.setResting(w, true)
	if s.laden.Load()&s.bit == 0 { // else nobody writes to what all shards share
		s.laden.Or(s.bit)
	}
	h.work = w
	return w
}

// release gives up a work whose counter has gone or goes away. Hits still in it are lost.
func (s *shard) release(w uint16, lost *uint64) {
	k := s.works.at(w)
	*lost += uint64(k.hits)
	s.stats.Unreported -= uint64(k.hits)
	s.holds -= k.held
	k.clear()
	s.works.setResting(w, false)
	if !k.queued { // a queued one is freed when it leaves the queue
		s.free = append(s.free, w)
	}
}

// rest releases a work in which nothing is left.
func (s *shard) rest(w uint16) {
	if k := s.works.at(w); k.hits == 0 && k.held == 0 {
		s.store(k.rule).head(int(k.slot)).work = 0
		var none uint64
		s.release(w, &none)
	}
}

// age makes the groups of a work older by n; hits that fall off its end are lost.
func (s *shard) age(k *work, r *Rule, n int) {
	groups := r.groups()
	for i := max(groups-n, 0); i < groups; i++ {
		lost := r.sum(k.groups[i].pending) + r.sum(k.groups[i].flying)
		k.hits -= uint32(lost)
		s.stats.Unreported -= lost
		s.stats.LostExpired += r.sum(k.groups[i].pending)
		s.stats.LostUnknown += r.sum(k.groups[i].flying) // whatever their answer is, it comes too late
	}
	shift(k.groups[:groups], min(n, groups))
	k.aged = true
}

// count adds hits to the counter at i and, with a tier, to what it must be told.
func (s *shard) count(t *Table, r *Rule, st *store, i int, at position, hits uint32, estimate float64, now int64) {
	groups := st.groups(i)
	groups[0] = r.add(groups[0], at.lane, uint64(hits))
	s.note(r, st, i, at, hits, estimate)
	if !t.options.Tier {
		return
	}
	if r.lane(groups[0], at.lane) > r.reportMax() {
		s.stats.LostSaturated += uint64(hits)
		return
	}
	w := s.workOf(r, st, i, false)
	if w == 0 {
		s.stats.LostBacklog += uint64(hits)
		return
	}
	k := s.works.at(w)
	k.rule = r
	k.groups[0].pending = r.add(k.groups[0].pending, at.lane, uint64(hits))
	k.hits += hits
	s.stats.Unreported += uint64(hits)
	k.urgent = k.urgent || s.fewWorks() || t.urgent(r, st.head(i), k.hits, estimate, now)
	if k.urgent && !k.flies() {
		s.queue(w) // else it is the next report, when the one under way is answered
	}
}

// fewWorks reports whether so few works are left that hits should not wait in one: strangers of whom nobody will hear again would
// keep them from others until their groups end.
func (s *shard) fewWorks() bool { return 4*(s.works.n-len(s.free)) > 3*s.maxWorks }

func (s *shard) queue(w uint16) {
	if s.works.resting(w) {
		s.works.setResting(w, false)
		s.works.at(w).queued = true
		s.dirty = append(s.dirty, w)
		if len(s.dirty) == 1 {
			s.stirred.Or(s.bit)
			s.wakes = true
		}
	}
}

func (s *shard) hold(t *Table, a *Ask, l *lookup) bool {
	w := s.workOf(a.Rule, l.store, l.i, true)
	if w == 0 {
		return false
	}
	s.works.at(w).held += a.Hits
	s.holds += a.Hits
	return true
}

// held is how many hits of a counter are in open reservations. Mostly there are none in the shard, and a work would have to be
// waited for.
func (s *shard) held(h *head) uint32 {
	if s.holds == 0 || h.work == 0 {
		return 0
	}
	return s.works.at(h.work).held
}

func (s *shard) unhold(st *store, i int, hits uint32) {
	w := st.head(i).work
	if w == 0 {
		return
	}
	k := s.works.at(w)
	hits = min(hits, k.held)
	k.held -= hits
	s.holds -= hits
	s.rest(w)
}
