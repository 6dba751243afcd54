package loadgen

import (
	"fmt"
	"math"
	"time"
)

// Mode is how a limiter is judged.
type Mode uint8

const (
	// Estimator is the open loop: nothing is ever blocked, every request counts, and at every one the estimate is held
	// against the exact count. A decision is wrong if one says over the limit and the other does not. Published figures
	// are comparable under this reading.
	Estimator Mode = iota
	// Deployed is the closed loop: the limiter blocks as configured, and what it decided is held against an exact log of
	// what it itself counted, over all its edges. See DeployedJudge.
	Deployed
)

func (m Mode) String() string { return [...]string{"estimator", "deployed"}[m] }

// ParseMode reads "estimator" or "deployed".
func ParseMode(s string) (Mode, error) {
	switch s {
	case "estimator":
		return Estimator, nil
	case "deployed":
		return Deployed, nil
	}
	return 0, fmt.Errorf("mode %q: want estimator or deployed", s)
}

// JudgeOptions is what a judge knows of the limiter: the rule, and who decides. All times of a judge are nanoseconds or
// durations on one clock for all edges.
type JudgeOptions struct {
	Limit   uint32
	Window  time.Duration
	Timeout time.Duration // of a mitigation; 0: throttled
	Edges   int           // how many run; 0: 1; at most 64

	// Slack is how much later than its proper end a block may refuse without being wrong: zero in virtual time; live,
	// how badly a decision's time is known.
	Slack time.Duration

	// Ideal tells whether the limiter's formula with perfect knowledge finds a source over its limit with the request of
	// this moment, and, if the request was counted, counts it. It is asked at every decision, in order, and says
	// when a source crosses its limit, from which time_to_block is measured. Nil: the exact log says it.
	Ideal func(source int32, at time.Duration, counted bool) (over bool)

	// Reach tells which edges a source's requests may meet at a time, as a set of bits: those of its PoP; nil: all. A block is in
	// force everywhere when these know of it.
	Reach func(source int32, at time.Duration) uint64

	// Bound is how many requests of a source may be admitted in any window, as the design states it; nil: it is not checked.
	Bound func(source int32) uint32

	Watch []int32 // sources whose estimate and exact count are kept as a Series
}

// exactLog is the timestamps of a source that lie in the window, oldest first: a ring that doubles when full and holds
// no more than the busiest window did.
type exactLog struct {
	ring []int64 // length a power of two
	head uint32
	n    uint32
}

// drop forgets the stamps that have left the window when the time is now. A stamp exactly one window old has left it.
func (l *exactLog) drop(now, window int64) {
	mask := uint32(len(l.ring) - 1)
	for l.n > 0 && l.ring[l.head] <= now-window {
		l.head = (l.head + 1) & mask
		l.n--
	}
}

// push adds a stamp, which is no earlier than those before.
func (l *exactLog) push(at int64) {
	if int(l.n) == len(l.ring) {
		ring := make([]int64, max(4, 2*len(l.ring)))
		k := copy(ring, l.ring[l.head:])
		copy(ring[k:], l.ring[:l.head])
		l.ring, l.head = ring, 0
	}
	l.ring[(l.head+l.n)&uint32(len(l.ring)-1)] = at
	l.n++
}

// at is the i-th stamp, the oldest being 0.
func (l *exactLog) at(i uint32) int64 { return l.ring[(l.head+i)&uint32(len(l.ring)-1)] }

// below is when the log will hold less than n stamps if nothing else comes: the present if it does already.
func (l *exactLog) below(n uint32, now, window int64) int64 {
	if l.n < n {
		return now
	}
	return l.at(l.n-n) + window
}

// EstimatorJudge judges in estimator mode. It keeps, for each source, the timestamps of one window; nothing in it waits,
// locks or (once the rings have grown) allocates. It is not safe for concurrent use: give each goroutine its own and Add
// them up.
type EstimatorJudge struct {
	limit  uint32
	half   uint32 // counts from here on are hot
	window int64
	tally  tally
	states []estimatorState
	spare  [][]int64
	series seriesSet
}

