package counter

import (
	"math/bits"
	"slices"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/lanes"
)

// Dirty appends to buf counters that have hits to report, n at most, and returns it. Each is given
// out once until it is taken.
func (t Reports) Dirty(buf []Counter, n int) []Counter {
	for n > 0 {
		i, ok := t.nextDirty()
		if !ok {
			break
		}
		s := &t.shards[i]
		s.mu.Lock()
		some := min(n, len(s.dirty))
		n -= some
		for _, w := range s.dirty[:some] {
			if k := s.unconfirmed.Leave(w); k != nil {
				buf = append(buf, Counter{k.Rule, s.source(k), uint32(i)<<16 | uint32(w)})
			}
		}
		if s.dirty = slices.Delete(s.dirty, 0, some); len(s.dirty) == 0 {
			s.dirtyShards.And(^s.bit)
		}
		s.mu.Unlock()
	}
	return buf
}

// nextDirty gives the shards in turn in which entries wait to be taken.
func (t Reports) nextDirty() (shard int, ok bool) {
	from := t.turn.Load()
	for n := range uint32(len(t.dirtyShards)) + 1 {
		word := (from/64 + n) % uint32(len(t.dirtyShards))
		some := t.dirtyShards[word].Load()
		if n == 0 {
			some &= ^uint64(0) << (from % 64) // the others come last
		}
		if some != 0 {
			next := 64*word + uint32(bits.TrailingZeros64(some))
			t.turn.Store((next + 1) % uint32(64*len(t.dirtyShards)))
			return int(next), true
		}
	}
	return 0, false
}

// Sweep puts on the dirty list what can no longer wait: hits of a counter about which the tier has
// not answered for a second, or a sub-window if that is shorter, and hits that came back. Call it
// some ten times a second. It drops what has left the window. With all, no hits wait any longer.
func (t Reports) Sweep(now time.Time, all bool) {
	ns := t.ns(now)
	for i := range t.shards {
		s := &t.shards[i]
		if s.activeShards.Load()&s.bit == 0 {
			continue
		}
		s.mu.Lock()
		for w := uint16(1); int(w) < s.unconfirmed.Len(); w++ {
			k := s.unconfirmed.At(w)
			if k.Urgent = k.Urgent || all && k.Rule != nil; !k.Idle {
				continue
			}
			st := s.store(k.Rule)
			s.advance(st, int(k.Slot), k.Rule, ns)
			k.Urgent = k.Urgent || !t.known(st.head(int(k.Slot)), k.Rule, ns)
			if k.Urgent && k.Hits > 0 && !s.unconfirmed.HasInFlight(k) {
				s.queue(w)
			}
			s.releaseEmpty(w)
		}
		// A request that still waits has waited too long, or has just begun to and goes on a little
		// early.
		for key, ch := range s.waiting {
			delete(s.waiting, key)
			close(ch)
		}
		if s.unconfirmed.InUse() == 0 {
			s.activeShards.And(^s.bit)
		}
		s.unlock(t.core)
	}
}

// Part is one group of a report. Hits and Known are packed lanes.
type Part struct {
	Group uint32
	Hits  uint64 // not yet reported: add them to the tier's number
	// All that is known of the group, these hits included: what to store where the tier has no
	// number
	Known uint64
	There bool // the tier has a number, or had one when it last answered
}

// Report is what to write to the tier about a counter, and what to read.
type Report struct {
	Parts [lanes.MaxGroups]Part
	N     int // how many of Parts are used
	// Past says that groups should be read as well: Oldest to Newest-1, modulo 2^32, which are
	// those before the newest, and now and then the newest, too. For an unknown counter the answer
	// decides: Reply.Past.
	Past           bool
	Oldest, Newest uint32
}

