package judge

import (
	"math"
	"time"

	"sluice/loadgen/trace"
)

// TwoCounters is the limiter that every figure is held against: two plain counters for each source,
// one edge, the estimate not rounded (Cloudflare, 2017).
//
//	estimate = previous * (1 - elapsed/window) + current
//
// Windows are counted from 1970. It is the plainest form of it and shares no code with the product.
type TwoCounters struct {
	limit           float64
	window, timeout int64
	start           int64 // of the run, since 1970
	states          PerSource[twoCounters]
}

type twoCounters struct {
	index             int64 // of the window that current counts
	previous, current uint32
	until             int64 // blocked
}

// NewTwoCounters returns one for the rule of o. The run starts at that instant.
func NewTwoCounters(o Options, start time.Time) *TwoCounters {
	b := &TwoCounters{limit: float64(o.Limit), window: int64(o.Window), timeout: int64(o.Timeout)}
	if !start.IsZero() {
		b.start = start.UnixNano() % b.window // all that matters of it
	}
	return b
}

// Estimate counts a request, not before the source's last, and returns the estimate with it and
// whether that is over the limit.
func (b *TwoCounters) Estimate(source int32, at int64) (estimate float64, over bool) {
	c, share := b.roll(source, at)
	c.current++
	estimate = float64(c.previous)*share + float64(c.current)
	return estimate, estimate > b.limit
}

// roll brings a source's counters to the present and returns the share of the previous window that
// still counts.
func (b *TwoCounters) roll(source int32, at int64) (*twoCounters, float64) {
	c := b.states.Of(source)
	now := b.start + at
	index := now / b.window
	switch {
	case index == c.index+1:
		c.index, c.previous, c.current = index, c.current, 0
	case index > c.index:
		c.index, c.previous, c.current = index, 0, 0
	}
	return c, 1 - float64(now-index*b.window)/float64(b.window)
}

// Decide answers a request as deployed: what is refused is not counted, and blocks the source for
// the timeout.
func (b *TwoCounters) Decide(source int32, at time.Duration) Decision {
	c, share := b.roll(source, int64(at))
	d := Decision{At: at, Source: source}
	if c.until > int64(at) {
		d.Verdict, d.Estimate, d.Until = Mitigated, math.NaN(), time.Duration(c.until)
		return d
	}
	d.Estimate = float64(c.previous)*share + float64(c.current+1)
	if d.Estimate > b.limit {
		d.Verdict, d.Over = Limited, true
		if b.timeout > 0 {
			c.until = int64(at) + b.timeout
			d.Until = time.Duration(c.until)
		}
		return d
	}
	c.current++
	return d
}

// Forget makes the source one that has sent nothing.
func (b *TwoCounters) Forget(source int32) {
	*b.states.Of(source) = twoCounters{}
}

// Baseline is what two plain counters on one edge would have done with a trace, and the sources
// they did worst with, at most eight: those worth an Options.Watch. Its times to block are by the
// same clocks as the limiter's: Options.Ideal.
func Baseline(t *trace.Trace, mode Mode, o Options) (f Figures, worst []int32) {
	o.Edges, o.Slack, o.Grace, o.Lost, o.Bound, o.Reach = 1, 0, 0, nil, nil, nil
	b := NewTwoCounters(o, t.Start)
	if mode == Estimator {
		j := NewEstimatorJudge(o)
		for i := range t.Requests {
			r := &t.Requests[i]
			estimate, over := b.Estimate(r.Source, int64(r.At))
			j.Observe(r.Source, int64(r.At), estimate, over)
		}
		return j.Figures(), j.Worst(worstSources)
	}
	j := NewDeployedJudge(o)
	for i := range t.Requests {
		r := &t.Requests[i]
		d := b.Decide(r.Source, r.At)
		d.Role = t.Role(i)
		j.Decide(&d)
	}
	return j.Figures(), j.Worst(worstSources)
}

const worstSources = 8
