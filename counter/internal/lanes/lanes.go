// Package lanes counts in several lanes of one 64-bit number at once.
//
// Four sub-windows, the lanes of a group, share one 64-bit number of 16 bits each: adding 1 <<
// (16*lane) counts a hit, and a reader of the number sees all four. A rule with a large limit has
// two lanes of 32 bits. Lanes never carry into each other:
//
//   - in memory a lane stops at its maximum, 2^15-1 (2^31-1), which also keeps the whole number
//     below 2^63, beyond which memcached may refuse to increment;
//   - in the tier, an edge does not report to a lane that it knows to be at 2^14 (2^30) or more,
//     and reports at most 1/MaxEdges of that at once, so the edges together cannot pass 2^15
//     (2^31).
//
// A limit is at most NarrowMax (10^9), so a lane that no longer counts is over the limit anyway.
package lanes

import "math"

// Packing says how lanes share a number: it is the binary logarithm of how many there are.
type Packing uint8

const (
	Wide   Packing = 1 // two lanes of 32 bits
	Narrow Packing = 2 // four of 16
)

// MaxEdges is the largest number of edges that may share counters.
const MaxEdges = 64

// NarrowMax is the largest limit that narrow lanes hold.
const NarrowMax = 16_000

// How many groups a window of 12 sub-windows touches at most, which is 13 lanes: two to a group, or
// four.
const (
	MaxGroups    = 7
	NarrowGroups = 4
)

func (p Packing) Count() int        { return 1 << p }               // lanes in a group
func (p Packing) Width() uint       { return 64 >> p }              // bits of a lane
func (p Packing) Max() uint64       { return 1<<(p.Width()-1) - 1 } // where a lane stops in memory
func (p Packing) ReportMax() uint64 { return 1 << (p.Width() - 2) } // where edges stop reporting

// Lane is one of a group.
func (p Packing) Lane(group uint64, i int) uint64 {
	return group >> (uint(i) * p.Width()) & (1<<p.Width() - 1)
}

// Add adds n to lane i of group and stops at the lane's maximum.
func (p Packing) Add(group uint64, i int, n uint64) uint64 {
	have := p.Lane(group, i)
	n = min(n, p.Max()-min(have, p.Max()))
	return group + n<<(uint(i)*p.Width())
}

// Groups are combined lane by lane, all lanes at once. Those that come from outside, where a lane
// may have its highest bit, are to be clamped before.

// top is the highest bit of each lane, which no lane in memory has.
func (p Packing) top() uint64 {
	if p == Wide {
		return 0x8000000080000000
	}
	return 0x8000800080008000
}

// Clamp stops each lane at its maximum.
func (p Packing) Clamp(x uint64) uint64 {
	over := x & p.top()
	return (x | p.fill(over)) &^ over
}

// Written reports whether edges can have written a number: they stop at ReportMax, beyond which
// each may be by one report.
func (p Packing) Written(x uint64) bool {
	if x&p.top() == 0 {
		return true
	}
	for i := range p.Count() {
		if p.Lane(x, i) > 2*p.ReportMax() {
			return false
		}
	}
	return true
}

// fill turns highest bits into all the lower bits of their lanes.
func (p Packing) fill(tops uint64) uint64 { return tops - tops>>(p.Width()-1) }

// Plus adds lanes; one stops at its maximum.
func (p Packing) Plus(x, y uint64) uint64 { return p.Clamp(x + y) }

// Minus subtracts lanes; one stops at 0.
func (p Packing) Minus(x, y uint64) uint64 {
	d := (x | p.top()) - y // a lane that keeps its highest bit is not below 0
	return d & p.fill(d&p.top())
}

// Most takes the larger of each two lanes.
func (p Packing) Most(x, y uint64) uint64 { return y + p.Minus(x, y) }

// All is n in each lane.
func (p Packing) All(n uint64) uint64 { return n * (p.top() >> (p.Width() - 1)) }

// AtMost takes the smaller of each lane and n.
func (p Packing) AtMost(x, n uint64) uint64 { return x - p.Minus(x, p.All(n)) }

// Sum adds up the lanes of a group.
func (p Packing) Sum(group uint64) uint64 {
	if p == Wide {
		return group>>32 + group&math.MaxUint32
	}
	pairs := group&0x0000ffff0000ffff + group>>16&0x0000ffff0000ffff
	return pairs>>32 + pairs&math.MaxUint32
}

// Shift moves the lanes of groups to later sub-windows, or to earlier ones if by is negative. Those
// that leave at the old end are dropped, and those that would come after the newest are put into
// it. It returns how many hits were lost.
func (p Packing) Shift(groups int, by int64, group func(g int) *uint64) (lost uint64) {
	var moved [MaxGroups]uint64
	for g := range groups {
		lost += p.Sum(*group(g))
		for i := range p.Count() {
			to := int64(i) - int64(g)<<p + by // 0 is lane 0 of the newest group
			to = min(to, int64(p.Count()-1))
			if n := -(to >> p); n < int64(groups) {
				moved[n] = p.Add(moved[n], int(to&int64(p.Count()-1)), p.Lane(*group(g), i))
			}
		}
	}
	for g := range groups {
		*group(g) = moved[g]
		lost -= p.Sum(moved[g])
	}
	return lost
}

// Older makes groups older by n.
func Older[G any](groups []G, n int) {
	copy(groups[n:], groups)
	clear(groups[:n])
}
