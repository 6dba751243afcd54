package algorithm

import (
	"fmt"
	"math"
	"sort"
	"time"

	"sluice/counter/internal/histogram"
)

// The formula, and the story of a block, told in the README, as the counter of 192.0.2.7 on edge 1
// has it, under a rule of 100 requests a minute in 12 sub-windows of five seconds. The counter is a
// few numbers of 64 bits: groups of four sub-windows, 16 bits each.
//
//	    group -3          group -2          group -1          group 0
//	[ .  9  8  6 ]    [ 9  8  9  8 ]    [ 9  7  8  9 ]    [ 3 11  .  . ]
//	     ^ c[i-12]: cut by the window's begin                   ^ c[i]: now
//
// In sub-window i, a share e of it gone, the hits in the last minute are
//
//	estimate = c[i] + c[i-1] + … + c[i-11] + c[i-12] * (1 - e)
//
//  1. At 12:00:00.000 a request of 192.0.2.7 comes to edge 1. By the clock and an offset of its
//     own the source is in sub-window i: in a group, a lane of it, and a share of that
//     (Spec.Position). Let the share be 0.7.
//  2. Twelve sub-windows lie wholly in the last minute, with 95 hits (Spec.view). Of the 9 in the
//     one that is cut a share of 0.3 is left, unless the table knows when they came
//     (Spec.estimate). That makes 97.7: 98 hits, and one more is not over 100 (Spec.Over).
//  3. At 12:00:00.001 the hit is reported: as 1 << 16, which memcached adds to its number of the
//     same group.
//  4. At 12:00:00.002 memcached's number is back. Its lanes have what edges 2 and 3 have counted
//     as well: of each lane the table keeps the larger number. The estimate is 100.7, which is 101.
//  5. What is over leads to a block. Against a source that was within its limit lately, only those
//     hits of unknown time count that are surely in the window (Spec.sure).
//  6. When the source will be within its limit again is the formula, read at positions to come
//     (Spec.slidingRetry): no block ends before that.

// Position is an instant in the sub-windows of one source.
type Position struct {
	Group uint32  // modulo 2^32
	Lane  int     // within the group
	Gone  float64 // share of the sub-window that has passed, 0 to 1
}

// Position returns where an instant, in ns since the epoch, lies.
func (r *Spec) Position(ns int64, phase uint16) Position {
	ns -= r.offset(phase)
	if r.algorithm == tokens {
		return r.inBucket(ns)
	}
	n := ns / r.sub
	return Position{
		Group: uint32(n >> r.lanes),
		Lane:  int(n) & (r.lanes.Count() - 1),
		Gone:  float64(ns-n*r.sub) * r.perSub,
	}
}

// PhaseBits are those of a phase that matter: a table has room for something else in the others.
const PhaseBits = 1<<16 - 1<<5

func (r *Spec) offset(phase uint16) int64 { return r.phases * int64(phase&PhaseBits) }

// Move says by how many groups the lanes of a counter whose newest group is base must be shifted
// for a position, and where to count then. A clock that stepped back by less than a window stays in
// the newest group that the counter has seen; one that stepped back by more starts the counter
// anew.
func (r *Spec) Move(base uint32, p Position) (at Position, by int) {
	d := int(int32(p.Group - base))
	switch n := r.Groups(); {
	case d == 0:
		return p, 0
	case d > 0 && d < n:
		return p, d
	case d < 0 && -d < n:
		return Position{Group: base, Lane: r.first}, 0
	default:
		return p, n
	}
}

// Number is the sub-window of a position, modulo 2^32.
func (r *Spec) Number(p Position) uint32 { return p.Group<<r.lanes | uint32(p.Lane) }

// Cut is the number of the sub-window that is cut by the beginning of a window that ends at a
// position.
func (r *Spec) Cut(p Position) uint32 { return r.Number(p) - uint32(r.SubWindows) }

// locate turns a lane counted from lane 0 of the newest group into a group and a lane in it,
// without a branch, because which it is differs from source to source. It counts from the oldest of
// n groups.
func (r *Spec) locate(lane, n int) (group, i int) {
	lane += (n - 1) << r.lanes
	group = max(n-1-lane>>r.lanes, 0)
	return group, lane - (n-1-group)<<r.lanes
}

