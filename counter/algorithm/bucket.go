package algorithm

import (
	"fmt"
	"math"
	"time"

	"sluice/counter/internal/lanes"

	"github.com/cespare/xxhash/v2"
)

// A bucket fills by a hit each and drains at a steady rate; what would make it overflow is refused.
// It is the continuous-state leaky bucket of ITU-T I.371 and of the ATM Forum (Traffic Management
// 4.0, 4.4.2), which decide as GCRA, virtual scheduling, does, and as a token bucket whose tokens
// are what the bucket has room for:
//
//	level(t) = max over s <= t of (hits since s - rate * (t - s)), at least 0
//
// A bucket of B hits that drains r of them a second is empty after B/r. So it is a rule with the
// limit B in a window of B/r, and all that counters do near a limit and far from it holds as it is:
// the level is used instead of the estimate.
//
// The level is made of lanes, one after the other, the oldest first: what is in the bucket, and a
// lane's hits, and less what drains within a lane. Lanes forget: a source that keeps a bucket full
// hits no more often than one that keeps it empty. So the first lane of each group has no hits, but
// the level when the group began, as the edge that opened the group knew it. memcached's add lets
// one edge open it, and every incr answers with it, so an edge that meets a source learns how full
// its bucket is from the answer to its first hit, and nothing is compared and swapped. A record
// has, in a number that its lanes leave free, one level more:
//
//	tail   of this table's own hits, each at its instant: GCRA's theoretical arrival time
//
// and the level is the larger of the lanes' and the tail's. Both are at most the true level: lanes
// take their hits to have come when they began, and hits that this table has not learned of are in
// neither. So a bucket never refuses a request that the true one would admit. A table that counts
// alone has every hit in its tail, and decides as GCRA does. Of others' hits, by which the lanes
// know, it takes up to
//
//	rate * one sub-window
//
// too few, a 12th of the bucket or what drains in a 12th of a second; beside that are those of
// which it, or the edge that opened the group, has not learned, as with any algorithm.
//
// It costs the tier a number for each three sub-windows where a sliding window has one for four
// (one for one where the limit needs wide lanes), and a read more where an edge meets a source that
// was elsewhere in the group before; and a decision up to 9 additions.
type bucket struct {
	drain int64 // within a lane, in units
	step  int64 // units of a level that make one in the first lane of a group
	// Hits for which there is room beyond those that pass at once; they wait for their turn
	queue  int64
	free   int64 // those
	perHit float64
}

// unit is a 2^20th of a hit.
const unit = 20

// overfull is how many times its size a level is at most. It is more than its size when edges have
// admitted hits before they learned of each other, and a source that does so on more edges at once
// than this is forgiven the rest.
const overfull = 16

// NewBucket checks and completes a rule of a bucket that holds burst hits and drains limit of them
// in a window. Queue more hits may come before their time: they are admitted, and the verdict says
// when it is their turn (Delay). A token bucket has no queue; a leaky bucket in front of which so
// many may wait has a burst of 1. burst + queue is the Limit of the rule, and what drains them its
// Window, or a second if that is longer. More than a day of it, or more hits than MaxLimit, is
// refused.
func NewBucket(name string, limit uint32, window time.Duration, subWindows int, burst,
	queue uint32) (*Spec, error) {
	r, err := NewSliding(name, limit, window, subWindows, Lower)
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
		return nil, outOfRange("burst", burst, 1, uint32(float64(MaxWindow)/perHit)-min(queue,
			uint32(float64(MaxWindow)/perHit)))
	}
	r.Limit, r.Window = uint32(size), max(time.Duration(math.Ceil(empty)), MinWindow)
	r.algorithm = tokens
	r.complete(1)
	r.bucket = bucket{
		// Rounded up: the level is never above the true one
		drain: int64(math.Ceil(float64(r.sub) / perHit * (1 << unit))),
		queue: int64(queue), free: int64(burst), perHit: perHit,
	}
	r.bucket.step = int64(overfull*size)<<unit/int64(r.lanes.ReportMax()) + 1
	r.first = 1
	r.touched = lanes.NarrowGroups - 1 // the last number is the tail
	if r.Wide() {
		r.touched = lanes.MaxGroups - 1
	}
	// The tail holds a level, and how soon that drains
	r.identity += fmt.Sprintf(" %v %d %d", perHit, burst, queue)
	r.ID = uint32(xxhash.Sum64String(r.identity))
	return r, nil
}

// Interval is how long a hit takes to drain from a bucket, in nanoseconds; 0 of a rule that is
// none.
func (r *Spec) Interval() float64 { return r.bucket.perHit }

// Queue is how many of Limit wait for their turn before a bucket; 0: none does.
func (r *Spec) Queue() uint32 { return uint32(r.bucket.queue) }

