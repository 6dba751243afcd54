package judge

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/loadgen/trace"
)

// DeployedJudge judges in deployed mode: against an exact log, for each source, of the requests
// that this limiter itself counted (admitted), over all its edges, in the order of time.
//
//   - To admit is wrong if exact > limit, the request included.
//   - To start a block is wrong if exact <= limit, the refused request included.
//   - A refusal under a block is as right or wrong as that block's start. It asked no counter and
//     is no decision of its own: those that follow from a wrong start are counted apart
//     (wrongly_mitigated), so that one wrong decision about a busy source counts as one.
//   - A connection that an edge closes because of a block, or the kernel refuses, is a refusal
//     under that block.
//   - The log may be another exact truth: Options.Truth. It has refused requests as well where the
//     limiter counts them: Options.Refused.
//   - A refusal after a block's proper end is wrong. The proper end is the later of the timeout's
//     and the moment when the exact log would admit another request.
//   - The first admission before it is as wrong, at an edge that has the block in force. Ends has
//     both by themselves.
//
// Several edges may start a block of the same source before they learn of each other; each start is
// judged, and a refusal is right while any block that was rightly started has not ended. A
// free-running ideal limiter is not the truth here, since after one decision that differs its
// blocks are out of phase for ever; its totals are reported for the eye.
//
// It is not safe for concurrent use.
type DeployedJudge struct {
	o       Options
	window  int64
	timeout int64
	running uint64 // a bit for each edge
	fed     bool   // the limiter reports what is in force

	tally     tally
	ideal     Ideal
	overshoot *hdrhistogram.Histogram
	most      int64 // overshoot
	clocks    [2]clock
	ends      ends
	// That a block may last
	longest int64
	lost    []Lost // still to come
	// Where requests wait for their turn
	waits waits
	// Options.Ideal of this run
	formula  func(source int32, at time.Duration, counted bool) (over bool)
	states   []deployedState
	series   seriesSet
	timeline Timeline
}

const never = math.MinInt64

// The clocks by which times to block are taken.
const (
	byFormula = iota
	byLog
)

// stretch is a time from until before until.
type stretch struct{ from, until int64 }

func (s stretch) has(at int64) bool { return at >= s.from && at < s.until }

// extend makes it last until then, or begin anew if it had ended.
func (s *stretch) extend(now, until int64) {
	if now >= s.until {
		s.from = now
	}
	s.until = until
}

type deployedState struct {
	log Account // what was counted

	// When the log last held the limit or more, so that one more request would have been over
	full stretch
	over stretch // when it last held more than the limit

	rightUntil int64 // proper end of the rightly started blocks
	wrongUntil int64 // end of those wrongly started
	uncounted  bool  // the wrong start was reported, but no decision of it has been seen yet

	end     blockEnd
	ordered bool // an operator has blocked the source

	// The block under way, for the figures per block: it begins with a source's first refusal and
	// ends with the last known end of any edge's mitigation.
	open       bool
	blockUntil int64
	excess     uint32 // admitted above the limit, up to and during the block
	known      uint64 // edges where the block is in force
	crossings  [2]crossing

	passed Account // what was admitted alone, where the log has more: Options.Refused

	freeLog   Account // of the ideal limiter
	freeUntil int64

	most, refused, wrong uint32
	admitted             uint32 // at most so many in any window
	good                 uint32 // refused, and called good
	exceeded             bool   // the limit, at some time
	seen, hasAbuser      bool
}

// NewDeployedJudge returns a judge that has seen nothing.
func NewDeployedJudge(o Options) *DeployedJudge {
	o.check()
	j := &DeployedJudge{
		o: o, window: int64(o.Window), timeout: int64(o.Timeout),
		running:   math.MaxUint64 >> (64 - o.Edges),
		tally:     newTally(o.Limit),
		overshoot: hdrhistogram.New(1, 1_000_000_000, 3),
		clocks:    [2]clock{newClock(), newClock()},
		ends:      newEnds(),
		longest:   max(int64(o.Timeout), int64(slices.Max(append(o.Escalate, 0)))),
		lost:      sortLost(o.Lost),
		waits:     newWaits(&o.Truth),
		series:    newSeriesSet(o.Watch, o.Limit),
	}
	return j
}