// view is what a window that ends at a position sees of a counter.
type view struct {
	// Hits in the sub-windows within the window, and in any that began after it
	full   uint64
	oldest uint64         // hits in the one that the window's beginning cuts
	own    histogram.Bins // those of them of which this table knows when they came
}

// view reads groups, the newest first, for a window that ends in the given lane of groups[0]. Lanes
// after that one are hits of edges whose clock is ahead: they have happened, so they count. A lane
// beyond the group stands for a time to come, in which nothing has been counted yet.
func (r *Spec) view(groups []uint64, lane int) (v view) {
	// The first full one; lane 0 of groups[0] is 0, older ones are negative.
	first := lane - r.SubWindows + 1
	g, i := r.locate(first, len(groups))
	for _, group := range groups[:g] {
		v.full += r.lanes.Sum(group)
	}
	v.full += r.lanes.Sum(groups[g] >> (uint(i) * r.lanes.Width()))
	v.oldest = r.Oldest(groups, lane)
	return v
}

// Oldest is the hits in the sub-window that is cut by the beginning of a window that ends in the
// given lane of groups[0].
func (r *Spec) Oldest(groups []uint64, lane int) uint64 {
	g, i := r.locate(lane-r.SubWindows, len(groups))
	return r.lanes.Lane(groups[g], i)
}

// Leaving reports whether a sliding window that ends in the given lane of groups[0] has hits in the
// sub-window that its beginning cuts, or in the two after that.
func (r *Spec) Leaving(groups []uint64, lane int) bool {
	return r.Sliding() &&
		r.Oldest(groups, lane)+r.Oldest(groups, lane+1)+r.Oldest(groups, lane+2) > 0
}

// Single returns the number of the sub-window that has the one hit that a counter knows of at a
// position. ok is false if there is none, or more than one.
func (r *Spec) Single(groups []uint64, p Position) (n uint32, ok bool) {
	for ago := range r.SubWindows + 1 {
		g, i := r.locate(p.Lane-ago, len(groups))
		switch hits := r.lanes.Lane(groups[g], i); {
		case hits > 1 || hits == 1 && ok:
			return 0, false
		case hits == 1:
			n, ok = r.Number(p)-uint32(ago), true
		}
	}
	return n, ok
}

// estimate is the formula at the top of this file, but for hits of the cut sub-window of which the table
// knows when they came. Lower counts only those that certainly came after the cut.
func (r *Spec) estimate(v view, gone float64) float64 {
	if r.Estimate == Lower {
		return r.certain(v, gone)
	}
	// They fit, and signed numbers convert faster.
	full, others := float64(int64(v.full)), float64(int64(v.oldest))
	if !v.own.Known() {
		return full + others*(1-gone)
	}
	bin := min(int(gone*histogram.Size), histogram.Size-1)
	after := float64(v.own.Sum(bin + 1))
	after = min(after+float64(v.own.At(bin))*(float64(bin+1)-gone*histogram.Size), others)
	left := max(0, 1-gone*histogram.Size/float64(v.own.Within))
	return full + after + max(0, others-float64(v.own.Sum(0)))*left
}

// doubt is how many standard deviations a sure number stays below what is expected of hits of which
// no time is known.
const doubt = 2

// surely is how many of n hits lie in a share of their span at least, in all likelihood, if each
// may lie anywhere in it. Of a few hits it is none: they may all have left the window. Of many, as
// of an attack, it is nearly what is expected. It falls with the share.
func surely(n, share float64) float64 {
	expected := n * share
	if expected < 1 {
		return 0
	}
	return math.Floor(max(0, expected-doubt*math.Sqrt(expected*(1-share))))
}

// sure is Sure of a view, at most the estimate.
func (r *Spec) sure(v view, gone float64) float64 {
	full, others := float64(int64(v.full)), float64(int64(v.oldest))
	if !v.own.Known() {
		return full + surely(others, 1-gone)
	}
	bin := min(int(gone*histogram.Size), histogram.Size-1)
	after := float64(v.own.Sum(bin + 1))
	after += surely(float64(v.own.At(bin)), float64(bin+1)-gone*histogram.Size)
	sum := full + min(after, others)
	if v.own.Exchanged {
		return sum // no edge knows when the rest came, perhaps all at the begin
	}
	left := max(0, 1-gone*histogram.Size/float64(v.own.Within))
	return sum + surely(max(0, others-float64(v.own.Sum(0))), left)
}

