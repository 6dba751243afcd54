package pop

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

// Observe counts d; below 0 counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	us := uint64(max(d, 0) / time.Microsecond)
	h.buckets[min(bits.Len64(us), len(h.buckets)-1)].Add(1)
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

// machineStats is what a Machine has seen. Forged and LogFull belong to the machine's goroutine.
type machineStats struct {
	Propagation Histogram // from a verdict on one edge until it is in force on this one
	Forged      uint64    // values in the tier that are not of the form, or not authentic
	LogFull     uint64    // bits that found the log full
}
