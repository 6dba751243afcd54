package buckets

import (
	"math"
	"testing"
	"time"
)

// Each value counts in the first bucket whose bound it does not pass, and in all that follow; what is longer than the last bound, in none. All are
// in the sum.
func TestSnapshot(t *testing.T) {
	const none = math.MaxFloat64
	for _, test := range []struct {
		of    func() *Histogram
		v     int64
		bound float64 // the least bucket that v is counted in
		sum   float64
	}{
		{Latency, -1, 0.0005, 0},
		{Latency, 0, 0.0005, 0},
		{Latency, int64(time.Millisecond / 2), 0.0005, 0.0005},
		{Latency, int64(time.Millisecond/2) + 1, 0.001, 0.000500001},
		{Latency, int64(time.Second), 1, 1},
		{Latency, int64(time.Minute), 60, 60},
		{Latency, int64(time.Hour), none, 3600},
		{Trips, int64(-time.Second), 1e-6, 0},
		{Trips, 999, 1e-6, 999e-9},
		{Trips, int64(time.Microsecond), 1e-6, 1e-6},
		{Trips, int64(time.Microsecond) + 1, 2e-6, 1001e-9},
		{Trips, int64(3 * time.Microsecond), 4e-6, 3e-6},
		{Trips, int64(time.Millisecond), 1024e-6, 1e-3},
		{Trips, int64(time.Second), 1 << 20 / 1e6, 1},
		{Trips, int64(24 * time.Hour), none, 86_400},
		{Share, 5, 0.05, 0.05},
		{Share, 101, 2, 1.01},
		{Share, 300, none, 3},
	} {
		h := test.of()
		h.Observe(test.v)
		h.Observe(test.v)
		buckets, count, sum := h.Snapshot()
		if count != 2 || sum != 2*test.sum || len(buckets) != len(h.bounds) {
			t.Errorf("%d twice: %d observations, %v in all, %d buckets", test.v, count, sum, len(buckets))
		}
		for bound, n := range buckets {
			if want := map[bool]uint64{true: 2}[bound >= test.bound]; n != want {
				t.Errorf("%d twice: %d up to %v, want %d", test.v, n, bound, want)
			}
		}
	}
}

// Requests are observed, so that costs no memory.
func TestObserveAllocatesNothing(t *testing.T) {
	h := Latency()
	if n := testing.AllocsPerRun(100, func() { h.Observe(1e6) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
