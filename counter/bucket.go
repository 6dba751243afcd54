package counter

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"sluice/counter/internal/lanes"
)

// A bucket fills by a hit each and drains at a steady rate; what would make it overflow is refused. It is the continuous-state leaky
// bucket of ITU-T I.371 and of the ATM Forum (Traffic Management 4.0, 4.4.2), which decide as GCRA, virtual scheduling, does, and as a
// token bucket whose tokens are what the bucket has room for:
//
//	level(t) = max over s <= t of (hits since s - rate * (t - s)), at least 0
//
// A bucket of B hits that drains r of them a second is empty after B/r. So it is a rule with the limit B in a window of B/r, and all that
// counters do near a limit and far from it holds as it is: the level takes the place of the estimate.
//
// The level is made of lanes, one after the other, the oldest first: what is in the bucket, and a lane's hits, and less what drains
// within a lane. Lanes do not remember for ever: who keeps a bucket full hits no more often than who keeps it empty. So a record has, in
// a number that its lanes leave free, two levels more:
//
//	carry  when its oldest lane began; lanes that become too old flow into it
//	tail   of this table's own hits, each at its instant: GCRA's theoretical arrival time
//
// and the level is the larger of what carry and lanes say and of what the tail says. Both are at most the true level: lanes take
// their hits to have come when they began, and hits that this table has not heard of are in neither. So a bucket never refuses a request
// that the true one would admit. A table that counts alone has every hit in its tail, and decides as GCRA does. Of others' hits, by which
// the lanes know, it takes up to
//
//	rate * one sub-window
//
// too few, a 12th of the bucket or what drains in a 12th of a second; beside that are those of which it has not heard, as with any algorithm. A
// table that meets a source reads its lanes in the tier and not its carry: it takes the bucket to have been empty when they began,
// at least three quarters of B/r ago.
//
// It costs the tier what a sliding window does, less a number where that has four, and a decision up to 12 additions.
type bucket struct {
	drain  int64 // within a lane, in units
	queue  int64 // hits for which there is room beyond those that pass at once; they wait for their turn
	free   int64 // those
	coarse uint  // units of carry and tail are so many bits coarser
	perHit float64
}

// unit is a 2^20th of a hit. Carry and tail have 32 bits each, so those of a large bucket are coarser: by the binary logarithm of how much the largest
// of them takes beyond that. What is lost of them makes them less.
const unit = 20

// NewBucket checks and completes a rule of a bucket that holds burst hits and drains limit of them in a window. Queue more hits may
// come before their time: they are admitted, and the verdict says when it is their turn (Verdict.Delay). A token bucket has no queue; a leaky bucket
// in front of which so many may wait has a burst of 1. burst + queue is the Limit of the rule, and what drains them its Window, or
// a second if that is longer. More than a day of it, or more hits than MaxLimit, is refused.
func NewBucket(name string, limit uint32, window time.Duration, subWindows int, burst, queue uint32) (*Rule, error) {
	r, err := NewRule(name, limit, window, subWindows, Lower)
	if err != nil {
		return nil, err
	}
	size := uint64(burst) + uint64(queue)
	if burst < 1 || size > MaxLimit {
		return nil, outOfRange("burst", burst, 1, MaxLimit-queue)
	}
	perHit := float64(window) / float64(limit)
	empty := perHit * float64(size)
	if empty > float64(MaxWindow) {
		return nil, outOfRange("burst", burst, 1, uint32(float64(MaxWindow)/perHit)-min(queue, uint32(float64(MaxWindow)/perHit)))
	}
	r.Limit, r.Window = uint32(size), max(time.Duration(math.Ceil(empty)), MinWindow)
	r.algorithm = tokens
	r.complete()
	r.bucket = bucket{
		drain: int64(math.Ceil(float64(r.sub) / perHit * (1 << unit))), // rounded up: the level is never above the true one
		queue: int64(queue), free: int64(burst), perHit: perHit,
	}
	largest := uint64(2*size)<<unit + uint64(r.bucket.drain)<<r.lanes
	r.bucket.coarse = uint(max(bits.Len64(largest), 32) - 32)
	numbers := lanes.NarrowGroups
	if r.Wide() {
		numbers = lanes.MaxGroups
	}
	r.touched = min(r.touched, numbers-1) // the last is carry and tail
	r.identity += time.Duration(perHit).String()
	return r, nil
}

// Interval is how long a hit takes to drain from a bucket, in nanoseconds; 0 of a rule that is none.
func (r *Rule) Interval() float64 { return r.bucket.perHit }

// levels are what the last number of a record holds. The tail is as if nothing had drained since the newest group began.
func (r *Rule) levels(groups []uint64) (carry, tail int64) {
	n := groups[len(groups)-1]
	return int64(n&math.MaxUint32) << r.bucket.coarse, int64(n>>32) << r.bucket.coarse
}

