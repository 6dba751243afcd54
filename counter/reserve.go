package counter

import (
	"math"
	"time"
)

// Ask is one rule asked about one source, and what came of it.
type Ask struct {
	Rule   *Rule
	Source Source
	Hits   uint32 // how many; usually 1
	Hold   bool   // keep the reservation open until Commit or Cancel
	Shadow bool   // being over refuses nobody else
	Always bool   // count even what is refused

	Verdict // filled in by Reserve

	held bool
}

// Verdict is what a counter says to an Ask.
type Verdict struct {
	Over       bool          // the estimate and the hits are over the limit
	Estimate   float64       // of the hits in the window, reservations and these hits included, not rounded
	Remaining  uint32        // hits left after these; 0 if Over
	RetryAfter time.Duration // if Over: until so many hits would be admitted if no more arrived
	Known      bool          // the PoP's count is recent; always true without a tier
}

// Reserve asks all rules together whether their hits keep within their limits, and reports whether every rule that is not
// a shadow admits them. Then they are reserved, which means counted at once or, with Hold, part of every estimate until
// Commit or Cancel; a shadow that is over does not count them. If one rule refuses, no rule counts them, but those that
// count Always. The verdicts are those of one instant: no other Reserve for the same source comes between.
//
// asks must not name a counter twice. Reserve does not wait and, for sources in the table, does not allocate.
func (t *Table) Reserve(asks []Ask, now time.Time) bool {
	if len(asks) == 0 {
		return true
	}
	var room [4]lookup
	found := room[:0]
	for i := range asks {
		found = append(found, lookup{hash: t.hash(asks[i].Source)})
	}
	t.lock(found)
	admitted := true
	for i := range asks {
		a, l := &asks[i], &found[i]
		t.judge(a, l, now)
		admitted = admitted && (a.Shadow || !a.Over)
	}
	for i := range asks {
		a, l := &asks[i], &found[i]
		switch {
		case a.Always, admitted && !a.Over:
		default:
			continue
		}
		if a.Hold && !a.Over && l.s.hold(t, a, l) {
			a.held = true
			continue
		}
		l.s.count(t, a.Rule, l.store, l.i, l.at, a.Hits, a.Estimate, now)
	}
	t.unlock(found)
	return admitted
}

// Commit counts a held reservation, in the sub-window of now. Anything else it leaves alone: an ask that was not held
// counted, or did not, in Reserve.
func (t *Table) Commit(a *Ask, now time.Time) { t.settle(a, now, true) }

// Cancel takes a held reservation back, as if it had never been.
func (t *Table) Cancel(a *Ask) { t.settle(a, time.Time{}, false) }

func (t *Table) settle(a *Ask, now time.Time, count bool) {
	if !a.held {
		return
	}
	a.held = false
	l := lookup{hash: t.hash(a.Source)}
	l.s = t.shard(l.hash)
	l.s.mu.Lock()
	l.store = l.s.store(a.Rule)
	if i, ok := l.store.find(l.hash, a.Rule.ID, a.Source); ok {
		l.i = i
		l.s.unhold(l.store, i, a.Hits)
	} else if count {
		t.locate(&l, a.Rule, a.Source, now)
	}
	if count {
		l.at = l.s.advance(l.store, l.i, a.Rule, now)
		l.s.count(t, a.Rule, l.store, l.i, l.at, a.Hits, a.Estimate, now)
	}
	l.s.unlock(t)
}

// Peek says what Reserve would say to one hit, and whether the source is in the table. It changes nothing.
func (t *Table) Peek(r *Rule, source Source, now time.Time) (Verdict, bool) {
	hash := t.hash(source)
	s := t.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.store(r)
	i, ok := st.find(hash, r.ID, source)
	if !ok {
		return Verdict{Remaining: r.Limit, Known: !t.options.Tier}, false
	}
	h := &st.heads[i]
	var room [maxGroups]uint64
	groups := room[:copy(room[:], st.groups(i)[:r.groups()])]
	at, moved := r.move(h.base, r.position(now, h.phase))
	shift(groups, moved)
	held := uint32(0)
	if h.work != 0 {
		held = s.works[h.work].held
	}
	seen := r.view(groups, at.lane)
	seen.own = s.own(r, i, at, 0)
	v := Verdict{Estimate: r.estimate(seen, at.gone) + float64(held), Known: t.known(h, r, now)}
	v.Remaining = r.remaining(v.Estimate)
	if v.Over = r.over(v.Estimate + 1); v.Over {
		v.RetryAfter = r.retryAfter(groups, func(ahead int) *bins { return s.own(r, i, at, ahead) }, at, float64(held)+1)
	}
	return v, true
}