type estimatorState struct {
	log   exactLog
	most  uint32 // largest exact count
	said  uint32 // requests found over the limit
	wrong uint32
	seen  bool
}

// NewEstimatorJudge returns a judge that has seen nothing.
func NewEstimatorJudge(o JudgeOptions) *EstimatorJudge {
	o.check()
	return &EstimatorJudge{
		limit: o.Limit, half: o.Limit/2 + o.Limit%2, window: int64(o.Window),
		tally:  newTally(o.Limit),
		series: newSeriesSet(o.Watch, o.Limit),
	}
}

func (o *JudgeOptions) check() {
	if o.Limit == 0 || o.Window <= 0 || o.Edges > 64 || o.Timeout < 0 {
		panic(fmt.Sprintf("loadgen: judge: limit %d, window %v, timeout %v, %d edges", o.Limit, o.Window, o.Timeout, o.Edges))
	}
	if o.Edges == 0 {
		o.Edges = 1
	}
}

// Observe takes one request: of the source at the time at (nanoseconds, not before the source's last), when the limiter's
// estimate, this request included, was estimate (NaN: not known) and it found the source over its limit or not. The
// exact count comes back.
func (j *EstimatorJudge) Observe(source int32, at int64, estimate float64, over bool) (exact uint32) {
	if int(source) >= len(j.states) {
		j.grow(source)
	}
	s := &j.states[source]
	if !s.seen {
		j.begin(s)
	}
	s.log.drop(at, j.window)
	s.log.push(at)
	exact = s.log.n
	s.most = max(s.most, exact)

	t := &j.tally
	t.requests++
	if !math.IsNaN(estimate) {
		t.gap(estimate, exact, exact >= j.half)
	}
	if over {
		s.said++
		t.refused++
	}
	if over != (exact > j.limit) {
		s.wrong++
		t.miss(over, exact)
	}
	if j.series.watched != nil {
		j.series.add(source, at, estimate, exact, over)
	}
	return exact
}

// Decide is Observe for a Decision. One that failed is only counted.
func (j *EstimatorJudge) Decide(d *Decision) {
	if d.Verdict == Failed {
		j.tally.failed++
		return
	}
	j.Observe(d.Source, int64(d.At), d.Estimate, d.Over)
}

func (j *EstimatorJudge) grow(source int32) {
	more := make([]estimatorState, max(int(source)+1, 2*len(j.states), 1024))
	copy(more, j.states)
	j.states = more
}

func (j *EstimatorJudge) begin(s *estimatorState) {
	s.seen = true
	if last := len(j.spare) - 1; last >= 0 {
		s.log.ring, j.spare = j.spare[last], j.spare[:last]
	}
}

// Done says that nothing more comes of the source, so that its memory serves another: a stream that goes source by source
// is judged in the memory of one. A source of that number that is observed later is somebody else.
func (j *EstimatorJudge) Done(source int32) {
	s := &j.states[source]
	if !s.seen {
		return
	}
	j.tally.source(s.most, s.said)
	j.spare = append(j.spare, s.log.ring)
	*s = estimatorState{}
}

// Add takes over what another judge of other sources has found. Neither must be used for more requests of the same sources.
func (j *EstimatorJudge) Add(other *EstimatorJudge) {
	for i := range other.states {
		other.Done(int32(i))
	}
	j.tally.add(&other.tally)
}

// Figures is what came of all that was observed.
func (j *EstimatorJudge) Figures() Figures {
	t := j.tally.clone()
	for i := range j.states {
		if s := &j.states[i]; s.seen {
			t.source(s.most, s.said)
		}
	}
	f := t.figures()
	f.Admitted = t.requests - t.failed - t.refused
	f.Series = j.series.list()
	return f
}

// Worst is the sources with the most wrong decisions, at most n of them, the worst first.
func (j *EstimatorJudge) Worst(n int) []int32 {
	return worst(n, len(j.states), func(i int32) uint32 { return j.states[i].wrong })
}
