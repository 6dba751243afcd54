package counter

import (
	"math/bits"
	"slices"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/lanes"
	"sluice/counter/internal/unconfirmed"
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

// Gathering reports whether there are hits that the tier has not confirmed, or requests that wait, so
// that Sweep is to be called.
func (t Reports) Gathering() bool {
	for i := range t.activeShards {
		if t.activeShards[i].Load() != 0 {
			return true
		}
	}
	return false
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

// What a counter and its tier know of each other is in a few flags, which are all in this file. A
// counter is
//
//	far     estimate < 1/2 limit: hits may wait for a second, or a sub-window if that is shorter, while all edges together hide
//	        less than a third of the limit
//	near    estimate >= 1/2 limit: hits are reported at once
//	full    nothing is left: the next hit is refused
//	over    the PoP has counted more than the limit: a mitigation starts
//
// and its flags change as follows:
//
//	flag           set                                             cleared                           what for
//	repliedNow     the tier gave a number for the newest group     a group begins (-> repliedLast)   incr, not add
//	repliedLast    repliedNow was set when the last group ended    a group begins                    incr, not add
//	readPast       older groups were asked for                     a group begins                    read them once a group
//	announced      a stage (algorithm.Stage) was announced, or     the estimate is half of that      announce once
//	               learned of                                      stage, or a window of silence
//	over           it is surely over its limit (noteOver), or      groups begin, as many as a window go by the estimate (firm)
//	               blocked; a number of groups, in three bits      touches, and those of a block
//	hasHistogram   it has a histogram of its hits                  another needs it more             finer than a sub-window
//	active         a seventh of the limit is used                  less is                           who leaves a full table
//	urgent         hits may not wait, or have waited for long      they are taken                    report now
//	queued         urgent, and nothing is under way                taken by Dirty                    report now
//
// An announcement brings a counter's state to all edges through the mitigation log (pop). They
// report what they hold back, and an edge that has never seen the source learns about how much it
// has used, and when to refuse it. A flag is set at a stage and cleared at half of it, so a source
// cannot have itself announced again and again by crossing a border.

// Reply is a counter's state after an answer of the tier.
type Reply struct {
	Over bool // the PoP has counted more than the limit
	// Stage is one that the counter has reached, and that no other table has announced as far as
	// this one has learned; Far: there is none.
	Stage algorithm.Stage
	// Crossed says of these two that a report of this table brought the counter there. The tier
	// counts one hit after the other, so exactly one report did.
	Crossed bool
	// Filled says of Over that a report of this table left nothing of the limit, and that this was
	// never announced: a total may jump over the limit, where hits come in numbers.
	Filled bool
	// WantTimes says that others should report when their hits came in the sub-window that the
	// window's beginning cuts, and in the next (Times): the counter is so near its limit that it
	// matters.
	WantTimes bool
	// CrossedTimes is Crossed of WantTimes.
	CrossedTimes bool
	// Leaving says of a counter that is full that it has hits in the sub-windows that leave the
	// window first: when they came decides when the source has room again.
	Leaving bool
	// Near says that the source has used two thirds of its limit or more, here and elsewhere, and
	// that this report has brought it over a step (told): other PoPs are told. Exactly one report
	// does.
	Near bool
	// Past says that the groups before the newest should be read, of which this table knows
	// nothing.
	Past bool

	confirmed float64 // the estimate without what the tier has not confirmed
}

// replied notes an announcement, or an answer of the tier to a report of so many hits, and returns
// the counter's state after it. Hits that could wait may have become urgent.
func (t Reports) replied(c Counter, l *lookup, now int64, reported uint64,
	announcement bool) (reply Reply) {
	s, st, i, at := l.s, l.store, l.i, l.at
	r, h := c.Rule, st.head(i)
	estimate := s.estimate(r, st, i, at)
	left := r.Remaining(estimate)
	firm := estimate // as decisions go by it
	if left == 0 {
		firm = s.firm(r, st, i, st.groups(i), at, estimate)
	}
	reply.Over = r.Over(firm)
	confirmed := estimate // what may be announced: all that the tier has confirmed
	if !announcement {
		confirmed = s.before(h, estimate, 0)
	}
	h.lastReply = h.lastReply&^instants | instant(now)
	h.allowAnnouncing(r, estimate)
	stage := r.Stage(confirmed)
	if stage == algorithm.Full && r.Remaining(confirmed-estimate+firm) > 0 {
		stage = r.Stage(float64(r.Limit - 1)) // the next hit is not refused yet
	}
	if h.state &^= active; !reply.Over && !announcement {
		if stage > h.announced() {
			reply.Stage = stage
		}
		if most, lacks := s.lacks(r, st, i, at, left); lacks {
			reply.WantTimes, reply.CrossedTimes = true, r.Remaining(s.before(h, estimate,
				reported)) > most
		}
	}
	reply.Crossed = s.crossed(r, h, reply, estimate, reported)
	if reply.Over {
		reply.Crossed = r.Over(s.before(h, firm, 0)) && !r.Over(s.before(h, firm, reported))
		s.noteOver(r, st, i, at, 0)
	}
	reply.confirmed = s.before(h, estimate, 0)
	reply.Filled = reply.Over && !announcement && stage > h.announced() &&
		stage == algorithm.Full && r.Stage(s.before(h, estimate, reported)) < stage
	reply.Leaving = stage == algorithm.Full && r.Leaving(st.groups(i), at.Lane)
	h.announce(max(stage, h.announced()))
	h.state |= recentlyActive(r, estimate)
	if w := h.unconfirmed; w != 0 {
		k := s.unconfirmed.At(w)
		k.Urgent = k.Urgent || k.Hits > 0 && t.urgent(r, h, k.Hits, estimate, now)
		// After an answer that brought nothing, Sweep does this, so that a dead node is not queried
		// in a loop.
		if k.Urgent && !s.unconfirmed.HasInFlight(k) && s.unconfirmed.HasPending(k) {
			s.queue(w)
		}
	}
	key := Key{c.Source, r.ID}
	if ch, ok := s.waiting[key]; ok {
		delete(s.waiting, key)
		close(ch)
	}
	return reply
}

// crossed reports whether so many hits, just confirmed, have brought a counter near its limit or
// over it.
func (s *shard) crossed(r *algorithm.Spec, h *head, reply Reply, estimate float64,
	hits uint64) bool {
	before := s.before(h, estimate, hits)
	estimate = s.before(h, estimate, 0)
	return reply.Stage != algorithm.Far && r.Stage(estimate) >= reply.Stage &&
		r.Stage(before) < reply.Stage
}

// before is an estimate without so many hits that were just confirmed, and without those that have
// not been.
func (s *shard) before(h *head, estimate float64, confirmed uint64) float64 {
	if h.unconfirmed != 0 {
		estimate -= float64(s.unconfirmed.At(h.unconfirmed).Hits)
	}
	return max(estimate-float64(confirmed), 0)
}

// announced is the stage that this table has announced, or learned of.
func (h *head) announced() algorithm.Stage {
	return algorithm.Stage(h.state & announced / announcedUnit)
}

func (h *head) announce(s algorithm.Stage) { h.state = h.state&^announced | uint8(s)*announcedUnit }

// allowAnnouncing lets stages be announced again of a counter that has gone well below them.
func (h *head) allowAnnouncing(r *algorithm.Spec, estimate float64) {
	if h.state&announced != 0 {
		h.announce(min(h.announced(), r.Stage(2*estimate)))
	}
}

// urgent reports whether so many unreported hits must be reported at once. They may wait while the
// source is far from its limit, the tier has answered about it lately, and all edges together hide
// less than a third of what is left of the limit even if each kept as many to itself. So the tier
// has two thirds of a limit when a source has used it up. An edge that has had no answer about a
// source for a second reports its first hit at once. Sweep bounds the wait of further ones to a
// second.
func (t *core) urgent(r *algorithm.Spec, h *head, hits uint32, estimate float64, now int64) bool {
	if r.Near(estimate) || t.stale(h, now) || !t.known(h, r, now) {
		return true
	}
	hidden := float64(hits) * float64(t.edges.Load())
	return 3*hidden >= float64(r.Limit)-estimate
}

// recency is the unit of head.lastReply. 13 bits of it are 9 minutes; a counter without an answer
// for a multiple of that may pass for known, and be read one hit later than it should.
const (
	recency     = 64 * time.Millisecond
	instants    = 1<<13 - 1
	repliedLast = 1 << 13 // in head.lastReply
	overLow     = 3 << 14 // in head.lastReply
	overHigh    = 1 << 7  // in head.state
)

func instant(now int64) uint16 { return max(uint16(now/int64(recency))&instants, 1) }

// mostOver is the most groups that a head has room for.
const mostOver = 1<<3 - 1

// setOver notes that a counter was over its limit, as far as so many groups to come, mostOver at
// most, go by that.
func (h *head) setOver(groups int) {
	h.state, h.lastReply = h.state&^overHigh|uint8(groups>>2)<<7,
		h.lastReply&^overLow|uint16(groups)<<14
}

// over is for how many groups, the present one included, a counter passes for one that was over its
// limit lately.
func (h *head) over() int { return int(h.state>>7)<<2 | int(h.lastReply>>14) }

// turn notes that n groups have begun, of those that a window touches. After a window of silence a
// counter is as good as new.
func (h *head) turn(n, groups int) {
	if n >= groups-1 {
		h.state &^= announced
	}
	if over := h.over(); over > 0 {
		h.setOver(max(over-n, 0))
	}
	h.lastReply &^= repliedLast
	if n == 1 && h.state&repliedNow != 0 {
		h.lastReply |= repliedLast
	}
	h.state &^= repliedNow | readPast
}

// answered reports whether the tier has answered about the newest group or the one before, while it
// was the newest.
func (h *head) answered(g int) bool {
	return g == 0 && h.state&repliedNow != 0 || g == 1 && h.lastReply&repliedLast != 0
}

// refresh is how often a busy counter of long groups is read: 1,024 units of recency.
const refresh = recency << refreshBits

const refreshBits = 10

// refreshes reports whether the tier last answered before this refresh began: answers of a busy
// source come all the time.
func (h *head) refreshes(now int64) bool {
	return h.met() && (instant(now)^h.lastReply)&instants>>refreshBits != 0
}

// met reports whether the tier has ever answered about a counter.
func (h *head) met() bool { return h.lastReply&instants != 0 }

// silence is how long ago the tier last answered about a counter that it has met.
func (h *head) silence(now int64) time.Duration {
	return time.Duration((instant(now)-h.lastReply)&instants) * recency
}

// known reports whether the tier has answered about a counter in the last second, or sub-window if
// that is shorter.
func (t *core) known(h *head, r *algorithm.Spec, now int64) bool {
	if !t.options.Tier {
		return true
	}
	return h.met() && h.silence(now) <= min(r.SubWindow(), time.Second)
}

// Missed notes that records of the mitigation log were lost: a counter that last had an answer of
// the tier before now is read anew, with its bit, at the next report.
func (t Reports) Missed(now time.Time) { t.missed.Store(t.ns(now)) }

// stale reports whether a counter was last read before something was missed.
func (t *core) stale(h *head, now int64) bool {
	missed := t.missed.Load()
	return missed != 0 && h.silence(now) > time.Duration(now-missed)
}

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
func (t Reports) Counted(c Counter, p Part, total uint64, now time.Time) (reply Reply) {
	total = readTotal(c.Rule, total)
	t.at(c, func(s *shard, st *store, i int) {
		l := lookup{s: s, store: st, i: i, at: s.advance(st, i, c.Rule, t.ns(now))}
		h, groups := st.record(i)
		past := false
		s.landed(c.Rule, h, p, func(*unconfirmed.Entry, int) {
			if past = h.state&readPast == 0 && readsAfter(c.Rule, h, groups, p, total); past {
				h.state |= readPast
			}
		})
		reply = t.total(c, &l, p.Group, total, p.Sum(c.Rule), now)
		reply.Past = past
	})
	reply.Near = told(c.Rule, reply.confirmed, p.Hits, total)
	return reply
}

// Read takes in the tier's number for a group of which this table has nothing under way.
func (t Reports) Read(c Counter, group uint32, total uint64, now time.Time) (reply Reply) {
	t.at(c, func(s *shard, st *store, i int) {
		l := lookup{s: s, store: st, i: i, at: s.advance(st, i, c.Rule, t.ns(now))}
		reply = t.total(c, &l, group, readTotal(c.Rule, total), 0, now)
	})
	return reply
}

// Returned takes a part back that certainly did not reach the tier: its hits wait to be reported
// again.
func (t Reports) Returned(c Counter, p Part, now time.Time) {
	t.unanswered(c, p, now, func(s *shard, k *unconfirmed.Entry, g int) {
		s.unconfirmed.Return(k, g, p.Hits)
		k.Urgent = true
	})
}

// Lost gives up a part of which it is unknown whether it reached the tier. Its hits still count
// here; they are not reported again, because counting them twice would be worse than not at all.
func (t Reports) Lost(c Counter, p Part, now time.Time) {
	t.unanswered(c, p, now, func(s *shard, _ *unconfirmed.Entry, _ int) {
		s.stats.LostUnknown += p.Sum(c.Rule)
	})
}

// Full gives up a part for which the tier has no memory: sending it again would not help. Its hits
// still count here, and a tier that has memory for this group later receives them, because the next
// report stores all that is known.
func (t Reports) Full(c Counter, p Part, now time.Time) {
	t.unanswered(c, p, now, func(s *shard, _ *unconfirmed.Entry, _ int) {
		s.stats.LostFull += p.Sum(c.Rule)
	})
}

// unanswered ends the flight of a part that brought no total, and does with its hits what is asked.
func (t Reports) unanswered(c Counter, p Part, now time.Time,
	do func(*shard, *unconfirmed.Entry, int)) {
	t.at(c, func(s *shard, st *store, i int) {
		s.advance(st, i, c.Rule, t.ns(now))
		h := st.head(i)
		s.landed(c.Rule, h, p, func(k *unconfirmed.Entry, g int) { do(s, k, g) })
		if h.unconfirmed != 0 {
			s.releaseEmpty(h.unconfirmed)
		}
	})
}

// landed ends the flight of a part, and does what its outcome asks if its hits were in flight.
// Others are where the counter was pushed out meanwhile and came back.
func (s *shard) landed(r *algorithm.Spec, h *head, p Part, do func(*unconfirmed.Entry, int)) {
	g := int(int32(h.base - p.Group))
	if g < 0 || g >= r.Groups() || p.Hits == 0 || h.unconfirmed == 0 {
		return
	}
	if k := s.unconfirmed.At(h.unconfirmed); s.unconfirmed.Answer(k, g, p.Hits) {
		do(k, g)
	}
}

// total takes in the tier's total for a group, in answer to a report of so many hits.
func (t Reports) total(c Counter, l *lookup, group uint32, total, reported uint64,
	now time.Time) Reply {
	h := l.store.head(l.i)
	if g := int(int32(h.base - group)); g >= 0 && g < c.Rule.Groups() {
		l.s.merge(l.store, l.i, c.Rule, g, total, false)
	}
	reply := t.replied(c, l, t.ns(now), reported, false)
	if h.unconfirmed != 0 {
		l.s.releaseEmpty(h.unconfirmed)
	}
	return reply
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
	return t.replied(c, &l, t.ns(now), reported, announcement)
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
func (l *lookup) count(t *core, r *algorithm.Spec, hits uint32, estimate float64, now int64) {
	s, st, i, at := l.s, l.store, l.i, l.at
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
