package algorithm

import (
	"time"

	"sluice/counter/internal/histogram"
)

// MaxExact is the largest limit of a rule that keeps every hit's instant.
const MaxExact = 1000

// NewExact checks and completes a rule that goes by the instants of hits: a log of each source for
// small limits. The bounds are those of NewSliding, and the limit is MaxExact at most.
//
// The log is a ring instead of a histogram. There is one for a 64th of a table's counters, and
// those that have used most of their limit come first. Up to a limit of 100 it costs no extra
// memory, beyond that four bytes for each hit of the limit. It has this table's own hits to a
// 2^24th of a sub-window. Others' are known by their lanes, and leave with the first instant of
// their sub-window that does. So the estimate is never above the exact count and refuses nobody at
// or under the limit; one table alone is exact, and of several each takes up to as many hits too
// few as the others have admitted in the one sub-window that the window's beginning cuts, and those
// it has not learned of. A source without a log is counted as by Lower.
//
// A decision looks at no more than its ring: 104 stamps, or as many as the limit.
func NewExact(name string, limit uint32, window time.Duration, subWindows int) (*Spec, error) {
	if limit > MaxExact {
		return nil, outOfRange("limit", limit, 1, MaxExact)
	}
	r, err := NewSliding(name, limit, window, subWindows, Lower)
	if err != nil {
		return nil, err
	}
	r.algorithm = exact
	r.complete(1)
	return r, nil
}

// inLog is the hits in the window that ends at a position.
func (r *Spec) inLog(groups []uint64, own histogram.Own, at Position) float64 {
	v := r.view(groups, at.Lane)
	if v.oldest > 0 {
		if ring := r.log(own, at); ring.Histogram != nil {
			v.full += min(uint64(ring.Count(r.Cut(at), histogram.Stamp(0, at.Gone))), v.oldest)
		}
	}
	return float64(int64(v.full))
}

// log is the ring of a counter that has one in which there is something of the window.
func (r *Spec) log(own histogram.Own, p Position) histogram.Ring {
	ring := own.Ring()
	if ring.Histogram == nil || r.Number(p)-ring.Last > uint32(r.SubWindows) {
		return histogram.Ring{}
	}
	return ring
}

// leaving is when own hits come, in 2^24ths of it, of the sub-window that is cut by the beginning
// of the window ahead sub-windows after p: those within the window.
func (r *Spec) leaving(own histogram.Own, p Position, ahead int, buf []uint32) []uint32 {
	ring := r.log(own, p)
	if ring.Histogram == nil {
		return nil
	}
	if ahead > 0 {
		return ring.Within(r.Cut(p)+uint32(ahead), 0, buf)
	}
	return ring.Within(r.Cut(p), histogram.Stamp(0, p.Gone), buf)
}

// LogSize is how many hits the log of a counter is to have room for.
func (r *Spec) LogSize() int { return int(r.Limit) }

// Log adds hits to the log of a counter.
func (r *Spec) Log(ring histogram.Ring, p Position, hits uint32) {
	n := r.Number(p)
	for range min(int(hits), ring.Cap()) {
		ring.Push(n, histogram.Stamp(n, p.Gone), r.SubWindows)
	}
}

// logRetry is RetryAfter by the log: hits of others leave the window with their sub-window, own
// ones one by one.
func (r *Spec) logRetry(groups []uint64, own histogram.Own, p Position, n float64) time.Duration {
	room := int(r.Limit) - int(n)
	for ahead := 0; ; ahead++ {
		v := r.view(groups, p.Lane+ahead)
		if int(v.full) > room {
			continue
		}
		var stamps [MaxExact]uint32
		leaving := r.leaving(own, p, ahead, stamps[:0])
		at := 0.0
		if ahead == 0 {
			at = p.Gone
		}
		if over := int(v.full) + min(len(leaving), int(v.oldest)) - room; over > 0 {
			at = float64(leaving[over-1]+1) / (1 << 24)
		}
		return time.Duration((float64(ahead)+at-p.Gone)*float64(r.sub)) + time.Microsecond
	}
}
