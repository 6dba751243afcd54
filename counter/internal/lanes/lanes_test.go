package lanes

import (
	"math/rand/v2"
	"testing"
)

// TestLanesTogether: what is done to all lanes at once is what would be done to each.
func TestLanesTogether(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range []Packing{Narrow, Wide} {
		random := func() (group uint64) { // often the ends of what a lane may be
			for i := range p.Count() {
				x := [...]uint64{0, 1, rng.Uint64N(p.Max() + 1), p.ReportMax(), p.Max() - 1, p.Max()}[rng.IntN(6)]
				group |= x << (uint(i) * p.Width())
			}
			return group
		}
		for range 10_000 {
			x, y, n := random(), random(), p.Lane(random(), 0)
			raw := rng.Uint64()
			for i := range p.Count() {
				f := func(name string, group, want uint64) {
					t.Helper()
					if got := p.Lane(group, i); got != min(want, p.Max()) {
						t.Fatalf("%d lanes: %x %s %x: lane %d is %x, want %x", p.Count(), x, name, y, i, got, want)
					}
				}
				a, b := p.Lane(x, i), p.Lane(y, i)
				f("plus", p.Plus(x, y), a+b)
				f("minus", p.Minus(x, y), a-min(a, b))
				f("most", p.Most(x, y), max(a, b))
				f("at most", p.AtMost(x, n), min(a, n))
				f("clamped", p.Clamp(raw), p.Lane(raw, i))
			}
		}
	}
}
