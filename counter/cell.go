package counter

import (
	"math"
	"slices"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/lanes"
	"sluice/counter/internal/records"
)

// lookup is where the counter of a reservation is while its shard is locked.
type lookup struct {
	hash  uint64
	s     *shard
	store *store
	i     int
	at    algorithm.Position
	first bool // this lookup locked the shard
	there bool // i is the counter's
}

// find looks for a counter.
func (l *lookup) find(r *algorithm.Spec, source *Source) {
	l.store = l.s.store(r)
	l.i, l.there = l.store.find(l.hash, r.ID, source)
}

// open locks a source's shard, and looks for a counter.
func (t *core) open(r *algorithm.Spec, source *Source) (l lookup) {
	l.hash = t.hash(source)
	l.s = t.shard(l.hash)
	l.s.mu.Lock()
	l.find(r, source)
	return l
}

// at runs f on the counter c with its shard locked, if the table still has it.
func (t *core) at(c Counter, f func(s *shard, st *store, i int)) {
	if c.position != 0 { // while it has an unconfirmed entry, no search is needed
		s := &t.shards[int(c.position>>16)%len(t.shards)]
		s.mu.Lock()
		if w := uint16(c.position); int(w) < s.unconfirmed.Len() {
			if k := s.unconfirmed.At(w); k.Rule == c.Rule && s.source(k) == c.Source {
				f(s, s.store(c.Rule), int(k.Slot))
				s.unlock(t)
				return
			}
		}
		s.mu.Unlock()
	}
	l := t.open(c.Rule, &c.Source)
	if l.there {
		f(l.s, l.store, l.i)
	}
	l.s.unlock(t)
}

// unlock unlocks a shard, and wakes the reporter if hits have begun to wait.
func (s *shard) unlock(t *core) {
	if s.grows {
		s.split(t)
	}
	wake := s.wakes
	s.wakes = false
	s.mu.Unlock()
	if wake && t.options.Wake != nil {
		t.options.Wake()
	}
}

// advance brings a counter, and what of it is on its way, to the group of now.
func (s *shard) advance(st *store, i int, r *algorithm.Spec, now int64) algorithm.Position {
	h := st.head(i)
	at, moved := st.advance(i, r, s.position(r, now, h.phase))
	if moved > 0 && h.unconfirmed != 0 {
		pending, inFlight := s.unconfirmed.Age(s.unconfirmed.At(h.unconfirmed), moved)
		s.stats.LostExpired += pending
		s.stats.LostUnknown += inFlight
	}
	return at
}

// estimate is a counter's estimate at a position.
func (s *shard) estimate(r *algorithm.Spec, st *store, i int, at algorithm.Position) float64 {
	if s.otherPoPs.Any() {
		return s.estimateOf(r, st, i, st.groups(i), at)
	}
	return r.Read(st.groups(i), s.own(st, i), at)
}

// retryAfter is how long it takes until n more hits of a counter are within the limit.
func (s *shard) retryAfter(r *algorithm.Spec, st *store, i int, at algorithm.Position,
	n float64) time.Duration {
	return s.retryAfterOf(r, st, i, st.groups(i), at, n)
}

// peek returns a counter's estimate at now, with its groups as they would be then.
func (s *shard) peek(r *algorithm.Spec, st *store, i int, now int64,
	room *[lanes.MaxGroups]uint64) (estimate float64, groups []uint64, at algorithm.Position) {
	h := st.head(i)
	groups = room[:copy(room[:], st.groups(i))]
	p := s.position(r, now, h.phase)
	at, moved := r.Move(h.base, p)
	r.Age(groups, int32(p.Group-h.base), moved)
	return s.estimateOf(r, st, i, groups, at), groups, at
}

// Peek returns what Reserve would answer to one hit, and whether the source is in the table. It
// changes nothing.
func (t *core) Peek(r *algorithm.Spec, source Source, now time.Time) (v Verdict, there bool) {
	return t.PeekFor(r, source, 1, now)
}

// Shared is the estimate at now of those hits of a source that this table is not alone to know of:
// what the tier has confirmed. Where it is unknown which they are, because too many sources have
// hits that are not confirmed, it is 0.
func (t *core) Shared(r *algorithm.Spec, source Source, now time.Time) (estimate float64) {
	t.at(Counter{Rule: r, Source: source}, func(s *shard, st *store, i int) {
		h := st.head(i)
		if h.unconfirmed == 0 && s.unconfirmed.Full() {
			return
		}
		s.advance(st, i, r, t.ns(now)) // with the hits that are not confirmed
		all, groups, at := s.peek(r, st, i, t.ns(now), new([lanes.MaxGroups]uint64))
		if estimate = all; h.unconfirmed == 0 {
			return
		}
		for g := range groups[:r.Groups()] {
			u := s.unconfirmed.In(s.unconfirmed.At(h.unconfirmed), g)
			groups[g] = r.Packing().Plus(u.Pending, u.InFlight)
		}
		estimate = max(all-r.Read(groups, s.own(st, i), at), 0)
	})
	return estimate
}

