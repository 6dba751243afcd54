package counter

import (
	"math"
	"sort"
	"time"

	"sluice/counter/internal/histogram"
)

// MaxEdges is the largest number of edges that may share counters.
const MaxEdges = 64

// groups is how many groups the newest sub-window and the SubWindows before it can touch.
func (r *Rule) groups() int { return r.touched }

// position is an instant in the sub-windows of one source.
type position struct {
	group uint32  // modulo 2^32
	lane  int     // within the group
	gone  float64 // share of the sub-window that has passed, 0 to 1
}

// position places an instant, in ns since the epoch.
func (r *Rule) position(ns int64, phase uint16) position {
	ns -= r.offset(phase)
	if r.algorithm == tokens {
		return r.inBucket(ns)
	}
	n := ns / r.sub
	return position{
		group: uint32(n >> r.lanes),
		lane:  int(n) & (r.lanes.Count() - 1),
		gone:  float64(ns-n*r.sub) * r.perSub,
	}
}

func (r *Rule) offset(phase uint16) int64 { return r.phases * int64(phase) }

// view is what a window that ends at a position sees of a counter.
type view struct {
	full   uint64         // hits in the sub-windows that lie wholly within the window, and in any that began after it
	oldest uint64         // hits in the one that the window's beginning cuts
	own    histogram.Bins // those of them of which this table knows when they came
}

// view reads groups, the newest first, for a window that ends in the given lane of groups[0]. Lanes after that one are
// hits of edges whose clock is ahead: they have happened, so they count. A lane beyond the group stands for a time to
// come, in which nothing has been counted yet.
func (r *Rule) view(groups []uint64, lane int) (v view) {
	first := lane - r.SubWindows + 1 // the first full one; lane 0 of groups[0] is 0, older ones are negative
	g, i := r.locate(first, len(groups))
	for _, group := range groups[:g] {
		v.full += r.lanes.Sum(group)
	}
	v.full += r.lanes.Sum(groups[g] >> (uint(i) * r.lanes.Width()))
	g, i = r.locate(first-1, len(groups))
	v.oldest = r.lanes.Lane(groups[g], i)
	return v
}

// locate turns a lane counted from lane 0 of the newest group into a group and a lane in it, without a branch, because which it
// is differs from source to source. It counts from the oldest of n groups.
func (r *Rule) locate(lane, n int) (group, i int) {
	lane += (n - 1) << r.lanes
	group = max(n-1-lane>>r.lanes, 0)
	return group, lane - (n-1-group)<<r.lanes
}

// estimate is the formula of the package comment, but for hits of the cut sub-window of which the table knows when they
// came. Lower counts only those that certainly came after the cut.
func (r *Rule) estimate(v view, gone float64) float64 {
	full, others := float64(int64(v.full)), float64(int64(v.oldest)) // they fit, and signed numbers convert faster
	if !v.own.Known() {
		if r.Estimate == Lower {
			return full
		}
		return full + others*(1-gone)
	}
	bin := min(int(gone*histogram.Size), histogram.Size-1)
	after := float64(v.own.Sum(bin + 1))
	if r.Estimate == Lower {
		return full + min(after, others)
	}
	after = min(after+float64(v.own.At(bin))*(float64(bin+1)-gone*histogram.Size), others)
	return full + after + max(0, others-float64(v.own.Sum(0)))*(1-gone)
}

// used is an estimate as a whole number, which may be compared with the limit.
func (r *Rule) used(estimate float64) int64 {
	if r.Estimate == Nearest {
		return int64(estimate + 0.5)
	}
	return int64(math.Ceil(estimate))
}

// over reports whether an estimate says that the limit is passed.
func (r *Rule) over(estimate float64) bool { return r.used(estimate) > int64(r.Limit) }

// remaining is how many more hits an estimate leaves.
func (r *Rule) remaining(estimate float64) uint32 {
	return uint32(max(0, int64(r.Limit)-r.used(estimate)))
}

// slidingRetry is retryAfter of a sliding window: sub-windows leave it one by one, each evenly over its length.
func (s *shard) slidingRetry(r *Rule, i int, groups []uint64, p position, n float64) time.Duration {
	room := float64(r.Limit) - n
	if r.Estimate == Nearest {
		room += 0.5
	}
	for ahead := 0; ; ahead++ {
		v := r.view(groups, p.lane+ahead)
		if float64(v.full) > room {
			continue
		}
		v.own = s.own(r, i, p, ahead)
		from := 0.0
		if ahead == 0 {
			from = p.gone
		}
		if r.estimate(v, math.Nextafter(1, 0)) > room {
			continue
		}
		// In this sub-window, then. The estimate falls from bin to bin, and evenly within one.
		first := int(from * histogram.Size)
		bin := first + sort.Search(histogram.Size-1-first, func(i int) bool {
			return r.estimate(v, math.Nextafter(float64(first+i+1)/histogram.Size, 0)) <= room
		})
		begin, end := max(from, float64(bin)/histogram.Size), math.Nextafter(float64(bin+1)/histogram.Size, 0)
		at := begin
		if high, low := r.estimate(v, begin), r.estimate(v, end); high > room {
			at += (end - begin) * (high - room) / (high - low)
		}
		wait := (float64(ahead) + at - p.gone) * float64(r.sub)
		return time.Duration(wait) + time.Microsecond // rounded up, beyond the last rounding error
	}
}

// Groups gives the first and last group, modulo 2^32, that the tier may hold of a source with the given phase at now.
func (t *Table) Groups(r *Rule, now time.Time, phase uint16) (oldest, newest uint32) {
	p := r.position(t.ns(now)+t.offset.Load(), phase)
	return p.group - uint32(r.groups()-1), p.group
}