// Running says which edges run from now on: edge i if bit i is set. At the start it is all of
// Options.Edges.
func (j *DeployedJudge) Running(edges uint64) {
	if gone := j.running &^ edges; gone != 0 {
		j.forget(gone)
	}
	j.running = edges
}

func (j *DeployedJudge) state(source int32) *deployedState {
	for int(source) >= len(j.states) {
		old := len(j.states)
		j.states = append(j.states, make([]deployedState, max(1024, int(source)+1-old, old))...)
		for i := old; i < len(j.states); i++ {
			s := &j.states[i]
			s.full, s.over = stretch{never, never}, stretch{never, never}
			s.rightUntil, s.wrongUntil, s.freeUntil = never, never, never
			s.crossings = [2]crossing{{at: never}, {at: never}}
		}
	}
	return &j.states[source]
}

// Decide takes one decision, not earlier than those before.
func (j *DeployedJudge) Decide(d *Decision) {
	t := &j.tally
	t.requests++
	s := j.state(d.Source)
	s.seen = true
	now := int64(d.At)
	step := j.timeline.Index(now)
	if d.Verdict == Failed {
		t.failed++
		j.timeline.Failed[step]++
		return
	}
	j.lose(now)
	j.free(s, now)
	j.expire(s, now)
	exact := s.log.Drop(&j.o.Truth, now, j.window) + 1
	over := exact > j.o.Limit

	crossed := [2]bool{byFormula: over, byLog: over}
	if j.o.Ideal != nil {
		if j.formula == nil {
			j.formula = j.o.Ideal()
		}
		crossed[byFormula] = j.formula(d.Source, d.At, d.Verdict == Admitted)
	}
	j.cross(d.Source, s, now, crossed)

	if d.Role == trace.Abuser {
		s.hasAbuser = true
	}
	if d.Verdict == Admitted || d.Verdict == Limited {
		s.most = max(s.most, exact)
		s.exceeded = s.exceeded || over
		if !math.IsNaN(d.Estimate) {
			t.gap(d.Estimate, exact, exact >= j.o.Limit/2+j.o.Limit%2)
		}
	}
	if j.series.watched != nil {
		j.series.add(d.Source, now, d.Estimate, exact)
	}
	if d.Verdict == Admitted {
		j.timeline.Admitted[step]++
		early := j.endsEarly(s, d.Edge, now) && !over
		if over || early {
			j.timeline.Wrong[step]++
		}
		if early {
			s.wrong++
			t.miss(false, exact)
		}
		j.admitted(s, now, exact, over)
		if j.o.Truth.Queue > 0 {
			j.waits.add(&j.o.Truth, int64(d.Delay), s.log.turn(&j.o.Truth, j.o.Limit))
		}
		return
	}

	t.refused++
	s.refused++
	j.timeline.Refused[step]++
	if d.Role == trace.Good {
		s.good++
	}
	finding := foundRight
	switch {
	case d.Verdict == Closed:
		t.closed++
		if !over && now >= s.rightUntil {
			finding = foundWrong
		}
	case d.Verdict == Shed, d.Verdict == Walled:
		t.mitigated++
		j.endsLate(s, int64(d.Since))
		finding = j.underBlock(s, int64(d.Since), now, 0, over)
	case d.Verdict == Mitigated && j.timeout > 0:
		t.mitigated++
		j.endsLate(s, now)
		finding = j.underBlock(s, now, now, int64(d.Until), over)
	default:
		if d.Verdict == Mitigated {
			t.mitigated++ // of a throttled source: judged by itself
		}
		finding = j.starts(s, now, int64(d.Until), over)
	}
	if (d.Verdict == Shed || d.Verdict == Walled || d.Verdict == Mitigated && j.timeout > 0) &&
		finding != foundWrong {
		t.underBlock++
	}
	if j.timeout > 0 && finding == foundRight && d.Verdict != Closed {
		j.refused(s, d, d.Verdict == Limited)
	}
	switch finding {
	case foundWrong:
		s.wrong++
		j.timeline.Wrong[step]++
		t.miss(true, min(exact, j.o.Limit))
	case foundFollows:
		s.wrong++
		t.wronglyMitigated++
	}
	if j.o.Refused {
		j.counted(s, now, exact)
	}
	switch d.Verdict {
	case Closed:
		return
	case Shed: // which says no end
		t.shed++
		return
	case Walled:
		t.walled++
		j.walled(s, now)
		return
	}
	until := int64(d.Until)
	if until <= now {
		until = now + j.timeout
	}
	if j.timeout == 0 {
		until = math.MaxInt64 // a throttled source's block ends when it is admitted again
	}
	j.opened(s, until)
	// Whoever refuses knows of it, whether somebody told that or not
	j.inForce(d.Source, s, d.Edge, now)
}

