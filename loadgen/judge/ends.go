package judge

import (
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Ends is how blocks ended, whoever decided them: an edge, the PoP, an operator. The proper end of
// a block is the later of the timeout's and the moment when the exact log would admit another
// request; of an operator's, what the operator said. A block ended early if an edge that had it in
// force admitted a request before, or was told an earlier end; it ended late if a request was
// refused under it afterwards, or if an edge told a later end. Where edges start a block of one
// source before they learn of each other, it may end at any of their ends.
//
// An edge that has not learned of a block yet, or was restarted since, ends nothing: what it admits
// is late knowledge, which time_to_block and overshoot show. Blocks that began wrongly have no
// proper end: they are in wrongly_limited.
type Ends struct {
	Blocks  uint64    `json:"blocks"` // that began rightly
	Early   uint64    `json:"early"`
	Late    uint64    `json:"late"`
	EarlyBy Quantiles `json:"early_by"` // seconds
	LateBy  Quantiles `json:"late_by"`
}

// Lost is an edge that has lost what it knew: it was killed or restarted.
type Lost struct {
	Edge int16
	At   time.Duration
}

// blockEnd is what the end of a source's block is held against.
type blockEnd struct {
	known  bool   // there is one, under way or over
	began  int64  // the first of the starts that it consists of
	due    int64  // the earliest of their proper ends
	latest int64  // and the latest
	before int64  // until when an older block may have refused
	told   int64  // the latest end that an edge told
	holds  uint64 // edges that have it in force
	joined int64  // when the last of them came to have it

	admitted        bool  // a request, early
	earlyBy, lateBy int64 // the most so far; 0: neither
}

// ends gathers how blocks ended.
type ends struct {
	blocks         uint64
	early, late    *hdrhistogram.Histogram
	mostEarly, max int64
}

func newEnds() ends { return ends{early: newTimes(), late: newTimes()} }

func (e *ends) figures() *Ends {
	return &Ends{
		Blocks: e.blocks, Early: uint64(e.early.TotalCount()), Late: uint64(e.late.TotalCount()),
		EarlyBy: quantilesOf(e.early, e.mostEarly, 1e9), LateBy: quantilesOf(e.late, e.max, 1e9),
	}
}

// take enters the end of a block that is over.
func (e *ends) take(b *blockEnd) {
	if !b.known {
		return
	}
	e.blocks++
	if b.earlyBy > 0 {
		keep(e.early, &e.mostEarly, b.earlyBy)
	}
	if b.lateBy > 0 {
		keep(e.late, &e.max, b.lateBy)
	}
}

// tolerance is how far from its proper end a block may end.
func (j *DeployedJudge) tolerance() int64 { return int64(j.o.Slack + j.o.Clocks) }

// lasts is how long a block should last that was told to last so long: the timeout, or one of a
// repeater's.
func (j *DeployedJudge) lasts(told int64) int64 {
	length := j.timeout
	for _, l := range j.o.Escalate {
		if l := int64(l); l > length && l <= told+j.tolerance() {
			length = l
		}
	}
	return length
}

// begins notes a block that began rightly at that time and should last so long, or until the log
// would admit another request: a new one, or one more start of that under way.
func (j *DeployedJudge) begins(s *deployedState, at, length, below int64) {
	due, latest := max(at+length, below-int64(j.o.Grain)), max(at+length, below+int64(j.o.Grain))
	if b := &s.end; b.known && at < b.due {
		b.due, b.latest = min(b.due, due), max(b.latest, latest)
	} else {
		j.ends.take(b)
		*b = blockEnd{known: true, began: at, due: due, latest: latest, before: j.before(s),
			told: never}
	}
	s.rightUntil = max(s.rightUntil, at+length, below)
}

// before is until when blocks that are older than the next may refuse.
func (j *DeployedJudge) before(s *deployedState) int64 {
	before := max(s.rightUntil, s.wrongUntil)
	if s.end.known {
		before = max(before, s.end.told)
	}
	return before
}

// ordered notes a block that an operator set, in place of whatever was in force.
func (j *DeployedJudge) ordered(s *deployedState, now, until int64) {
	s.ordered = true
	if b := &s.end; !b.known || now >= b.due || b.due != until || s.rightUntil != until {
		j.ends.take(b)
		*b = blockEnd{known: true, began: now, due: until, latest: until, before: j.before(s),
			told: until}
	}
	s.rightUntil = until
}

// joins notes that an edge has the block in force.
func (b *blockEnd) joins(edge int16, now int64) {
	if edge < 0 || edge > 63 || b.holds>>edge&1 == 1 {
		return
	}
	b.holds |= 1 << edge
	b.joined = now
}

// says holds an end that was told at now of a block that lasts so long at most against the latest
// proper one.
func (j *DeployedJudge) says(s *deployedState, now, until, length int64) {
	b := &s.end
	b.told = max(b.told, until)
	proper := max(b.latest, now+length, s.full.until+int64(j.o.Grain))
	if until > proper+j.tolerance()+int64(j.o.Grace) {
		b.lateBy = max(b.lateBy, until-proper)
	}
}

// short holds an end that was told against the earliest proper one.
func (j *DeployedJudge) short(s *deployedState, proper, until int64) {
	b := &s.end
	if until < proper-j.tolerance() {
		b.earlyBy = max(b.earlyBy, proper-until)
	}
}

// refused notes an edge's refusal that is right, with the end that it told, or 0: it has the block
// in force.
func (j *DeployedJudge) refused(s *deployedState, d *Decision, started bool) {
	now, until, b := int64(d.At), int64(d.Until), &s.end
	switch {
	case !b.known || d.Verdict == Walled:
	case started:
		b.joins(d.Edge, now)
		if until > 0 {
			j.says(s, now, until, j.lasts(until-now))
			j.short(s, b.due, until)
		}
	default:
		if now >= b.before {
			b.joins(d.Edge, now)
		}
		if until > 0 {
			j.says(s, now, until, j.longest)
		}
	}
}

// reported takes the news that an edge has a block in force.
func (j *DeployedJudge) reported(s *deployedState, f *InForce, until int64) {
	now, start, b := int64(f.At), int64(f.Start), &s.end
	if !b.known {
		return
	}
	fresh := start >= b.began-j.tolerance()
	if fresh || until >= b.due-j.tolerance() {
		b.joins(f.Edge, now)
	}
	if f.Operator {
		return
	}
	j.says(s, now, until, j.lasts(until-start))
	proper := start + j.lasts(until-start)
	if fresh {
		proper = max(proper, b.due)
	}
	j.short(s, proper, until)
}

// endsEarly reports whether an edge that admits a request has ended the block early by that, and
// did not before.
func (j *DeployedJudge) endsEarly(s *deployedState, edge int16, now int64) bool {
	b := &s.end
	if now >= b.due || edge < 0 || edge > 63 || b.holds>>edge&1 == 0 ||
		now < b.joined+int64(j.o.Grace) {
		return false
	}
	by := b.due - now
	if by <= j.tolerance() {
		return false
	}
	first := !b.admitted
	b.admitted, b.earlyBy = true, max(b.earlyBy, by)
	return first
}

// endsLate notes a refusal, which was at some time from since on, if it is under a block that
// should have ended.
func (j *DeployedJudge) endsLate(s *deployedState, since int64) {
	b := &s.end
	if !b.known || since >= b.told || since < s.wrongUntil {
		return
	}
	j.pastEnd(s, since)
}

// pastEnd notes a refusal under the block, if that should have ended.
func (j *DeployedJudge) pastEnd(s *deployedState, since int64) {
	b := &s.end
	if by := since - max(s.rightUntil, b.latest); by > j.tolerance()+int64(j.o.Grace) {
		b.lateBy = max(b.lateBy, by)
	}
}

// lose forgets what edges knew that have lost it by now.
func (j *DeployedJudge) lose(now int64) {
	for len(j.lost) > 0 && int64(j.lost[0].At) <= now {
		j.forget(1 << j.lost[0].Edge)
		j.lost = j.lost[1:]
	}
}

func (j *DeployedJudge) forget(edges uint64) {
	for i := range j.states {
		j.states[i].end.holds &^= edges
	}
}

func sortLost(lost []Lost) []Lost {
	lost = slices.Clone(lost)
	slices.SortStableFunc(lost, func(a, b Lost) int { return int(a.At - b.At) })
	return lost
}
