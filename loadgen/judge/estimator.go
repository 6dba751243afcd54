package judge

import "math"

// EstimatorJudge judges in estimator mode. It keeps, for each source, the timestamps of one window;
// nothing in it waits, locks or (once the rings have grown) allocates. It is not safe for
// concurrent use: give each goroutine its own and Add them up.
type EstimatorJudge struct {
	limit  uint32
	half   uint32 // counts from here on are hot
	window int64
	tally  tally
	states PerSource[estimatorState]
	spare  [][]int64
	series seriesSet
}

type estimatorState struct {
	log   Log
	most  uint32 // largest exact count
	overs uint32 // requests found over the limit
	wrong uint32
	seen  bool
}

// NewEstimatorJudge returns a judge that has seen nothing.
func NewEstimatorJudge(o Options) *EstimatorJudge {
	o.check()
	return &EstimatorJudge{
		limit: o.Limit, half: o.Limit/2 + o.Limit%2, window: int64(o.Window),
		tally:  newTally(o.Limit),
		series: newSeriesSet(o.Watch, o.Limit),
	}
}

// Observe takes one request: of the source at the time at (nanoseconds, not before the source's
// last), when the limiter's estimate, this request included, was estimate (NaN: not known) and it
// found the source over its limit or not. The exact count comes back.
func (j *EstimatorJudge) Observe(source int32, at int64, estimate float64,
	over bool) (exact uint32) {
	s := j.states.Of(source)
	if !s.seen {
		j.begin(s)
	}
	s.log.Drop(at, j.window)
	s.log.Push(at)
	exact = s.log.n
	s.most = max(s.most, exact)

	t := &j.tally
	t.requests++
	if !math.IsNaN(estimate) {
		t.gap(estimate, exact, exact >= j.half)
	}
	if over {
		s.overs++
		t.refused++
	}
	if over != (exact > j.limit) {
		s.wrong++
		t.miss(over, exact)
	}
	if j.series.watched != nil {
		j.series.add(source, at, estimate, exact)
	}
	return exact
}

// Decide is Observe for a Decision. One that failed is only counted.
func (j *EstimatorJudge) Decide(d *Decision) {
	if d.Verdict == Failed {
		j.tally.requests++
		j.tally.failed++
		return
	}
	j.Observe(d.Source, int64(d.At), d.Estimate, d.Over)
}

func (j *EstimatorJudge) begin(s *estimatorState) {
	s.seen = true
	if last := len(j.spare) - 1; last >= 0 {
		s.log.ring, j.spare = j.spare[last], j.spare[:last]
	}
}

// Done says that nothing more comes of the source, so that its memory serves another: a stream that
// goes source by source is judged in the memory of one. A source of that number that is observed
// later is somebody else.
func (j *EstimatorJudge) Done(source int32) {
	s := j.states.Of(source)
	if !s.seen {
		return
	}
	j.tally.source(s.most, s.overs)
	j.spare = append(j.spare, s.log.ring)
	*s = estimatorState{}
}

// Add takes over what another judge of other sources has found. Neither must be used for more
// requests of the same sources.
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
			t.source(s.most, s.overs)
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
