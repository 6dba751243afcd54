package counter

import (
	"math"
	"sort"
	"time"
)

// Four sub-windows, the lanes of a group, share one 64-bit number of 16 bits each: adding 1 << (16*lane) counts a hit,
// and whoever reads the number sees all four. A rule with a limit over 16,000 has two lanes of 32 bits. Lanes never carry
// into each other:
//
//   - in memory a lane stops at its maximum, 2^15-1 (2^31-1), which also keeps the whole number below 2^63, beyond which
//     memcached may refuse to increment;
//   - in the tier, an edge does not report to a lane that it knows to be at 2^14 (2^30) or more, and reports at most
//     1/MaxEdges of that at once, so the edges together cannot pass 2^15 (2^31).
//
// A limit is at most 16,000 (10^9), so a lane that no longer counts is over the limit anyway.

// MaxEdges is the largest number of edges that may share counters.
const MaxEdges = 64

// maxGroups is the largest number of groups that a window of 12 sub-windows touches: 13 lanes, two to a group.
const maxGroups = 7

func (r *Rule) lanes() int        { return 1 << r.shift }         // lanes in a group
func (r *Rule) width() uint       { return 64 >> r.shift }        // bits of a lane
func (r *Rule) laneMax() uint64   { return 1<<(r.width()-1) - 1 } // where a lane stops in memory
func (r *Rule) reportMax() uint64 { return 1 << (r.width() - 2) } // where edges stop reporting

// groups is how many groups the newest sub-window and the SubWindows before it can touch.
func (r *Rule) groups() int { return (r.SubWindows+r.lanes()-1)>>r.shift + 1 }

func (r *Rule) lane(group uint64, i int) uint64 {
	return group >> (uint(i) * r.width()) & (1<<r.width() - 1)
}

// add adds n to lane i of group and stops at the lane's maximum.
func (r *Rule) add(group uint64, i int, n uint64) uint64 {
	have := r.lane(group, i)
	n = min(n, r.laneMax()-min(have, r.laneMax()))
	return group + n<<(uint(i)*r.width())
}

// Groups are combined lane by lane, all lanes at once. Those that come from outside, where a lane may have its highest bit, are to be
// clamped before.

// top is the highest bit of each lane, which no lane in memory has.
func (r *Rule) top() uint64 {
	if r.shift == 1 {
		return 0x8000000080000000
	}
	return 0x8000800080008000
}

// clamp stops each lane at its maximum.
func (r *Rule) clamp(x uint64) uint64 {
	over := x & r.top()
	return (x | r.fill(over)) &^ over
}

// fill turns highest bits into all the lower bits of their lanes.
func (r *Rule) fill(tops uint64) uint64 { return tops - tops>>(r.width()-1) }

// plus adds lanes; one stops at its maximum.
func (r *Rule) plus(x, y uint64) uint64 { return r.clamp(x + y) }

// minus subtracts lanes; one stops at 0.
func (r *Rule) minus(x, y uint64) uint64 {
	d := (x | r.top()) - y // a lane that keeps its highest bit is not below 0
	return d & r.fill(d&r.top())
}

// most takes the larger of each two lanes.
func (r *Rule) most(x, y uint64) uint64 { return y + r.minus(x, y) }

// all is n in each lane.
func (r *Rule) all(n uint64) uint64 { return n * (r.top() >> (r.width() - 1)) }

// atMost takes the smaller of each lane and n.
func (r *Rule) atMost(x, n uint64) uint64 { return x - r.minus(x, r.all(n)) }

// sum adds up the lanes of a group.
func (r *Rule) sum(group uint64) uint64 {
	if r.shift == 1 {
		return group>>32 + group&math.MaxUint32
	}
	pairs := group&0x0000ffff0000ffff + group>>16&0x0000ffff0000ffff
	return pairs>>32 + pairs&math.MaxUint32
}

// position is an instant in the sub-windows of one source.
type position struct {
	group uint32  // modulo 2^32
	lane  int     // within the group
	gone  float64 // share of the sub-window that has passed, 0 to 1
}

// position places an instant, in ns since the epoch.
func (r *Rule) position(ns int64, phase uint16) position {
	ns -= r.offset(phase)
	n := ns / r.sub
	return position{
		group: uint32(n >> r.shift),
		lane:  int(n) & (r.lanes() - 1),
		gone:  float64(ns-n*r.sub) * r.perSub,
	}
}

func (r *Rule) offset(phase uint16) int64 { return (r.sub << r.shift >> 16) * int64(phase) }

// view is what a window that ends at a position sees of a counter.
type view struct {
	full   uint64 // hits in the sub-windows that lie wholly within the window, and in any that began after it
	oldest uint64 // hits in the one that the window's beginning cuts
	own    bins   // those of them of which this table knows when they came
}

// view reads groups, the newest first, for a window that ends in the given lane of groups[0]. Lanes after that one are
// hits of edges whose clock is ahead: they have happened, so they count. A lane beyond the group stands for a time to
// come, in which nothing has been counted yet.
func (r *Rule) view(groups []uint64, lane int) (v view) {
	first := lane - r.SubWindows + 1 // the first full one; lane 0 of groups[0] is 0, older ones are negative
	g, i := r.locate(first, len(groups))
	for _, group := range groups[:g] {
		v.full += r.sum(group)
	}
	v.full += r.sum(groups[g] >> (uint(i) * r.width()))
	g, i = r.locate(first-1, len(groups))
	v.oldest = r.lane(groups[g], i)
	return v
}

// locate turns a lane counted from lane 0 of the newest group into a group and a lane in it, without a branch, because which it
// is differs from source to source. It counts from the oldest of n groups.
func (r *Rule) locate(lane, n int) (group, i int) {
	lane += (n - 1) << r.shift
	group = max(n-1-lane>>r.shift, 0)
	return group, lane - (n-1-group)<<r.shift
}

// estimate is the formula of the package comment, but for hits of the cut sub-window of which the table knows when they
// came. Lower counts only those that certainly came after the cut.
func (r *Rule) estimate(v view, gone float64) float64 {
	full, others := float64(int64(v.full)), float64(int64(v.oldest)) // they fit, and signed numbers convert faster
	if !v.own.known() {
		if r.Estimate == Lower {
			return full
		}
		return full + others*(1-gone)
	}
	bin := min(int(gone*histogramBins), histogramBins-1)
	after := float64(v.own.sum(bin + 1))
	if r.Estimate == Lower {
		return full + min(after, others)
	}
	after = min(after+float64(v.own.at(bin))*(float64(bin+1)-gone*histogramBins), others)
	return full + after + max(0, others-float64(v.own.sum(0)))*(1-gone)
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

// retryAfter is how long it takes until n more hits of the counter at i, which has groups, are within the limit if nothing else arrives
// and what is reserved is given back: sub-windows leave the window one by one, each evenly over its length. More than 0, and at
// most a window and a group; a window where n alone is over the limit.
func (s *shard) retryAfter(r *Rule, i int, groups []uint64, p position, n float64) time.Duration {
	room := float64(r.Limit) - n
	if r.Estimate == Nearest {
		room += 0.5
	}
	if room < 0 {
		return r.Window
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
		first := int(from * histogramBins)
		bin := first + sort.Search(histogramBins-1-first, func(i int) bool {
			return r.estimate(v, math.Nextafter(float64(first+i+1)/histogramBins, 0)) <= room
		})
		begin, end := max(from, float64(bin)/histogramBins), math.Nextafter(float64(bin+1)/histogramBins, 0)
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
