package metric

import (
	"math"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	h := Latency()
	for _, d := range []time.Duration{-1, 0, time.Millisecond / 2, time.Millisecond/2 + 1, time.Second, time.Minute, time.Hour} {
		h.Observe(int64(d))
	}
	buckets, count, sum := h.Snapshot()
	for bound, want := range map[float64]uint64{0.0005: 3, 0.001: 4, 0.5: 4, 1: 5, 30: 5, 60: 6} {
		found := false
		for b, n := range buckets {
			if math.Abs(b-bound) < 1e-9 {
				if found = true; n != want {
					t.Errorf("up to %v: %d, want %d", bound, n, want)
				}
			}
		}
		if !found {
			t.Errorf("no bound %v", bound)
		}
	}
	if count != 7 || math.Abs(sum-3661.001) > 0.001 {
		t.Errorf("%d of %v s", count, sum)
	}
	if n := testing.AllocsPerRun(100, func() { h.Observe(1e6) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