// admitted counts a request that passed.
func (j *DeployedJudge) admitted(s *deployedState, now int64, exact uint32, over bool) {
	if over {
		s.wrong++
		s.excess++
		j.tally.miss(false, exact)
	} else {
		if s.open && j.timeout == 0 {
			j.closed(s)
		}
		if !s.open {
			s.excess = 0
		}
	}
	j.counted(s, now, exact)
	most := exact
	if j.o.Refused {
		most = s.passed.Drop(&j.o.Truth, now, j.window) + 1
		s.passed.Push(&j.o.Truth, now)
	}
	s.admitted = max(s.admitted, most) // a window that holds the most ends with an admission
}

// counted enters a request in the exact log, which holds that many with it.
func (j *DeployedJudge) counted(s *deployedState, now int64, exact uint32) {
	s.log.Push(&j.o.Truth, now)
	if exact >= j.o.Limit {
		s.full.extend(now, s.log.below(&j.o.Truth, j.o.Limit, now, j.window))
	}
	if exact > j.o.Limit {
		s.over.extend(now, s.log.below(&j.o.Truth, j.o.Limit+1, now, j.window))
	}
}

// finding is what a judge says of a refusal.
type finding uint8

const (
	foundRight finding = iota
	foundWrong         // a decision of its own, and wrong
	// No decision of its own: it follows from a wrong one that has been counted
	foundFollows
)

// starts judges a refusal that an edge decided itself, which starts a block there.
func (j *DeployedJudge) starts(s *deployedState, now, until int64, over bool) finding {
	if over {
		j.begins(s, now, j.lasts(until-now), s.log.below(&j.o.Truth, j.o.Limit, now, j.window))
		return foundRight
	}
	if now < s.rightUntil {
		return foundRight // another edge's block was in force, and this one had not learned of it
	}
	s.wrongUntil, s.uncounted = max(s.wrongUntil, until, now+j.timeout), false
	return foundWrong
}

// underBlock judges a refusal without a look at a counter, which was at some time from since to
// now.
func (j *DeployedJudge) underBlock(s *deployedState, since, now, until int64, over bool) finding {
	switch {
	case s.rightUntil != never && since < s.rightUntil+int64(j.o.Slack):
		return foundRight
	case since < s.wrongUntil && s.uncounted:
		s.uncounted = false
		return foundWrong
	case since < s.wrongUntil:
		return foundFollows
	}
	// The block's start was not reported. So no refused request started it, but the PoP's total,
	// and that was over the limit or it was wrong.
	start, reason := now, over
	if until > 0 {
		start = min(now, until-j.timeout)
		reason = s.over.has(start)
	}
	switch {
	case start < s.rightUntil:
		j.pastEnd(s, since)
		return foundWrong // a block we know of, past its proper end
	case !reason:
		s.wrongUntil = max(until, now+j.timeout)
		return foundWrong
	}
	j.rightly(s, start, until)
	if now < s.rightUntil+int64(j.o.Slack) {
		return foundRight
	}
	return foundWrong
}

