package counter

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestLanesTogether: what is done to all lanes at once is what would be done to each.
func TestLanesTogether(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, limit := range []uint32{100, 100_000} {
		r := rule(t, limit, time.Minute, 12, Nearest)
		random := func() (group uint64) { // often the ends of what a lane may be
			for i := range r.lanes() {
				x := [...]uint64{0, 1, rng.Uint64N(r.laneMax() + 1), r.reportMax(), r.laneMax() - 1, r.laneMax()}[rng.IntN(6)]
				group |= x << (uint(i) * r.width())
			}
			return group
		}
		for range 10_000 {
			x, y, n := random(), random(), r.lane(random(), 0)
			raw := rng.Uint64()
			for i := range r.lanes() {
				f := func(name string, group, want uint64) {
					t.Helper()
					if got := r.lane(group, i); got != min(want, r.laneMax()) {
						t.Fatalf("limit %d: %x %s %x: lane %d is %x, want %x", limit, x, name, y, i, got, want)
					}
				}
				a, b := r.lane(x, i), r.lane(y, i)
				f("plus", r.plus(x, y), a+b)
				f("minus", r.minus(x, y), a-min(a, b))
				f("most", r.most(x, y), max(a, b))
				f("at most", r.atMost(x, n), min(a, n))
				f("clamped", r.clamp(raw), r.lane(raw, i))
			}
		}
	}
}
