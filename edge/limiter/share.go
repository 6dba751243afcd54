package limiter

import (
	"math"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/inflight"
)

// While no node answers, each edge counts alone, and all edges together would admit a source the
// whole limit each. A rule whose failure policy is Share has each of them admit its share of what is left:
//
//	(limit - known) / edges    rounded up, and at most limit / edges, rounded down, but 1 at least
//
// Known is what the tier has confirmed of the source, which leaves the window little by little and
// is gone after a window; only hits that it has not confirmed, this edge's own since nobody
// answers, are held against the share. So a source that begins meanwhile gets the share of the
// limit at once, and no more. One that keeps to the limit and comes to all edges alike is refused
// at no time: as much as leaves the window comes in, a share of it at each edge. One that keeps to
// a single edge has that edge's share.

// share is what counts a request: by this edge's share of the limit, where the rule says so and
// this edge is alone.
func (l *Limiter) share(r *RuleResult, now time.Time) *algorithm.Spec {
	if r.Rule.OnStoreFailure == Share && l.Alone != nil {
		if edges, since := l.Alone(); !since.IsZero() && edges > 1 {
			by := r.CountedBy()
			return shareOf(by, edges, l.Counters.Shared(by, r.Source, now))
		}
	}
	return r.CountedBy()
}

// shareOf is a rule by one edge's share of its limit, on top of so many hits that are known,
// weighed by their age. The sum is rounded, as estimates are that are compared with it, and they
// are weighed alike.
func shareOf(r *algorithm.Spec, edges int, known float64) *algorithm.Spec {
	left := max(math.Ceil((float64(r.Limit)-known)/float64(edges)), 0)
	most := max(r.Limit/uint32(edges), 1)
	e := r.Estimate
	if e == algorithm.Nearest {
		e = algorithm.Weighed
	}
	return r.With(uint32(math.Round(known+min(left, float64(most)))), e)
}

// shareInFlight is a rule's concurrency, or this edge's share of it. Requests of other edges are
// not counted here, so the share applies at once.
func (l *Limiter) shareInFlight(r *Rule) *inflight.Concurrency {
	if r.OnStoreFailure == Share && l.Alone != nil {
		if edges, since := l.Alone(); !since.IsZero() && edges > 1 {
			return &inflight.Concurrency{Name: r.InFlight.Name,
				Limit: max(r.InFlight.Limit/int32(edges), 1)}
		}
	}
	return r.InFlight
}
