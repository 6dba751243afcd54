package audit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/audit/exactlog"
	"sluice/edge/limiter"
	"sluice/mitigation"
)

// judged has two edges decide, whose counters are one and whose clocks are apart, about a source whose requests come gap() apart.
func judged(t *testing.T, r *limiter.Rule, apart, lasts time.Duration, gap func() time.Duration) *exactlog.Figures {
	t.Helper()
	now := epoch.Truncate(exactlog.Interval)
	bits, end := mitigation.New(16, nil), now.Add(lasts)
	l := limiter.Limiter{Counters: counter.New(counter.Options{Counters: 1024, Began: now}), Bits: bits}
	var edges [2]*Audit
	for i := range edges {
		edges[i] = New(1, nil, now)
		edges[i].hash = func(counter.Source) uint64 { return 1 }
		edges[i].Blocks = bits.Get
	}
	var j exactlog.Judge
	number := exactlog.NumberOf(now)
	for n := 0; now.Before(end); n++ {
		now = now.Add(gap())
		if next := exactlog.NumberOf(now.Add(-time.Second)); next > number { // when the batches of both have come
			for i := range edges {
				b := edges[i].Take(number, now)
				b.Edge = uint64(i)
				j.Add(b)
			}
			number = next
			j.Advance(number * exactlog.Interval.Microseconds())
		}
		var d limiter.Decision
		d.Add(r, source(1))
		l.Decide(&d, now)
		edges[n%2].Note(&d, now.Add(time.Duration(n%2)*apart))
	}
	return j.Rules()["r"]
}

// What the formula does not know is no fault, whatever the rule.
func TestFormulaIsNoFault(t *testing.T) {
	for _, e := range []algorithm.Estimate{algorithm.Nearest, algorithm.Lower} {
		for _, sub := range []int{1, 2, 12} {
			for _, timeout := range []time.Duration{0, 20 * time.Second} {
				t.Run(fmt.Sprint(e, sub, timeout), func(t *testing.T) {
					c, err := algorithm.NewSliding("r", 100, time.Minute, sub, e)
					if err != nil {
						t.Fatal(err)
					}
					random := rand.New(rand.NewPCG(1, 2))
					f := judged(t, &limiter.Rule{Rule: mitigation.Rule{Counter: c, Timeout: timeout}}, 0, 30*time.Minute, func() time.Duration { return time.Duration(random.ExpFloat64() * float64(200*time.Millisecond)) })
					if f.Allowed+f.Limited == 0 || f.Unexplained != 0 {
						t.Errorf("%+v", f)
					}
				})
			}
		}
	}
}

// Nor are clocks that differ, but those that differ by more than is right are.
func TestClocksAreNoFault(t *testing.T) {
	c, err := algorithm.NewSliding("r", 100, time.Minute, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	for _, apart := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond} {
		f := judged(t, &limiter.Rule{Rule: mitigation.Rule{Counter: c, Timeout: time.Minute}}, apart, time.Hour, func() time.Duration { return 10 * time.Millisecond })
		if f.Limited == 0 || (f.Unexplained > 0) != (apart > exactlog.Clocks) {
			t.Errorf("%v: %+v", apart, f)
		}
	}
}