// certain is the estimate by Lower.
func (r *Spec) certain(v view, gone float64) float64 {
	full := float64(int64(v.full))
	if !v.own.Known() {
		return full
	}
	bin := min(int(gone*histogram.Size), histogram.Size-1)
	return full + min(float64(v.own.Sum(bin+1)), float64(int64(v.oldest)))
}

// rounds reports whether estimates are rounded to the nearest.
func (r *Spec) rounds() bool { return r.Estimate == Nearest || r.Estimate == Weighed }

// Used is an estimate as a whole number, which may be compared with the limit.
func (r *Spec) Used(estimate float64) int64 {
	if r.rounds() {
		return int64(estimate + 0.5)
	}
	return int64(math.Ceil(estimate))
}

// Over reports whether an estimate says that the limit is passed.
func (r *Spec) Over(estimate float64) bool { return r.Used(estimate) > int64(r.Limit) }

// Remaining is how many more hits an estimate leaves.
func (r *Spec) Remaining(estimate float64) uint32 {
	return uint32(max(0, int64(r.Limit)-r.Used(estimate)))
}

// slidingRetry is RetryAfter of a sliding window: sub-windows leave it one by one, each evenly over
// its length.
func (r *Spec) slidingRetry(groups []uint64, own histogram.Own, p Position,
	n float64) time.Duration {
	room := float64(r.Limit) - n
	if r.rounds() {
		room += 0.5
	}
	for ahead := 0; ; ahead++ {
		v := r.view(groups, p.Lane+ahead)
		if float64(v.full) > room {
			continue
		}
		v.own = own.Bins(r.Cut(p) + uint32(ahead))
		from := 0.0
		if ahead == 0 {
			from = p.Gone
		}
		if r.estimate(v, math.Nextafter(1, 0)) > room {
			continue
		}
		// So it is in this sub-window. The estimate falls from bin to bin, and evenly within one.
		first := int(from * histogram.Size)
		bin := first + sort.Search(histogram.Size-1-first, func(i int) bool {
			return r.estimate(v, math.Nextafter(float64(first+i+1)/histogram.Size, 0)) <= room
		})
		begin := max(from, float64(bin)/histogram.Size)
		end := math.Nextafter(float64(bin+1)/histogram.Size, 0)
		at := begin
		if high, low := r.estimate(v, begin), r.estimate(v, end); high > room {
			at += (end - begin) * (high - room) / (high - low)
		}
		wait := (float64(ahead) + at - p.Gone) * float64(r.sub)
		return time.Duration(wait) + time.Microsecond // rounded up, beyond the last rounding error
	}
}

// NewFixed checks and completes a rule that counts in one window after the other: each begins with
// nothing, on the clock's multiples of its length, for all sources at the same instant. It lets
// twice the limit through around the end of a window, and costs the least: two numbers a source.
// The bounds are those of NewSliding.
//
// A window is one lane, so there is nothing to estimate: it never refuses a source that is at or
// under its limit in the window that the edge's clock is in.
func NewFixed(name string, limit uint32, window time.Duration) (*Spec, error) {
	r, err := NewSliding(name, limit, window, 1, Lower)
	if err != nil {
		return nil, err
	}
	r.algorithm = fixed
	r.complete(1)
	r.phases = 0
	return r, nil
}

// inWindow is the hits of the window that an instant is in. Hits of edges whose clock is ahead lie
// in the next window, and do not count before it begins.
func (r *Spec) inWindow(groups []uint64, at Position) float64 {
	return float64(int64(r.lanes.Lane(groups[0], at.Lane)))
}

// windowEnds is how long the window lasts.
func (r *Spec) windowEnds(at Position) time.Duration {
	// Beyond the last rounding error
	return time.Duration((1-at.Gone)*float64(r.sub)) + time.Microsecond
}

// Reset is how long it takes from now until what a source has left may be relied on again: a
// window, or what is left of a fixed one.
func (r *Spec) Reset(now time.Time) time.Duration {
	if r.algorithm == fixed {
		return r.windowEnds(r.Position(now.UnixNano(), 0))
	}
	return r.Window
}

// outOfRange names the field of a rule that is out of its range.
func outOfRange(field string, v, least, most any) error {
	return fmt.Errorf("%s %v: want %v to %v", field, v, least, most)
}
