package algorithm

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"sluice/counter/internal/lanes"

	"github.com/cespare/xxhash/v2"
)

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
