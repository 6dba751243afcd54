// Package algorithm says what the lanes of a counter mean: how many of the hits that they count a
// source still has against it under a rule, and when that will be fewer. It is arithmetic over a
// counter's groups of lanes, the newest first, a position in time, and what the table knows of when
// its own hits came. It has no table, no source and no tier.
//
// A Spec counts by one of four: a sliding window, fixed windows (window.go), a bucket
// (bucket.go), or a log of instants (exact.go). What lanes are, how they are reported, learned and
// kept in the tier is the same for all, so none of them costs the tier a command or a byte more
// than another. Each is a file, and a case in the functions of algorithm.go. A switch chooses among
// them; they are not called through functions, because what a function value is given is allocated.
package algorithm

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

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

// Bounds of a rule.
const (
	MaxLimit  = 1_000_000_000
	MinWindow = time.Second
	MaxWindow = 24 * time.Hour
	// Hits of one reservation; with the largest limit, a wide lane has room for it
	MaxCost = 1_000_000

	// MaxNarrow is the largest limit whose counters need no more than narrow lanes, which stop at
	// about twice as many hits in a sub-window.
	MaxNarrow = lanes.NarrowMax
)

// Estimate says how a counter's sub-windows become one number.
type Estimate uint8

const (
	// Nearest weighs the oldest sub-window by its share of the window and rounds to the nearest
	// whole number, because counts are whole. It is the most accurate. Decisions about a source
	// that was not over its limit lately go by less: by what is Sure of it.
	Nearest Estimate = iota
	// Lower leaves the oldest sub-window out. It is never above the exact count, so it never
	// refuses a source that is at or under its limit (up to the clock skew between edges).
	Lower
	// Unrounded is Nearest without the rounding, as published for two plain counters (Cloudflare,
	// 2017).
	Unrounded
	// Weighed is Nearest by the estimate alone, for a limit that is the sum of an estimate and
	// something.
	Weighed
)

func (e Estimate) String() string {
	return [...]string{"nearest", "lower", "unrounded", "weighed"}[e]
}

// ParseEstimate reads "nearest" or "lower".
func ParseEstimate(s string) (Estimate, error) {
	for _, e := range []Estimate{Nearest, Lower} {
		if s == e.String() {
			return e, nil
		}
	}
	return 0, fmt.Errorf("counter: estimate %q: want nearest or lower", s)
}

// UnmarshalText reads it as ParseEstimate does.
func (e *Estimate) UnmarshalText(text []byte) (err error) {
	if *e, err = ParseEstimate(string(text)); err != nil {
		return fmt.Errorf("%q is not possible: want nearest or lower", text)
	}
	return nil
}

// Spec says how hits are counted and how many are allowed. It is immutable once made, and what it
// counts is known by Identity, not by the pointer: two rules that agree in Name, Window,
// SubWindows, lane width and algorithm, and of buckets in size and drain, share their counters.
type Spec struct {
	// Names the counters: the rule's name, its key and its variant, in any unambiguous form
	Name       string
	Limit      uint32 // hits allowed in a window
	Window     time.Duration
	SubWindows int // 1, 2, 4, 8 or 12
	Estimate   Estimate

	ID uint32 // stands for the counters within this process; see Renumber

	sub    int64   // length of a sub-window, ns
	perSub float64 // 1/sub
	lanes  lanes.Packing

	identity string

	// Commands, if not nil, is increased by each command to the tier that reports hits of its
	// counters.
	Commands *atomic.Uint64

	algorithm algorithm
	// A 65,536th of a group, ns: by so many of it a source's windows begin late; 0: all begin
	// together
	phases int64
	// Groups that the newest sub-window and those before it, which matter, can touch
	touched int
	first   int // lane of a group that hits are counted in
	bucket  bucket
}

// NewSliding checks and completes a rule that counts in a sliding window. Errors name the field and
// its range.
func NewSliding(name string, limit uint32, window time.Duration, subWindows int,
	e Estimate) (*Spec, error) {
	return NewCostly(name, limit, window, subWindows, e, 1)
}

