package histogram

import (
	"testing"
	"time"
)

// Each duration counts in the first bucket whose bound it does not pass, and in all that follow; what is longer than the last bound counts in the
// last.
func TestSnapshot(t *testing.T) {
	for _, test := range []struct {
		d     time.Duration
		bound float64 // seconds: the least bucket that it is counted in
	}{
		{0, 1e-6},
		{999 * time.Nanosecond, 1e-6},
		{time.Microsecond, 1e-6},
		{time.Microsecond + 1, 2e-6},
		{-time.Second, 1e-6},
		{1500 * time.Nanosecond, 2e-6},
		{3 * time.Microsecond, 4e-6},
		{time.Millisecond, 1024e-6},
		{time.Second, 1 << 20 / 1e6},
		{24 * time.Hour, 1 << 31 / 1e6},
	} {
		var h Histogram
		h.Observe(test.d)
		h.Observe(test.d)
		buckets, count, sum := h.Snapshot()
		if count != 2 || sum != 2*max(test.d, 0).Seconds() || len(buckets) != 32 {
			t.Errorf("%v twice: %d observations, %v s in all, %d buckets", test.d, count, sum, len(buckets))
		}
		for bound, n := range buckets {
			if want := map[bool]uint64{true: 2}[bound >= test.bound]; n != want {
				t.Errorf("%v twice: %d up to %v s, want %d", test.d, n, bound, want)
			}
		}
	}
}
