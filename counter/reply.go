package counter

import (
	"time"

	"sluice/counter/algorithm"
)

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
//	               blocked; a number of groups, in three bits      touches
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
func (s *shard) replied(t *core, c Counter, st *store, i int, at algorithm.Position, now int64,
	reported uint64, announcement bool) (reply Reply) {
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

// setOver notes that a counter was over its limit, as far as so many groups to come, seven at most,
// go by that.
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
