package counter

import (
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// What other PoPs have counted adds to nothing that is only likely: of the hits here those count beside it that certainly lie in the window, and
// alone they count as the rule's estimate says, if that is more. Nobody's word fills a limit.
func TestEstimateWithOthers(t *testing.T) {
	begin := time.Unix(1_700_000_000/60*60, 0)
	now := begin.Add(time.Minute + 2500*time.Millisecond) // half of the first sub-window of 5 s has left the window
	for _, test := range []struct {
		e     algorithm.Estimate
		there uint32 // that one other PoP has counted
		pops  uint64
		want  float64
	}{
		{algorithm.Nearest, 0, 1, 15},
		{algorithm.Nearest, 10, 1, 15},
		{algorithm.Nearest, 50, 1, 50},
		{algorithm.Nearest, 20, 2, 40},
		{algorithm.Nearest, 1 << 31, 3, 59},
		{algorithm.Lower, 0, 1, 0},
		{algorithm.Lower, 50, 1, 50},
	} {
		c := Counter{Rule: rule(t, 60, time.Minute, 12, test.e), Source: address(1)}
		table := New(Options{Counters: 100, Tier: true})
		newest, groups := c.Rule.Position(begin.UnixNano(), 0).Group, []uint64{30} // in the first sub-window, nobody knows when
		table.Reports().Apply(c, newest, groups, 0, begin)
		for pop := range test.pops {
			slice := Slice{Began: now.Add(-time.Second), Sub: 5 * time.Second, Hits: []uint32{test.there}}
			newest, groups = table.Reports().Fit(c, slice, now)
			table.Reports().CountedByOtherPoP(c, pop, newest, groups, now, now)
			table.Reports().CountedByOtherPoP(c, pop, newest, groups, now, now) // said again, it is as much
		}
		if v, _ := table.Peek(c.Rule, c.Source, now); v.Estimate != test.want {
			t.Errorf("%v, %d in each of %d other PoPs: %v, want %v", test.e, test.there, test.pops, v.Estimate, test.want)
		}
		if v, _ := table.PeekFor(c.Rule, c.Source, 20, now); v.Over {
			if before, _ := table.PeekFor(c.Rule, c.Source, 20, now.Add(v.RetryAfter-time.Millisecond)); !before.Over {
				t.Errorf("%v, %d: there is room before %v", test.e, test.there, v.RetryAfter)
			}
			if after, _ := table.PeekFor(c.Rule, c.Source, 20, now.Add(v.RetryAfter)); after.Over {
				t.Errorf("%v, %d: there is no room after %v", test.e, test.there, v.RetryAfter)
			}
		} else if test.want > 40 {
			t.Errorf("%v, %d: 20 more are within the limit", test.e, test.there)
		}
	}
}

// What other PoPs have counted is in sub-windows of a time that is no more once the clock has stepped: it is dropped, and they say it again.
func TestStepForgetsOthers(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -5 * time.Second, 300 * time.Millisecond, 5 * time.Second, time.Hour} {
		for _, tier := range []bool{false, true} {
			c := Counter{Rule: rule(t, 60, time.Minute, 12, algorithm.Nearest), Source: address(1)}
			table := New(Options{Counters: 100, Tier: true})
			table.Reserve([]Reservation{{Rule: c.Rule, Source: c.Source, Hits: 1}}, epoch)
			newest, groups := table.Reports().Fit(c, Slice{Began: epoch, Sub: 5 * time.Second, Hits: []uint32{50}}, epoch)
			table.Reports().CountedByOtherPoP(c, 2, newest, groups, epoch, epoch)
			if v, _ := table.Peek(c.Rule, c.Source, epoch); v.Estimate != 51 {
				t.Fatalf("%v before the step", v.Estimate)
			}
			table.Reports().Adjust(step, tier, epoch)
			if v, _ := table.Peek(c.Rule, c.Source, epoch); v.Estimate != 1 || table.OtherPoPs() != 0 {
				t.Errorf("%v, tier %v: %v are counted, and others have said something of %d counters", step, tier, v.Estimate, table.OtherPoPs())
			}
		}
	}
}