// rightly notes a block that began at start, was told to end then, and was right.
func (j *DeployedJudge) rightly(s *deployedState, start, until int64) {
	s.exceeded = true
	s.most = max(s.most, j.o.Limit+1)
	j.begins(s, start, j.lasts(until-start), s.full.until)
}

// free runs the ideal limiter.
func (j *DeployedJudge) free(s *deployedState, now int64) {
	if s.freeUntil != never && now < s.freeUntil {
		j.ideal.Refused++
		return
	}
	if s.freeLog.Drop(&j.o.Truth, now, j.window) >= j.o.Limit {
		s.freeUntil = max(now+j.timeout, s.freeLog.below(&j.o.Truth, j.o.Limit, now, j.window))
		j.ideal.Refused++
		j.ideal.Blocks++
		return
	}
	j.ideal.Admitted++
	s.freeLog.Push(&j.o.Truth, now)
}

// Figures is what came of all decisions. Blocks still under way are taken as ended.
func (j *DeployedJudge) Figures() Figures {
	for i := range j.states {
		s := &j.states[i]
		if s.open {
			j.closed(s)
		}
		j.ends.take(&s.end)
		s.end = blockEnd{}
	}
	t := j.tally.clone()
	for i := range j.states {
		s := &j.states[i]
		if !s.seen {
			continue
		}
		most, refused := s.most, s.refused
		if s.exceeded {
			most = max(most, j.o.Limit+1)
		} else if s.ordered {
			refused = 0 // not by what the limiter counted
		}
		t.source(most, refused)
		t.refusedGood += uint64(s.good)
		if s.hasAbuser {
			t.collateral += uint64(s.good)
		}
	}
	f := t.figures()
	j.worstWindow(&f)
	f.Admitted = t.requests - t.failed - t.refused
	f.Overshoot = quantilesOf(j.overshoot, j.most, 1)
	if j.timeout > 0 {
		f.Ends = j.ends.figures()
	}
	f.TimeToBlock, f.TimeToBlockExact = j.clocks[byFormula].times(), j.clocks[byLog].times()
	if !j.fed && j.o.Edges > 1 {
		f.TimeToBlock.Partly, f.TimeToBlockExact.Partly = 0, 0
	}
	if t := &j.o.Truth; t.Queue > 0 {
		f.Waits = j.waits.figures(t)
	}
	ideal := j.ideal
	f.FreeRunningIdeal = &ideal
	f.Series = j.series.list()
	timeline := j.timeline
	f.Timeline = &timeline
	return f
}

// worstWindow enters the most that was admitted of one source in any window, beside what may be.
func (j *DeployedJudge) worstWindow(f *Figures) {
	for i := range j.states {
		admitted, bound := j.states[i].admitted, uint32(0)
		if admitted == 0 {
			continue
		}
		if j.o.Bound != nil {
			if bound = j.o.Bound(int32(i)); admitted > bound {
				f.BeyondBound++
			}
		}
		if admitted > f.WorstWindow || admitted == f.WorstWindow && bound < f.Bound {
			f.WorstWindow, f.Bound = admitted, bound
		}
	}
	f.WorstExcess = max(f.WorstWindow, j.o.Limit) - j.o.Limit
}

// Worst is the sources with the most wrong decisions, at most n of them, the worst first.
func (j *DeployedJudge) Worst(n int) []int32 {
	return worst(n, len(j.states), func(i int32) uint32 { return j.states[i].wrong })
}
