package limiter

import (
	"math"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/inflight"
)

// While no node answers, each edge counts alone, and all edges together would admit a source the whole limit each. A
// rule whose posture is Share has each of them admit its part: limit / edges.
//
// What an edge has counted by then is the PoP's, and leaves the window little by little, while what comes is a part only. So the limit becomes
// the part little by little as well, over a window:
//
//	limit * (1 - gone * (1 - 1/edges))    gone: how much of a window has passed since nobody answers, at most 1
//
// A source that keeps to the limit and comes to all edges alike is refused at no time: what is known of it falls by the same line. One that
// keeps to a single edge has that edge's part.

// part is what counts a request: by this edge's part of the limit, where the rule says so and this edge is alone.
func (l *Limiter) part(r *RuleResult, now time.Time) *algorithm.Spec {
	if r.Rule.OnStoreFailure == Share && l.Alone != nil {
		if edges, since := l.Alone(); !since.IsZero() && edges > 1 {
			return partOf(r.CountedBy(), edges, now.Sub(since))
		}
	}
	return r.CountedBy()
}

// partOf is a rule by one edge's part of its limit, so long after it began to count alone.
func partOf(r *algorithm.Spec, edges int, alone time.Duration) *algorithm.Spec {
	gone := min(max(float64(alone)/float64(r.Window), 0), 1)
	part := float64(r.Limit) * (1 - gone*(1-1/float64(edges)))
	return r.With(uint32(max(math.Floor(part+1e-6), 1)), r.Estimate)
}

// partInFlight is a rule's concurrency, or this edge's part of it. Requests of other edges are not counted here, so the
// part applies at once.
func (l *Limiter) partInFlight(r *Rule) *inflight.Concurrency {
	if r.OnStoreFailure == Share && l.Alone != nil {
		if edges, since := l.Alone(); !since.IsZero() && edges > 1 {
			return &inflight.Concurrency{Name: r.InFlight.Name, Limit: max(r.InFlight.Limit/int32(edges), 1)}
		}
	}
	return r.InFlight
}