func (r *Rule) setLevels(groups []uint64, carry, tail int64) {
	groups[len(groups)-1] = uint64(r.coarsely(carry)) | uint64(r.coarsely(tail))<<32
}

func (r *Rule) coarsely(level int64) int64 {
	return min(max(level, 0)>>r.bucket.coarse, math.MaxUint32)
}

// through is a level after lanes of a group have come, each of whose hits is there when it begins.
func (r *Rule) through(level int64, group uint64, n int) int64 {
	if group == 0 {
		return max(level-int64(n)*r.bucket.drain, 0)
	}
	width := r.lanes.Width()
	for range n {
		level = max(level+int64(group&(1<<width-1))<<unit-r.bucket.drain, 0)
		group >>= width
	}
	return level
}

// filled is the level at a position, in units. It stops just below twice the bucket: more is what edges have admitted before they heard of each
// other, and of that a source has waited long enough when the bucket is empty once.
func (r *Rule) filled(groups []uint64, at position) int64 {
	level, tail := r.levels(groups)
	for g := r.groups() - 1; g > 0; g-- {
		level = r.through(level, groups[g], r.lanes.Count())
	}
	level = r.through(level, groups[0], at.lane)
	level += int64(r.lanes.Sum(groups[0]>>(uint(at.lane)*r.lanes.Width()))) << unit // with lanes of edges whose clock is ahead
	here := r.drainedIn(at)
	level = max(level-(here-int64(at.lane)*r.bucket.drain), tail-here, 0)
	return min(level, (2*int64(r.Limit)-1)<<unit)
}

// drainedIn is what drains from the beginning of the newest group to a position, rounded up.
func (r *Rule) drainedIn(at position) int64 {
	return int64(at.lane)*r.bucket.drain + int64(math.Ceil(at.gone*float64(r.bucket.drain)))
}

func (r *Rule) level(groups []uint64, at position) float64 {
	return float64(r.filled(groups, at)) / (1 << unit)
}

// pour adds hits to the tail. They are not in the lanes yet.
func (r *Rule) pour(groups []uint64, at position, hits uint32) {
	carry, _ := r.levels(groups)
	r.setLevels(groups, carry, r.filled(groups, at)+r.drainedIn(at)+int64(hits)<<unit)
}

// flow lets groups that become too old flow into the carry, after the newest has become another, later by turns.
func (r *Rule) flow(groups []uint64, turns int32) {
	n := int32(r.groups())
	if turns < 0 { // the clock has stepped back by more than the window
		r.setLevels(groups, 0, 0)
		return
	}
	carry, tail := r.levels(groups)
	for g := range min(turns, n) {
		carry = r.through(carry, groups[n-1-g], r.lanes.Count())
	}
	perGroup := r.bucket.drain << r.lanes
	carry -= min(carry, int64(max(turns-n, 0))*perGroup)
	tail -= min(tail, int64(turns)*perGroup)
	r.setLevels(groups, carry, tail)
}

// step moves the tail along with a step of the clock, from one position to another in the newest group.
func (r *Rule) step(groups []uint64, from, to position) {
	if r.algorithm == tokens {
		carry, tail := r.levels(groups)
		r.setLevels(groups, carry, max(tail-r.drainedIn(from), 0)+r.drainedIn(to))
	}
}

// learnLevels takes in the levels of another table's record, and its groups, that many groups after its newest was this one's: both know of some of
// the hits, so the larger are nearer the truth.
func (r *Rule) learnLevels(groups, others []uint64, turns int) {
	if r.algorithm != tokens || len(others) != r.groups()+1 || turns < 0 {
		return
	}
	var room [lanes.MaxGroups]uint64
	copied := room[:copy(room[:], others)]
	r.flow(copied, int32(min(turns, math.MaxInt32)))
	carry, tail := r.levels(groups)
	carry2, tail2 := r.levels(copied)
	r.setLevels(groups, max(carry, carry2), max(tail, tail2))
}

// told is what another table may learn of a record: its groups, and the levels behind them.
func (r *Rule) told(groups []uint64) []uint64 {
	if r.algorithm == tokens {
		return append(slices.Clone(groups[:r.groups()]), groups[len(groups)-1])
	}
	return slices.Clone(groups[:r.groups()])
}

// drained is how long it takes until n more hits have room.
func (r *Rule) drained(groups []uint64, at position, n float64) time.Duration {
	return r.draining(r.level(groups, at) + n - float64(r.Limit))
}

// delay is how long hits that are within a level wait for their turn.
func (r *Rule) delay(level float64) time.Duration {
	if over := level - float64(r.bucket.free); over > 0 {
		return r.draining(over)
	}
	return 0
}

// draining is how long it takes until so many hits have drained.
func (r *Rule) draining(hits float64) time.Duration {
	return time.Duration(max(hits, 0)*(1<<unit)/float64(r.bucket.drain)*float64(r.sub)) + time.Microsecond
}
