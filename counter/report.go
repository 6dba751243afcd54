package counter

import (
	"math/bits"
	"slices"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/lanes"
	"sluice/counter/internal/unconfirmed"
)

// Dirty appends to buf counters that have hits to report, n at most, and returns it. Each is given out once until it is taken.
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
func (t *Table) nextDirty() (shard int, ok bool) {
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

// Sweep puts on the dirty list what can no longer wait: hits of a counter of which the tier has not been heard for a second, or a
// sub-window if that is shorter, and hits that came back. Call it some ten times a second. It drops what has left the window. With all, nothing waits any longer.
func (t *Table) Sweep(now time.Time, all bool) {
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
		s.sweepRounds(ns)
		// Who still waits has waited longer than anybody should, or asked just now and goes on a little early.
		for key, ch := range s.waiting {
			delete(s.waiting, key)
			close(ch)
		}
		if s.unconfirmed.InUse() == 0 && len(s.ranks) == 0 {
			s.activeShards.And(^s.bit)
		}
		s.unlock(t)
	}
}

// Await returns a channel that is closed when the tier next answers about a counter, or at the next Sweep; without a tier
// it is closed already. first says that nobody else waits for this counter yet, so that the tier is to be asked.
func (t *Table) Await(r *algorithm.Rule, source Source) (answered <-chan struct{}, first bool) {
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

// Counter names a counter by the rule that counts and the source that is counted.
type Counter struct {
	Rule   *algorithm.Rule
	Source Source
	place  uint32 // of its unconfirmed entry when Dirty gave it out: its shard, and its index there; 0: not known
}

// Part is one group of a report. Hits and Known are packed lanes.
type Part struct {
	Group uint32
	Hits  uint64 // not yet reported: add them to the tier's number
	Known uint64 // all that is known of the group, these hits included: what to store where the tier has no number
	There bool   // the tier has a number, or had one when it last answered
}

// Report is what to tell the tier of a counter, and what to ask it.
type Report struct {
	Parts [lanes.MaxGroups]Part
	N     int // how many of Parts are meant
	// Past says that groups should be read as well: Oldest to Newest-1, modulo 2^32, which are those before the newest, and now and
	// then the newest, too. Of a counter of which nothing is known, the answer decides: Standing.Past.
	Past           bool
	Oldest, Newest uint32
	// WriteFirst says that the read is to follow the hits in the tier, also where another edge adds a group at the same time: of a
	// group that is not There the Known without Hits is added, and the Hits are an increment in any case.
	WriteFirst bool
}

// Take hands out what a counter has to report; until every part is answered by Counted, Returned or Lost, further hits
// wait. It reports whether there is anything.
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
		if s.unconfirmed.HasInFlight(k) || r.Sync && s.ranking(r, c.Source, t.ns(now)) {
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
				Known: r.Lanes().AtMost(r.Lanes().Minus(groups[g], s.unconfirmed.In(k, g).Pending), r.Lanes().ReportMax()),
				There: h.answered(g),
			}
			rep.N++
		}
		ok = rep.N > 0
		if ok {
			rep.Oldest, rep.Newest = h.base-uint32(r.Groups()-1), h.base
			if r.Sync {
				s.send(t.Table, k, c, &rep, h, groups, at, t.ns(now))
			} else if past, newest := t.readsPast(r, h, groups, s.estimate(r, st, i, at), t.ns(now)); past {
				if rep.Past = true; newest {
					rep.Newest++
				}
			}
		}
		k.Urgent = false
		s.releaseEmpty(h.unconfirmed)
	})
	return rep, ok
}

