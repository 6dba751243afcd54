package counter

import (
	"iter"
	"math"
	"slices"
	"time"

	"sluice/counter/algorithm"
)

// Reservation is hits of one source under one rule, and the verdict on them.
type Reservation struct {
	Rule   *algorithm.Spec
	Source Source
	Hits   uint32 // how many; usually 1
	Hold   bool   // keep the reservation open until Commit or Cancel
	Shadow bool   // being over refuses nothing
	Always bool   // hits count even if they are refused

	Verdict // filled in by Reserve

	held bool
}

// Verdict is a counter's answer to a Reservation.
type Verdict struct {
	Over bool // the estimate and the hits are over the limit
	// Over, and would be without what other requests have reserved: a mitigation may start
	Committed bool
	// Of the hits in the window, reservations and these hits included, not rounded
	Estimate  float64
	Remaining uint32 // hits left after these; 0 if Over
	// If Over: until so many hits would be admitted if no more arrived and nothing were reserved;
	// may be 0
	RetryAfter time.Duration
	Fresh      bool // the PoP's count is recent; always true without a tier
	// If not Over: until it is the turn of these hits, under a rule whose requests wait for theirs
	// (NewBucket)
	Delay time.Duration
}

// Reserve checks all rules together, and reports whether every rule that is not a shadow admits its
// hits. Then they are reserved, which means counted at once or, with Hold, part of every estimate
// until Commit or Cancel; a shadow that is over does not count them. If one rule refuses, no rule
// counts them, except those that count Always. The verdicts are those of one instant: no other
// Reserve for the same source comes between.
//
// reservations must not name a counter twice. Reserve does not wait and, for sources in the table,
// does not allocate.
func (t *Table) Reserve(reservations []Reservation, now time.Time) bool {
	if len(reservations) == 0 {
		return true
	}
	ns := t.ns(now)
	if len(reservations) == 1 {
		a := &reservations[0]
		l := lookup{hash: t.hash(&a.Source)}
		l.s = t.shard(l.hash)
		t.prefetch(a.Rule, l.hash)
		l.s.mu.Lock()
		l.find(a.Rule, &a.Source)
		t.evaluate(a, &l, ns, nil)
		admitted := a.Shadow || !a.Over
		t.keep(a, &l, admitted, ns)
		l.s.unlock(&t.core)
		return admitted
	}
	var room [8]lookup
	found := room[:]
	if len(reservations) > len(room) {
		found = make([]lookup, len(reservations))
	}
	found = found[:len(reservations)]
	t.lock(reservations, found)
	// First all are looked for, then all are evaluated: memory-level parallelism makes several
	// misses cost little more than one.
	for i := range reservations {
		found[i].find(reservations[i].Rule, &reservations[i].Source)
	}
	admitted := true
	for i := range reservations {
		a := &reservations[i]
		t.evaluate(a, &found[i], ns, found)
		admitted = admitted && (a.Shadow || !a.Over)
	}
	for i := range reservations {
		t.keep(&reservations[i], &found[i], admitted, ns)
	}
	t.unlock(found)
	return admitted
}

// keep reserves or counts what has been evaluated.
func (t *Table) keep(a *Reservation, l *lookup, admitted bool, now int64) {
	if !a.Always && (!admitted || a.Over) {
		return
	}
	if a.Hold && !a.Over && l.s.hold(a, l) {
		a.held = true
		return
	}
	l.count(&t.core, a.Rule, a.Hits, a.Estimate, now)
	if a.Over && a.Always { // a retry comes on top of what was refused and counted
		a.RetryAfter = l.s.retryAfter(a.Rule, l.store, l.i, l.at, float64(a.Hits))
	}
}

// Commit counts a held reservation, in the sub-window of now. It does nothing to others: Reserve
// has counted, or refused, a reservation that was not held.
func (t *Table) Commit(a *Reservation, now time.Time) { t.settle(a, a.Hits, now) }

// CommitAs is Commit of a reservation that turned out to be so many hits, 1 to MaxCost. They may
// take the counter over its limit: the next reservation is refused then.
func (t *Table) CommitAs(a *Reservation, hits uint32, now time.Time) { t.settle(a, hits, now) }

// Cancel takes a held reservation back without a trace.
func (t *Table) Cancel(a *Reservation) { t.settle(a, 0, time.Time{}) }

// settle ends a reservation, and counts so many hits.
func (t *Table) settle(a *Reservation, hits uint32, now time.Time) {
	if !a.held {
		return
	}
	a.held = false
	l := t.open(a.Rule, &a.Source)
	if l.there {
		l.s.unhold(l.store, l.i, a.Hits)
	} else if hits > 0 {
		t.locate(&l, a.Rule, a.Source, t.ns(now), nil)
	}
	if hits > 0 {
		ns := t.ns(now)
		l.at = l.s.advance(l.store, l.i, a.Rule, ns)
		l.count(&t.core, a.Rule, hits, a.Estimate+float64(hits)-float64(a.Hits), ns)
	}
	l.s.unlock(&t.core)
}