// NewCostly is NewSliding for reservations of up to most hits each, 1 to MaxCost. Lanes are wide
// where the limit and one more reservation do not fit into narrow ones. They are wide as well where
// one reservation is more than a report can hold of a narrow lane, which would take several round
// trips.
func NewCostly(name string, limit uint32, window time.Duration, subWindows int, e Estimate,
	most uint32) (*Spec, error) {
	switch {
	case most < 1 || most > MaxCost:
		return nil, fmt.Errorf("cost %d: want 1 to %d", most, MaxCost)
	case limit < 1 || limit > MaxLimit:
		return nil, fmt.Errorf("limit %d: want 1 to %d", limit, MaxLimit)
	case window < MinWindow || window > MaxWindow:
		return nil, fmt.Errorf("window %v: want %v to %v", window, MinWindow, MaxWindow)
	case !slices.Contains([]int{1, 2, 4, 8, 12}, subWindows):
		return nil, fmt.Errorf("sub_windows %d: want 1, 2, 4, 8 or 12", subWindows)
	}
	r := &Spec{Name: name, Limit: limit, Window: window, SubWindows: subWindows, Estimate: e}
	r.complete(most)
	return r, nil
}

// complete derives what follows from the fields of a rule whose reservations are of up to most
// hits.
func (r *Spec) complete(most uint32) {
	r.sub = int64(r.Window) / int64(r.SubWindows)
	r.perSub = 1 / float64(r.sub)
	r.lanes = lanes.Narrow
	if r.Limit > lanes.NarrowMax || most > 1 && (r.Limit+most > lanes.NarrowMax ||
		uint64(most) > lanes.Narrow.ReportMax()/lanes.MaxEdges) {
		r.lanes = lanes.Wide
	}
	r.phases = r.sub << r.lanes >> 16
	r.touched = (r.SubWindows+r.lanes.Count()-1)>>r.lanes + 1
	r.identity = fmt.Sprintf("%s/%d/%d/%d", r.Name, r.Window, r.SubWindows, r.lanes.Width())
	if r.algorithm != sliding { // its numbers would be read in another way
		r.identity += "/" + r.algorithm.String()
	}
	r.ID = uint32(xxhash.Sum64String(r.identity))
}

// With is r by another limit and estimate: it reads the same counters, whose lanes stay as wide as
// r's.
func (r *Spec) With(limit uint32, e Estimate) *Spec {
	other := *r
	other.Limit, other.Estimate = limit, e
	return &other
}

// Wide reports whether the rule's lanes have 32 bits, two to a group, and not 16.
func (r *Spec) Wide() bool { return r.lanes == lanes.Wide }

// Packing says how lanes share a number of the rule's counters.
func (r *Spec) Packing() lanes.Packing { return r.lanes }

// Groups is how many groups the newest sub-window and the SubWindows before it can touch. A record
// may have more numbers than that.
func (r *Spec) Groups() int { return r.touched }

// Identity names the rule's counters in full: numbers counted under one identity mean the same to
// every edge.
func (r *Spec) Identity() string { return r.identity }

// Lifetime is how long the tier needs a group of the rule's counters: while it is counted and while
// a window sees it.
func (r *Spec) Lifetime() time.Duration { return r.Window + r.Group() }

// Reserved is where IDs begin that no rule has after Renumber.
const Reserved = math.MaxUint32 - 15

// Renumber gives rules that are in force together distinct IDs: a 32-bit hash would now and then
// give two of ten thousand rules the same one. Rules of one identity keep one ID.
func Renumber(rules []*Spec) {
	taken := make(map[uint32]string, len(rules))
	for _, r := range rules {
		for identity := r.Identity(); ; r.ID++ {
			if other, ok := taken[r.ID]; r.ID < Reserved && (!ok || other == identity) {
				taken[r.ID] = identity
				break
			}
		}
	}
}

// SubWindow is the length of a sub-window.
func (r *Spec) SubWindow() time.Duration { return time.Duration(r.sub) }

// Group is the length of a group of sub-windows.
func (r *Spec) Group() time.Duration { return time.Duration(r.sub << r.lanes) }

// A Stage says how much of its limit a counter has used. When it reaches the next one, but Far, all
// edges learn of it by an announcement.
type Stage uint8

const (
	Far    Stage = iota
	Eighth       // of the limit
	Quarter
	Half
	Full // nothing of it is left
)

// stagesFrom is the least limit that has stages between far and full: below it nothing ever waits,
// and full is soon enough.
const stagesFrom = 12

// HoldsBack reports whether hits may wait under this rule.
func (r *Spec) HoldsBack() bool { return r.Limit >= stagesFrom }

// Stage is that of an estimate.
func (r *Spec) Stage(estimate float64) Stage {
	switch {
	case r.Remaining(estimate) == 0:
		return Full
	case !r.HoldsBack():
		return Far
	case r.Near(estimate):
		return Half
	case 4*estimate >= float64(r.Limit):
		return Quarter
	case 8*estimate >= float64(r.Limit):
		return Eighth
	}
	return Far
}

// Near reports whether hits are reported at once: from half of the limit on.
func (r *Spec) Near(estimate float64) bool { return 2*estimate >= float64(r.Limit) }