// Counted takes in the tier's answer to a part: its hits are counted, and its number is now total.
func (t Reports) Counted(c Counter, p Part, total uint64, now time.Time) Standing {
	past, total := false, told(c.Rule, total)
	standing := t.answered(c, p.Group, p.Hits, now, func(s *shard, k *unconfirmed.Entry, g int) {
		h, groups := s.store(c.Rule).record(int(k.Slot))
		if past = h.state&readPast == 0 && !c.Rule.Sync && readsAfter(c.Rule, h, groups, p, total); past {
			h.state |= readPast
		}
	}, total, true)
	standing.Past = past
	return standing
}

// Returned takes a part back that certainly did not reach the tier: its hits wait to be reported again, but for those that were cancelled
// meanwhile.
func (t Reports) Returned(c Counter, p Part, now time.Time) {
	t.answered(c, p.Group, p.Hits, now, func(s *shard, k *unconfirmed.Entry, g int) {
		cancelled := s.cancelled(c, p)
		groups := s.store(c.Rule).groups(int(k.Slot))
		groups[g] = c.Rule.Lanes().Minus(groups[g], cancelled)
		s.unconfirmed.Return(k, g, c.Rule.Lanes().Minus(p.Hits, cancelled))
		k.Urgent = true
	}, 0, false)
}

// Lost gives a part up of which nobody can tell whether it reached the tier. Its hits still count here; they are not
// reported again, because counting them twice would be worse than not at all.
func (t Reports) Lost(c Counter, p Part, now time.Time) {
	t.answered(c, p.Group, p.Hits, now, func(s *shard, k *unconfirmed.Entry, g int) {
		s.stats.LostUnknown += c.Rule.Lanes().Sum(p.Hits)
	}, 0, false)
}

// Full gives a part up for which the tier has no memory: to say it again would not help. Its hits still count here, and a tier that
// has memory for this group later is told of them, because the next report stores all that is known.
func (t Reports) Full(c Counter, p Part, now time.Time) {
	t.answered(c, p.Group, p.Hits, now, func(s *shard, k *unconfirmed.Entry, g int) {
		s.stats.LostFull += c.Rule.Lanes().Sum(p.Hits)
	}, 0, false)
}

// Read takes in the tier's number for a group of which this table has nothing under way.
func (t Reports) Read(c Counter, group uint32, total uint64, now time.Time) Standing {
	return t.answered(c, group, 0, now, nil, told(c.Rule, total), true)
}

// Snapshot is what of a counter has been reported, by anybody: its groups of lanes, the newest first, and which that is. Hits that are
// still to be reported are not in it: another table may store it, and they would be counted twice.
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
				groups[g] = c.Rule.Lanes().Minus(groups[g], c.Rule.Lanes().Plus(u.Pending, u.InFlight))
			}
		}
	})
	return newest, groups
}

// Learn takes in what the tier has of a counter, read with a report of so many hits: groups, the newest first. Whatever is under way
// must have been sent after the read. The source need not be in the table.
func (t Reports) Learn(c Counter, newest uint32, groups []uint64, reported uint64, now time.Time) Standing {
	return t.learn(c, newest, groups, reported, false, now)
}

// Emptied stands for the number of a group in Learn that is there and 0, under a rule with Sync: all its hits were taken back. A group of which
// the tier has none is 0, and what this table knows of it stays.
const Emptied = 1 << 63

// Announced takes in what another table's Snapshot has of a counter, and reports whether it is over its limit. What is left to do about
// it, the other has done.
func (t Reports) Announced(c Counter, newest uint32, groups []uint64, now time.Time) (over bool) {
	return t.learn(c, newest, groups, 0, true, now).Over
}

// Sum is how many hits a part reports.
func (p Part) Sum(r *algorithm.Rule) uint64 { return r.Lanes().Sum(p.Hits) }