// lock finds the shards of all reservations, begins to fetch their counters, and locks the shards,
// each once and in the order of their indexes, so that two calls cannot deadlock.
func (t *Table) lock(reservations []Reservation, found []lookup) {
	several := false
	for i := range reservations {
		l := &found[i]
		if i > 0 && reservations[i].Source == reservations[i-1].Source {
			l.hash, l.s = found[i-1].hash, found[i-1].s
		} else {
			l.hash = t.hash(&reservations[i].Source)
			l.s = t.shard(l.hash)
			several = i > 0
		}
		t.prefetch(reservations[i].Rule, l.hash)
	}
	if !several {
		found[0].s.mu.Lock()
		found[0].first = true
		return
	}
	for last := -1; ; {
		next, at := math.MaxInt, -1
		for i := range found {
			n := t.shardIndex(found[i].hash)
			if n > last && n < next {
				next, at = n, i
			}
		}
		if at < 0 {
			return
		}
		found[at].s.mu.Lock()
		found[at].first = true
		last = next
	}
}

// unlock undoes lock.
func (t *Table) unlock(found []lookup) {
	for i := range found {
		if found[i].first {
			found[i].s.unlock(&t.core)
		}
	}
}

// evaluate makes the counter of a where there is none, and fills in the verdict. together are the
// lookups of the reservations that are evaluated together.
func (t *Table) evaluate(a *Reservation, l *lookup, now int64, together []lookup) {
	r, old := a.Rule, l.there
	if old {
		l.at = l.s.advance(l.store, l.i, r, now)
	} else {
		t.locate(l, r, a.Source, now, together)
	}
	h := l.store.head(l.i)
	committed, hits := l.s.estimate(r, l.store, l.i, l.at), float64(a.Hits)
	held := float64(l.s.unconfirmed.Held(h.unconfirmed))
	estimate := committed + hits + held
	a.Verdict = Verdict{Estimate: estimate, Over: r.Over(estimate), Fresh: t.known(h, r, now)}
	a.held = false
	if a.Over { // only now it matters how sure the estimate is
		committed = l.s.firm(r, l.store, l.i, l.store.groups(l.i), l.at, committed)
		a.Over = r.Over(committed + hits + held)
	}
	if a.Over {
		if a.Committed = r.Over(committed + hits); a.Committed {
			l.s.noteOver(r, l.store, l.i, l.at, hits)
			a.RetryAfter = l.s.retryAfter(r, l.store, l.i, l.at, hits)
		}
	} else {
		a.Remaining = r.Remaining(estimate)
		h.allowAnnouncing(r, estimate)
		a.Delay = r.Delay(estimate)
	}
	if old { // a flood of sources that come once must not evict one that came twice
		h.state = h.state&^active | recentlyActive(r, estimate)
	}
}

// Await returns a channel that is closed when the tier next answers about a counter, or at the next
// Sweep; without a tier it is closed already. first says that no other request waits for this
// counter yet, so that the caller must start a read.
func (t *Table) Await(r *algorithm.Spec, source Source) (answered <-chan struct{}, first bool) {
	s := t.shard(t.hash(&source))
	s.mu.Lock()
	defer s.mu.Unlock()
	key := Key{source, r.ID}
	ch, ok := s.waiting[key]
	if !ok {
		ch = make(chan struct{})
		if !t.options.Tier {
			close(ch)
			return ch, false
		}
		if s.waiting == nil {
			s.waiting = make(map[Key]chan struct{})
		}
		s.waiting[key] = ch
		s.activeShards.Or(s.bit)
	}
	return ch, !ok
}

// All ranges over the counters of rules in which something is counted at now, for another table's
// Apply: their groups are those of Snapshot, the newest first. What is reserved is not among them.
// Nothing is locked while a counter is looked at; hits that come meanwhile may be in it or not.
func (t *core) All(rules []*algorithm.Spec, now time.Time) iter.Seq[Copy] {
	byID := make(map[uint32]*algorithm.Spec, len(rules))
	for _, r := range rules {
		byID[r.ID] = r
	}
	return func(yield func(Copy) bool) {
		var copies []Copy
		for i := range t.shards {
			copies = t.shards[i].copies(byID, t.ns(now), copies[:0])
			for _, c := range copies {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// Copy is what a table has counted of a source under a rule.
type Copy struct {
	Counter
	Newest uint32 // the number of the first group
	Groups []uint64
}

func (s *shard) copies(rules map[uint32]*algorithm.Spec, now int64, out []Copy) []Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range []*store{&s.narrow, &s.wide} {
		for i := range st.All() {
			h := st.head(i)
			r := rules[h.rule]
			if r == nil || s.store(r) != st {
				continue
			}
			s.advance(st, i, r, now)
			groups := st.groups(i)[:r.Groups()]
			if slices.Max(groups) > 0 {
				out = append(out, Copy{Counter{Rule: r, Source: h.source()}, h.base,
					slices.Clone(groups)})
			}
		}
	}
	return out
}
