package counter

import "time"

// An algorithm is a way to read lanes: how many of the hits that they count a source has still against it, and when that will be fewer. What
// lanes are, how they are reported, learned and kept in the tier is the same for all, so none of them costs the tier a command or
// a byte more than another. Each is a file, and a case here. They are told apart by a switch and not called through functions, because
// what a function value is given is allocated.
type algorithm uint8

const (
	sliding algorithm = iota // estimate.go: the usual one, so callers of read and age look for it first
	fixed                    // fixed.go
	tokens                   // bucket.go
	exact                    // exact.go
)

func (a algorithm) String() string { return [...]string{"sliding", "fixed", "bucket", "exact"}[a] }

// Algorithm names how a rule reads its lanes: "sliding", "fixed", "bucket" or "exact".
func (r *Rule) Algorithm() string { return r.algorithm.String() }

// Sliding reports whether a rule counts in a sliding window by its estimate.
func (r *Rule) Sliding() bool { return r.algorithm == sliding }

// read is how much of its limit a counter has used at a position, by another algorithm than sliding. groups are all numbers of its record.
func (s *shard) read(r *Rule, st *store, i int, groups []uint64, at position) float64 {
	switch r.algorithm {
	case fixed:
		return r.inWindow(groups, at)
	case tokens:
		return r.level(groups, at)
	}
	return s.inLog(r, st, i, groups, at)
}

// retryAfter is how long it takes until n more hits of the counter at i, which has groups, are within the limit if nothing else arrives
// and what is reserved is given back. More than 0, and at most a window and a group; a window where n alone is over the limit.
func (s *shard) retryAfter(r *Rule, i int, groups []uint64, p position, n float64) time.Duration {
	if n > float64(r.Limit) {
		return r.Window
	}
	switch r.algorithm {
	case fixed:
		return r.windowEnds(p)
	case tokens:
		return r.drained(groups, p, n)
	case exact:
		return s.logRetry(r, i, groups, p, n)
	}
	return s.slidingRetry(r, i, groups, p, n)
}

// age makes the groups of a counter older by so many, after its newest group has become another, later by turns: more than the record
// has, or less than 0 after a step of the clock.
func (r *Rule) age(groups []uint64, turns int32, by int) {
	if by == 0 {
		return
	}
	if r.algorithm == tokens {
		r.flow(groups, turns, by)
		return
	}
	shift(groups[:r.groups()], by)
}