// inBucket is Position: a group has a lane less for sub-windows.
func (r *Spec) inBucket(ns int64) Position {
	n, each := ns/r.sub, int64(r.lanes.Count()-1)
	return Position{Group: uint32(n / each), Lane: 1 + int(n%each),
		Gone: float64(ns-n*r.sub) * r.perSub}
}

// perGroup is what drains within a group.
func (r *Spec) perGroup() int64 { return int64(r.lanes.Count()-1) * r.bucket.drain }

// opened is a group that begins with a level.
func (r *Spec) opened(level int64) uint64 {
	return uint64(min(level/r.bucket.step, int64(r.lanes.ReportMax())))
}

// through is a level after the lanes of a group have come, those before the given one, each of
// whose hits is there when it begins.
func (r *Spec) through(level int64, group uint64, before int) int64 {
	width := r.lanes.Width()
	level = max(level, int64(group&(1<<width-1))*r.bucket.step)
	for range before - 1 {
		group >>= width
		level = max(level+int64(group&(1<<width-1))<<unit-r.bucket.drain, 0)
	}
	return level
}

// upTo is the level that the lanes say when a lane of the newest group begins.
func (r *Spec) upTo(groups []uint64, lane int) (level int64) {
	for g := r.Groups() - 1; g > 0; g-- {
		level = r.through(level, groups[g], r.lanes.Count())
	}
	return r.through(level, groups[0], lane)
}

// filled is the level at a position, in units.
func (r *Spec) filled(groups []uint64, at Position) int64 {
	level := r.upTo(groups, at.Lane)
	// With lanes of edges whose clock is ahead
	level += int64(r.lanes.Sum(groups[0]>>(uint(at.Lane)*r.lanes.Width()))) << unit
	here := r.drainedIn(at)
	level = max(level-(here-int64(at.Lane-1)*r.bucket.drain), int64(*tail(groups))-here, 0)
	return min(level, overfull*int64(r.Limit)<<unit)
}

// tail is that of a record, as if nothing had drained since its newest group began.
func tail(groups []uint64) *uint64 { return &groups[len(groups)-1] }

// drainedIn is what drains from the beginning of the newest group to a position, rounded up.
func (r *Spec) drainedIn(at Position) int64 {
	return int64(at.Lane-1)*r.bucket.drain + int64(math.Ceil(at.Gone*float64(r.bucket.drain)))
}

func (r *Spec) level(groups []uint64, at Position) float64 {
	return float64(r.filled(groups, at)) / (1 << unit)
}

// Pour adds hits to the tail. They are not in the lanes yet.
func (r *Spec) Pour(groups []uint64, at Position, hits uint32) {
	*tail(groups) = uint64(r.filled(groups, at) + r.drainedIn(at) + int64(hits)<<unit)
}

// flow opens the group that has become a record's newest, later by turns, by so many groups of the
// record.
func (r *Spec) flow(groups []uint64, turns int32, by int) {
	opened := uint64(0)
	if turns > 0 {
		drained := int64(min(turns, 64)) * r.perGroup() // which is all, and no number too large
		opened = r.opened(max(r.upTo(groups, r.lanes.Count())-drained+r.perGroup(), 0))
		*tail(groups) -= min(*tail(groups), uint64(drained))
	} else { // the clock has stepped back by more than the window
		*tail(groups) = 0
	}
	lanes.Older(groups[:r.Groups()], by)
	groups[0] = opened
}

// step brings a record over a step of the clock, from one position to another: it begins anew with
// the level that it had. Of that, pending hits are still to be reported, and stand in the last
// lane.
func (r *Spec) step(groups []uint64, from, to Position, pending uint64) {
	level := r.filled(groups, from)
	clear(groups)
	*tail(groups) = uint64(level + r.drainedIn(to))
	groups[0] = r.opened(max(level+r.drainedIn(to)-int64(pending)<<unit, 0))
	groups[0] = r.lanes.Add(groups[0], r.lanes.Count()-1, pending)
}

// drained is how long it takes until there is room for n more hits; a window at most, so a client
// that has overfilled a bucket may have to wait once more.
func (r *Spec) drained(groups []uint64, at Position, n float64) time.Duration {
	return min(r.draining(r.level(groups, at)+n-float64(r.Limit)), r.Window)
}

// Delay is how long hits that are within a level wait for their turn; 0 under a rule before which
// there is no queue.
func (r *Spec) Delay(level float64) time.Duration {
	if r.bucket.queue == 0 {
		return 0
	}
	return r.delay(level)
}

func (r *Spec) delay(level float64) time.Duration {
	if over := level - float64(r.bucket.free); over > 0 {
		return r.draining(over)
	}
	return 0
}

// draining is how long it takes until so many hits have drained.
func (r *Spec) draining(hits float64) time.Duration {
	return time.Duration(max(hits, 0)*(1<<unit)/float64(r.bucket.drain)*float64(r.sub)) +
		time.Microsecond
}