// PeekFor is Peek for so many hits.
func (t *core) PeekFor(r *algorithm.Spec, source Source, hits uint32,
	now time.Time) (v Verdict, there bool) {
	v = Verdict{Remaining: r.Limit, Fresh: !t.options.Tier}
	t.at(Counter{Rule: r, Source: source}, func(s *shard, st *store, i int) {
		h := st.head(i)
		committed, groups, at := s.peek(r, st, i, t.ns(now), new([lanes.MaxGroups]uint64))
		v, there = Verdict{Estimate: committed + float64(s.unconfirmed.Held(h.unconfirmed)),
			Fresh: t.known(h, r, t.ns(now))}, true
		v.Remaining = r.Remaining(v.Estimate)
		if v.Over = r.Over(v.Estimate + float64(hits)); v.Over {
			held := v.Estimate - committed
			committed = s.firm(r, st, i, groups, at, committed) + float64(hits)
			v.Over, v.Committed = r.Over(committed+held), r.Over(committed)
		}
		if !v.Over {
			v.Delay = r.Delay(v.Estimate + float64(hits))
		}
		if v.Committed {
			v.RetryAfter = s.retryAfterOf(r, st, i, groups, at, float64(hits))
		}
	})
	return v, there
}

// locate makes a counter for a source that has none. It evicts no counter that is evaluated
// together with it.
func (t *core) locate(l *lookup, r *algorithm.Spec, source Source, now int64, together []lookup) {
	var room [8]int
	inUse := room[:0]
	for i := range together {
		if o := &together[i]; o.there && o.store == l.store {
			inUse = append(inUse, o.i)
		}
	}
	phase := uint16(0)
	if t.options.Phase != nil {
		phase = t.options.Phase(source)
	}
	t.know(r)
	i, evicted, full := l.store.Insert(l.hash, &source.id, r.ID, source.code,
		t.evictionCost(l, now, inUse))
	if full {
		out := headOf(&evicted)
		if out.state&hasHistogram != 0 {
			l.s.histograms.Unlink(i, l.store == &l.s.wide)
		}
		l.s.evicted(out)
	}
	l.s.grows = l.s.grows || l.store.Crowded()
	h := l.store.head(i)
	h.phase = phase & algorithm.PhaseBits
	l.i, l.there, l.at = i, true, l.s.position(r, now, h.phase)
	h.base = l.at.Group
}

// evictionCost is how much would be lost with a counter: the share of its limit that is used, more than
// all if requests have reserved of it, and most if it is in use.
func (t *core) evictionCost(l *lookup, now int64, inUse []int) records.EvictionCost {
	return func(i int) float64 {
		h := l.store.head(i)
		switch {
		case slices.Contains(inUse, i):
			return math.Inf(1)
		case h.state&active == 0 && h.unconfirmed == 0:
			return 0
		case l.s.unconfirmed.Held(h.unconfirmed) > 0:
			return math.MaxFloat64
		}
		r := t.rule(h.rule)
		if r == nil {
			return 0
		}
		estimate, _, _ := l.s.peek(r, l.store, i, now, new([lanes.MaxGroups]uint64))
		return estimate / float64(r.Limit)
	}
}

// recentlyActive is whether so much used makes a counter active.
func recentlyActive(r *algorithm.Spec, estimate float64) uint8 {
	if 7*estimate >= float64(r.Limit) {
		return active
	}
	return 0
}

// evicted gives up the unconfirmed hits of a counter that was evicted.
func (s *shard) evicted(h *head) {
	s.stats.Evicted++
	if h.unconfirmed != 0 {
		s.stats.LostEvicted += s.unconfirmed.Release(h.unconfirmed)
	}
}

// Forget drops what is known of a source under a rule: the next hit starts from nothing.
func (t *core) Forget(r *algorithm.Spec, source Source) {
	t.at(Counter{Rule: r, Source: source}, func(s *shard, st *store, i int) {
		if w := st.head(i).unconfirmed; w != 0 {
			s.stats.LostExpired += s.unconfirmed.Release(w)
		}
		if st.head(i).state&hasHistogram != 0 {
			s.histograms.Unlink(i, st == &s.wide)
		}
		st.Remove(i)
	})
	s := t.shard(t.hash(&source))
	s.mu.Lock()
	s.otherPoPs.Forget(Key{source, r.ID})
	s.mu.Unlock()
}

// Counter names a counter by the rule that counts and the source that is counted.
type Counter struct {
	Rule   *algorithm.Spec
	Source Source
	// Of its unconfirmed entry when Dirty gave it out: its shard, and its index there; 0: not known
	position uint32
}
