package counter

import (
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/unconfirmed"
)

// Forged reports whether no edge can have written a number of the tier, so that it counts as
// nothing.
func Forged(r *algorithm.Spec, total uint64) bool { return !r.Packing().Written(total) }

// readTotal is a number of the tier; what no edge can have written counts as nothing.
func readTotal(r *algorithm.Spec, total uint64) uint64 {
	if Forged(r, total) {
		return 0
	}
	return total
}

// Counted takes in the tier's answer to a part: its hits are counted, and its number is now total.
func (t Reports) Counted(c Counter, p Part, total uint64, now time.Time) Reply {
	past, total := false, readTotal(c.Rule, total)
	reply := t.answered(c, p.Group, p.Hits, now, func(s *shard, k *unconfirmed.Entry, g int) {
		h, groups := s.store(c.Rule).record(int(k.Slot))
		if past = h.state&readPast == 0 && readsAfter(c.Rule, h, groups, p, total); past {
			h.state |= readPast
		}
	}, total, true)
	reply.Past = past
	reply.Near = told(c.Rule, reply.confirmed, p.Hits, total)
	return reply
}

// Returned takes a part back that certainly did not reach the tier: its hits wait to be reported
// again.
func (t Reports) Returned(c Counter, p Part, now time.Time) {
	t.answered(c, p.Group, p.Hits, now, func(s *shard, k *unconfirmed.Entry, g int) {
		s.unconfirmed.Return(k, g, p.Hits)
		k.Urgent = true
	}, 0, false)
}

// Lost gives up a part of which it is unknown whether it reached the tier. Its hits still count
// here; they are not reported again, because counting them twice would be worse than not at all.
func (t Reports) Lost(c Counter, p Part, now time.Time) {
	t.answered(c, p.Group, p.Hits, now, func(s *shard, k *unconfirmed.Entry, g int) {
		s.stats.LostUnknown += c.Rule.Packing().Sum(p.Hits)
	}, 0, false)
}

// Full gives up a part for which the tier has no memory: sending it again would not help. Its hits
// still count here, and a tier that has memory for this group later receives them, because the next
// report stores all that is known.
func (t Reports) Full(c Counter, p Part, now time.Time) {
	t.answered(c, p.Group, p.Hits, now, func(s *shard, k *unconfirmed.Entry, g int) {
		s.stats.LostFull += c.Rule.Packing().Sum(p.Hits)
	}, 0, false)
}

// Read takes in the tier's number for a group of which this table has nothing under way.
func (t Reports) Read(c Counter, group uint32, total uint64, now time.Time) Reply {
	return t.answered(c, group, 0, now, nil, readTotal(c.Rule, total), true)
}

// Apply takes in what the tier has of a counter, read with a report of so many hits: groups, the
// newest first. Whatever is under way must have been sent after the read. The source need not be in
// the table.
func (t Reports) Apply(c Counter, newest uint32, groups []uint64, reported uint64,
	now time.Time) Reply {
	return t.learn(c, newest, groups, reported, false, now)
}

// Announced takes in what another table's Snapshot has of a counter, and reports whether it is over
// its limit. The other table has done what is left to do about it.
func (t Reports) Announced(c Counter, newest uint32, groups []uint64, now time.Time) (over bool) {
	return t.learn(c, newest, groups, 0, true, now).Over
}

// learn takes in groups of a counter, which it makes if there is none.
func (t Reports) learn(c Counter, newest uint32, groups []uint64, reported uint64,
	announcement bool, now time.Time) Reply {
	l := t.open(c.Rule, &c.Source)
	defer l.s.unlock(t.core)
	if l.there {
		l.at = l.s.advance(l.store, l.i, c.Rule, t.ns(now))
	} else {
		t.locate(&l, c.Rule, c.Source, t.ns(now), nil)
	}
	base := l.store.head(l.i).base
	for i, total := range groups {
		if g := int(int32(base - newest + uint32(i))); g >= 0 && g < c.Rule.Groups() {
			if !announcement && total != 0 {
				total = readTotal(c.Rule, total)
			}
			l.s.merge(l.store, l.i, c.Rule, g, total, !announcement)
		}
	}
	return l.s.replied(t.core, c, l.store, l.i, l.at, t.ns(now), reported, announcement)
}

// answered ends the flight of hits of a group, does what the outcome asks, and learns the tier's
// total if there is one.
func (t Reports) answered(c Counter, group uint32, hits uint64, now time.Time,
	do func(*shard, *unconfirmed.Entry, int), total uint64, learn bool) (reply Reply) {
	r := c.Rule
	t.at(c, func(s *shard, st *store, i int) {
		at := s.advance(st, i, r, t.ns(now))
		h := st.head(i)
		if g := int(int32(h.base - group)); g >= 0 && g < r.Groups() {
			// Other hits than these are in flight where the counter was pushed out meanwhile and
			// came back.
			if hits != 0 && h.unconfirmed != 0 {
				k := s.unconfirmed.At(h.unconfirmed)
				if s.unconfirmed.Answer(k, g, hits) {
					do(s, k, g)
				}
			}
			if learn {
				s.merge(st, i, r, g, total, false)
			}
		}
		if learn {
			reply = s.replied(t.core, c, st, i, at, t.ns(now), r.Packing().Sum(hits), false)
		}
		if h.unconfirmed != 0 {
			s.releaseEmpty(h.unconfirmed)
		}
	})
	return reply
}

// merge takes the tier's total for a group: with what is still to be reported, it is the least that
// has been counted. What is under way may be in the total already, but not in one that was read
// (inOrder): a node answers in order, so what is unanswered then was sent after the read. Otherwise
// a table that loses a race to add would be without its own hits until its incr is answered.
func (s *shard) merge(st *store, i int, r *algorithm.Spec, g int, total uint64, inOrder bool) {
	h, groups := st.head(i), st.groups(i)
	var missing uint64
	if h.unconfirmed != 0 {
		u := s.unconfirmed.In(s.unconfirmed.At(h.unconfirmed), g)
		if missing = u.Pending; inOrder {
			missing = r.Packing().Plus(missing, u.InFlight)
		}
	}
	groups[g] = r.Packing().Most(groups[g], r.Packing().Plus(r.Packing().Clamp(total), missing))
	if g == 0 && total != 0 {
		h.state |= repliedNow
	}
}

// readsAfter reports whether a table that knows nothing of the older groups reads them after the
// tier's total for the newest. A table that has never met the source and is the first in a group
// always reads: no other may have, and the source might be mitigated. Under a limit without stages
// nothing is announced before it is full, so every other table reads as well, once in a group. Once
// the newest group alone reaches the limit, the older ones will have left the window before a
// request is admitted again.
func readsAfter(r *algorithm.Spec, h *head, groups []uint64, p Part, total uint64) bool {
	switch {
	case !h.met() && total == p.Known:
		return true
	case h.met() && !onlyNewest(r, groups) || r.Carries():
		return false // it was decided with the report, or the answer says it
	}
	return !r.HoldsBack() && r.Packing().Sum(r.Packing().Clamp(total)) < uint64(r.Limit)
}

// onlyNewest reports whether nothing is known of groups but the newest.
func onlyNewest(r *algorithm.Spec, groups []uint64) bool {
	var some uint64
	for _, g := range groups[1:r.Groups()] {
		some |= g
	}
	return some == 0
}