// Take hands out what a counter has to report; until every part is answered by Counted, Returned or
// Lost, further hits wait. It reports whether there is anything.
func (t Reports) Take(c Counter, now time.Time) (rep Report, ok bool) {
	t.at(c, func(s *shard, st *store, i int) {
		at := s.advance(st, i, c.Rule, t.ns(now))
		h, groups := st.head(i), st.groups(i)
		if h.unconfirmed == 0 {
			return
		}
		k := s.unconfirmed.At(h.unconfirmed)
		k.Idle = !k.Queued
		r := c.Rule
		if s.unconfirmed.HasInFlight(k) {
			return
		}
		for g := range r.Groups() {
			if s.unconfirmed.In(k, g).Pending == 0 {
				continue
			}
			hits, saturated := s.unconfirmed.Send(k, g, groups[g])
			s.stats.LostSaturated += saturated
			if hits == 0 {
				continue
			}
			rep.Parts[rep.N] = Part{
				Group: h.base - uint32(g), Hits: hits,
				// What is left pending is reported later: stored now, it would be counted twice.
				Known: r.Packing().AtMost(r.Packing().Minus(groups[g], s.unconfirmed.In(k, g).Pending),
					r.Packing().ReportMax()),
				There: h.answered(g),
			}
			rep.N++
		}
		ok = rep.N > 0
		if ok {
			rep.Oldest, rep.Newest = h.base-uint32(r.Groups()-1), h.base
			past, newest := t.readsPast(r, h, groups, s.estimate(r, st, i, at), t.ns(now))
			if rep.Past = past; newest {
				rep.Newest++
			}
			if r.Commands != nil {
				r.Commands.Add(uint64(rep.commands()))
			}
		}
		k.Urgent = false
		s.releaseEmpty(h.unconfirmed)
	})
	return rep, ok
}

// commands is how many the report takes: one for each part, and one for what is read.
func (r *Report) commands() int {
	if r.Past {
		return r.N + 1
	}
	return r.N
}

// Snapshot is what any edge has reported of a counter: its groups of lanes, the newest first, and
// the newest one's number. Hits that are still to be reported are not in it: another table may
// store it, and they would be counted twice.
func (t Reports) Snapshot(c Counter, now time.Time) (newest uint32, groups []uint64) {
	t.at(c, func(s *shard, st *store, i int) {
		s.advance(st, i, c.Rule, t.ns(now))
		h := st.head(i)
		newest = h.base
		groups = append(groups, st.groups(i)[:c.Rule.Groups()]...)
		if h.unconfirmed != 0 {
			k := s.unconfirmed.At(h.unconfirmed)
			for g := range groups {
				u := s.unconfirmed.In(k, g)
				groups[g] = c.Rule.Packing().Minus(groups[g], c.Rule.Packing().Plus(u.Pending,
					u.InFlight))
			}
		}
	})
	return newest, groups
}

// Sum is how many hits a part reports.
func (p Part) Sum(r *algorithm.Spec) uint64 { return r.Packing().Sum(p.Hits) }

// readsPast reports whether older groups are read with a report, and whether the newest is. An
// answer holds the newest group alone, and not what other edges have counted in older ones since
// this edge last reported to them. That matters to a source that is busy enough for a read in each
// group to be a small part of what it costs, and to a bucket, whose level the last group has. For
// an unknown counter the answer decides (readsAfter).
//
// memcached takes a number that is only incremented for an unused one, and drops it first. So where
// groups are long, a source that has used a quarter of its limit is read about once a minute, the
// newest group as well.
func (t Reports) readsPast(r *algorithm.Spec, h *head, groups []uint64, estimate float64,
	now int64) (past, newest bool) {
	if !h.met() {
		return false, false
	}
	quarter := 4*estimate >= float64(r.Limit)
	// An edge that saw the last group knows how full the bucket was
	matters := estimate >= busy || groups[1] == 0 && r.Carries()
	past = h.state&readPast == 0 && (matters || t.stale(h, now))
	newest = r.Group() > refresh && quarter && h.refreshes(now)
	if past = past || newest; past {
		h.state |= readPast
	}
	return past, newest
}

// busy is how many hits in the window make a read in each group a small part of what a source
// costs.
const busy = 4
