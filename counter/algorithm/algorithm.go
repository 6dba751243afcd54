// Package algorithm says what the lanes of a counter mean: how many of the hits that they count a
// source still has against it under a rule, and when that will be fewer. It is arithmetic over a
// counter's groups of lanes, the newest first, a position in time, and what the table knows of when
// its own hits came. It has no table, no source and no tier.
//
// A Spec counts by one of four: a sliding window (window.go), fixed windows (fixed.go), a bucket
// (bucket.go), or a log of instants (exact.go). What lanes are, how they are reported, learned and
// kept in the tier is the same for all, so none of them costs the tier a command or a byte more
// than another. Each is a file, and a case in the functions of algorithm.go. A switch chooses among
// them; they are not called through functions, because what a function value is given is allocated.
package algorithm

import (
	"time"

	"sluice/counter/internal/histogram"
	"sluice/counter/internal/lanes"
)

type algorithm uint8

const (
	sliding algorithm = iota // the usual one, so it comes first
	fixed
	tokens
	exact
)

func (a algorithm) String() string { return [...]string{"sliding", "fixed", "bucket", "exact"}[a] }

// Algorithm names how a rule reads its lanes: "sliding", "fixed", "bucket" or "exact".
func (r *Spec) Algorithm() string { return r.algorithm.String() }

// Sliding reports whether a rule counts in a sliding window by its estimate.
func (r *Spec) Sliding() bool { return r.algorithm == sliding }

// Memory is what a counter has of its own hits beside its lanes.
type Memory uint8

const (
	Bins     Memory = iota // a histogram of when they came, if it is worth one
	Nothing                // lanes say all
	Level                  // their level in the last number of the record: Pour
	Instants               // a log of when each came, if there is room: Log
)

// Remembers says what a rule's counters have beside their lanes.
func (r *Spec) Remembers() Memory {
	return [...]Memory{Bins, Nothing, Level, Instants}[r.algorithm]
}

// Read is how much of its limit a counter has used at a position, not rounded. groups are all
// numbers of its record.
func (r *Spec) Read(groups []uint64, own histogram.Own, at Position) float64 {
	switch r.algorithm {
	case fixed:
		return r.inWindow(groups, at)
	case tokens:
		return r.level(groups, at)
	case exact:
		return r.inLog(groups, own, at)
	}
	v := r.view(groups, at.Lane)
	if v.oldest > 0 {
		v.own = own.Bins(r.Cut(at))
	}
	return r.estimate(v, at.Gone)
}

// Doubts reports whether Read may be more than there is, because no time is known of some hits.
// Then there is Sure.
func (r *Spec) Doubts() bool { return r.algorithm == sliding && r.Estimate == Nearest }

// Sure is Read under a rule that Doubts, but counts of hits of which no time is known only as many
// as are surely within the window. So it refuses no source for hits that others counted, and that
// may have come before.
func (r *Spec) Sure(groups []uint64, own histogram.Own, at Position) float64 {
	v := r.view(groups, at.Lane)
	if v.oldest > 0 {
		v.own = own.Bins(r.Cut(at))
	}
	return r.sure(v, at.Gone)
}

// Certain is how many hits of a counter certainly lie in a sliding window: Read by Lower, whatever
// the rule's estimate is.
func (r *Spec) Certain(groups []uint64, own histogram.Own, at Position) float64 {
	v := r.view(groups, at.Lane)
	if v.oldest > 0 {
		v.own = own.Bins(r.Cut(at))
	}
	return r.certain(v, at.Gone)
}

// RetryAfter is how long it takes until n more hits of a counter are within the limit if nothing
// else arrives and what is reserved is given back. More than 0, and at most a window and a group; a
// window where n alone is over the limit.
func (r *Spec) RetryAfter(groups []uint64, own histogram.Own, p Position, n float64) time.Duration {
	if n > float64(r.Limit) {
		return r.Window
	}
	switch r.algorithm {
	case fixed:
		return r.windowEnds(p)
	case tokens:
		return r.drained(groups, p, n)
	case exact:
		return r.logRetry(groups, own, p, n)
	}
	return r.slidingRetry(groups, own, p, n)
}

// Age makes the groups of a counter older by so many, after its newest group has become another,
// later by turns: more than the record has, or less than 0 after a step of the clock.
func (r *Spec) Age(groups []uint64, turns int32, by int) {
	if by == 0 {
		return
	}
	if r.algorithm == tokens {
		r.flow(groups, turns, by)
		return
	}
	lanes.Older(groups[:r.Groups()], by)
}

// Step brings the groups of a counter over a step of the clock, from one position to another, by so
// many sub-windows and pending hits are still to be reported. It returns by how many lanes those
// move.
func (r *Spec) Step(groups []uint64, from, to Position, by int64, pending uint64) int64 {
	if r.algorithm == tokens {
		r.step(groups, from, to, pending)
		return int64(r.Groups()) << r.lanes // all of it goes into the last lane of the newest
	}
	r.lanes.Shift(r.Groups(), by, func(g int) *uint64 { return &groups[g] })
	return by
}

// Carries reports whether a group begins with what those before it left: an edge that has seen the
// last group end knows the counter's state.
func (r *Spec) Carries() bool { return r.algorithm == tokens }
