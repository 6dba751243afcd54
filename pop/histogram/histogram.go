// Package histogram counts how long things took: round trips, and blocks on their way from edge to edge.
package histogram

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Histogram counts durations by powers of two of a microsecond. It is safe for one writer and many readers.
type Histogram struct {
	buckets [32]atomic.Uint64
	sum     atomic.Int64
}

// Observe counts d. Below 0, as between two clocks, it counts as 0: a sum that falls would pass for one that began anew.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	above := uint64(max(d-1, 0) / time.Microsecond) // a duration of exactly a bucket's bound is in it
	h.buckets[min(bits.Len64(above), len(h.buckets)-1)].Add(1)
	h.sum.Add(int64(d))
}

// Snapshot gives the cumulative counts by upper bound in seconds, the number of observations and their sum in seconds.
func (h *Histogram) Snapshot() (buckets map[float64]uint64, count uint64, sum float64) {
	buckets = make(map[float64]uint64, len(h.buckets))
	for i := range h.buckets {
		count += h.buckets[i].Load()
		buckets[float64(uint64(1)<<i)/1e6] = count
	}
	return buckets, count, time.Duration(h.sum.Load()).Seconds()
}
