package judge

import (
	"testing"
	"time"
)

func TestWorstWindow(t *testing.T) {
	j := NewDeployedJudge(Options{Limit: 2, Window: 10 * time.Second, Timeout: 10 * time.Second, Bound: func(source int32) uint32 { return 3 + uint32(source) }})
	f := func(at time.Duration, source int32, v Verdict) {
		j.Decide(&Decision{At: at * time.Second, Source: source, Verdict: v, Estimate: 1})
	}
	for at := range time.Duration(4) { // 4 within a window, where 3 are allowed
		f(at, 0, Admitted)
	}
	f(5, 0, Limited) // not counted
	f(11, 0, Admitted)
	for range 3 {
		f(12, 1, Admitted)
	}
	got := j.Figures()
	if got.WorstWindow != 4 || got.WorstExcess != 2 || got.Bound != 3 || got.BeyondBound != 1 {
		t.Errorf("worst window %d, %d over, allowed %d, %d sources beyond; want 4, 2, 3, 1", got.WorstWindow, got.WorstExcess, got.Bound, got.BeyondBound)
	}
}