// lookup is where an ask's counter stands while its shard is locked.
type lookup struct {
	hash  uint64
	s     *shard
	store *store
	i     int
	at    position
	first bool // this lookup locked the shard
}

// lock locks the shards of all lookups, each once and in the order of their places, so that two calls cannot wait for
// each other.
func (t *Table) lock(found []lookup) {
	for i := range found {
		found[i].s = t.shard(found[i].hash)
	}
	if len(found) == 1 {
		found[0].s.mu.Lock()
		found[0].first = true
		return
	}
	for last := -1; ; {
		next, at := math.MaxInt, -1
		for i := range found {
			n := int(found[i].hash >> 32 & uint64(len(t.shards)-1))
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
			found[i].s.unlock(t)
		}
	}
}

// judge finds the counter of a, or makes it, and fills in the verdict.
func (t *Table) judge(a *Ask, l *lookup, now time.Time) {
	r := a.Rule
	l.store = l.s.store(r)
	i, ok := l.store.find(l.hash, r.ID, a.Source)
	if ok {
		l.i = i
		l.at = l.s.advance(l.store, i, r, now)
	} else {
		t.locate(l, r, a.Source, now)
	}
	h := &l.store.heads[l.i]
	hits := float64(a.Hits)
	if h.work != 0 {
		hits += float64(l.s.works[h.work].held)
	}
	estimate := l.s.estimate(r, l.store, l.i, l.at) + hits
	a.Verdict = Verdict{Estimate: estimate, Over: r.over(estimate), Known: t.known(h, r, now)}
	a.held = false
	if a.Over {
		s, i, at := l.s, l.i, l.at
		a.RetryAfter = r.retryAfter(l.store.groups(i), func(ahead int) *bins { return s.own(r, i, at, ahead) }, at, hits)
	} else {
		a.Remaining = r.remaining(estimate)
	}
	if ok { // who comes once is nobody yet: a flood of strangers must not push out who came twice
		h.state = h.state&^heatMask | heat(estimate, r.Limit)
	}
}

func heat(estimate float64, limit uint32) uint8 {
	return uint8(min(heatMask, estimate*heatMask/float64(limit)))
}

// estimate is what a counter says at a position.
func (s *shard) estimate(r *Rule, st *store, i int, at position) float64 {
	v := r.view(st.groups(i), at.lane)
	if v.oldest > 0 {
		v.own = s.own(r, i, at, 0)
	}
	return r.estimate(v, at.gone)
}

// locate makes a counter for a source that has none.
func (t *Table) locate(l *lookup, r *Rule, source Source, now time.Time) {
	i, work, full := l.store.insert(l.hash, r.ID, source)
	if work != 0 {
		l.s.release(work, &l.s.stats.LostEvicted)
	}
	if full {
		l.s.stats.Evicted++
		l.s.dropFine(place{r.Wide(), int32(i)})
	}
	h := &l.store.heads[i]
	if t.options.Phase != nil {
		h.phase = t.options.Phase(source)
	}
	l.i, l.at = i, r.position(now, h.phase)
	h.base = l.at.group
}

// advance brings a counter, and what of it is on its way, to the group of now.
func (s *shard) advance(st *store, i int, r *Rule, now time.Time) position {
	h := &st.heads[i]
	at, moved := st.advance(i, r, r.position(now, h.phase))
	if moved > 0 && h.work != 0 {
		s.age(&s.works[h.work], r, moved)
	}
	return at
}

// known reports whether the tier has answered about a counter in the last second, or sub-window if that is shorter.
func (t *Table) known(h *head, r *Rule, now time.Time) bool {
	if !t.options.Tier {
		return true
	}
	fresh := min(uint16(time.Second/recency), uint16(time.Duration(min(r.sub, int64(time.Second)))/recency))
	return h.state&heardOnce != 0 && instant(now)-h.heard <= fresh
}

// recency is the unit of head.heard. 16 bits of it are 17 minutes; a counter unheard of for a multiple of that may pass for
// known, and be a first sight one hit later than it should.
const recency = 16 * time.Millisecond

func instant(now time.Time) uint16 { return uint16(now.UnixNano() / int64(recency)) }