// learn takes in groups of a counter, which it makes if there is none.
func (t *Table) learn(c Counter, newest uint32, groups []uint64, reported uint64, announcement bool, now time.Time) Standing {
	l := t.open(c.Rule, &c.Source)
	defer l.s.unlock(t)
	if l.there {
		l.at = l.s.advance(l.store, l.i, c.Rule, t.ns(now))
	} else {
		t.locate(&l, c.Rule, c.Source, t.ns(now), nil)
	}
	base := l.store.head(l.i).base
	for i, total := range groups {
		if g := int(int32(base - newest + uint32(i))); g >= 0 && g < c.Rule.Groups() {
			if c.Rule.Sync && !announcement && total != 0 {
				l.store.groups(l.i)[g] = 0 // it replaces what was known: hits may have been taken back
				total = told(c.Rule, total)
			}
			l.s.merge(l.store, l.i, c.Rule, g, total, !announcement)
		}
	}
	standing := l.s.replied(t, c, l.store, l.i, l.at, t.ns(now), reported, announcement)
	if c.Rule.Sync && !announcement {
		l.s.readRound(c, l.store.head(l.i), newest, groups)
		l.s.rank(t, c, l.store, l.i, l.at)
	}
	return standing
}

// answered ends the flight of hits of a group, does what the outcome asks, and learns the tier's total if there is one.
func (t *Table) answered(c Counter, group uint32, hits uint64, now time.Time, do func(*shard, *unconfirmed.Entry, int), total uint64, learn bool) (standing Standing) {
	r := c.Rule
	t.at(c, func(s *shard, st *store, i int) {
		at := s.advance(st, i, r, t.ns(now))
		h := st.head(i)
		if g := int(int32(h.base - group)); g >= 0 && g < r.Groups() {
			if r.Sync && do != nil && learn {
				total = s.countedRound(c, group, total)
			}
			// Other hits than these are in flight where the counter was pushed out meanwhile and came back.
			if hits != 0 && h.unconfirmed != 0 {
				k := s.unconfirmed.At(h.unconfirmed)
				if s.unconfirmed.Answer(k, g, hits) {
					do(s, k, g)
				}
			}
			if learn {
				if r.Sync && do != nil {
					st.groups(i)[g] = 0 // as in learn; Read may be about another node
				}
				s.merge(st, i, r, g, total, false)
			}
		}
		if learn {
			standing = s.replied(t, c, st, i, at, t.ns(now), r.Lanes().Sum(hits), false)
		}
		switch {
		case !r.Sync:
		case learn:
			s.rank(t, c, st, i, at)
		default:
			s.giveUp(Key{c.Source, r.ID})
		}
		if h.unconfirmed != 0 {
			s.releaseEmpty(h.unconfirmed)
		}
	})
	return standing
}

// merge takes the tier's total for a group: with what is still to be reported, it is the least that has been counted. What is under
// way may be in the total already, but not in one that was read (inOrder): a node answers in order, so what is unanswered then was sent
// after the read. Else who loses a race to add would be without its own hits until its incr is answered.
func (s *shard) merge(st *store, i int, r *algorithm.Rule, g int, total uint64, inOrder bool) {
	h, groups := st.head(i), st.groups(i)
	var missing uint64
	if h.unconfirmed != 0 {
		u := s.unconfirmed.In(s.unconfirmed.At(h.unconfirmed), g)
		if missing = u.Pending; inOrder {
			missing = r.Lanes().Plus(missing, u.InFlight)
		}
	}
	groups[g] = r.Lanes().Most(groups[g], r.Lanes().Plus(r.Lanes().Clamp(total), missing))
	if g == 0 && total != 0 {
		h.state |= repliedNow
	}
}

// at runs f on the counter c with its shard locked, if the table still has it.
func (t *Table) at(c Counter, f func(s *shard, st *store, i int)) {
	if c.place != 0 { // while it has an unconfirmed entry, nobody need look for it
		s := &t.shards[int(c.place>>16)%len(t.shards)]
		s.mu.Lock()
		if w := uint16(c.place); int(w) < s.unconfirmed.Len() {
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

// unlock unlocks a shard, and wakes who waits for hits to report.
func (s *shard) unlock(t *Table) {
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
