// Package buckets has the histograms of metrics: how long things took, and how near to a limit
// sources are, by fixed bounds. An observation is a few comparisons and two additions, so that
// requests can make it: the histogram of the Prometheus client takes ten times as long.
package buckets

import (
	"sync/atomic"
	"time"
)

// maxBounds is how many bounds there may be.
const maxBounds = 32

// A Histogram counts whole numbers of some unit. It is safe for concurrent use. Latency, Trips and
// Share make one.
type Histogram struct {
	bounds []int64 // upper, inclusive, rising
	per    float64 // so many of what is observed are one of the metric's unit
	counts [maxBounds + 1]atomic.Uint64
	sum    atomic.Int64
}

// Latency is a histogram of durations from half a millisecond, which is less than any network
// takes, to a minute, after which a client has gone.
func Latency() *Histogram {
	const ms = int64(time.Millisecond)
	return &Histogram{per: 1e9, bounds: []int64{ms / 2, ms, 5 * ms / 2, 5 * ms, 10 * ms, 25 * ms,
		50 * ms, 100 * ms, 250 * ms, 500 * ms,
		1000 * ms, 2500 * ms, 5000 * ms, 10_000 * ms, 30_000 * ms, 60_000 * ms}}
}

// Trips is a histogram of durations inside a PoP, by powers of two of a microsecond.
func Trips() *Histogram {
	h := &Histogram{per: 1e9, bounds: make([]int64, maxBounds)}
	for i := range h.bounds {
		h.bounds[i] = int64(time.Microsecond) << i
	}
	return h
}

// Share is a histogram of shares of a limit, in hundredths: 100 is all of it.
func Share() *Histogram {
	return &Histogram{per: 100, bounds: []int64{5, 10, 25, 50, 75, 90, 100, 200}}
}

// Observe counts v. Below 0, as a duration between two clocks may be, it counts as 0: a sum that
// falls would pass for one that began anew.
func (h *Histogram) Observe(v int64) {
	v, i := max(v, 0), 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(v)
}

// Snapshot gives the cumulative counts by upper bound, the number of observations and their sum.
func (h *Histogram) Snapshot() (buckets map[float64]uint64, count uint64, sum float64) {
	buckets = make(map[float64]uint64, len(h.bounds))
	for i, bound := range h.bounds {
		count += h.counts[i].Load()
		buckets[float64(bound)/h.per] = count
	}
	return buckets, count + h.counts[len(h.bounds)].Load(), float64(h.sum.Load()) / h.per
}
