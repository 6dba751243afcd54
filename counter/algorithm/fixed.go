package algorithm

import (
	"fmt"
	"time"
)

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
