package counter

import (
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// TestFirstHitOfAnother: a hit that came later than the one of which the bin is known is not taken for it when a histogram begins.
func TestFirstHitOfAnother(t *testing.T) {
	const sub = 5 * time.Second
	begin := time.Unix(1_700_000_000/20*20, 0)
	r := rule(t, 40, 12*sub, 12, algorithm.Nearest)
	table := New(Options{Counters: 64})
	hit := func(source, hits uint32, at time.Duration) {
		ask := [1]Reservation{{Rule: r, Source: address(source), Hits: hits}}
		if !table.Reserve(ask[:], begin.Add(at)) {
			t.Fatal("refused")
		}
	}
	for other := uint32(2); other < 50; other++ { // they have the histograms
		hit(other, 10, 0)
	}
	hit(1, 1, sub*31/32)
	hit(1, 1, 12*sub+sub/64)
	hit(1, 1, 13*sub)
	if v, _ := table.Peek(r, address(1), begin.Add(24*sub+sub/2)); v.Estimate > 1.6 {
		t.Errorf("half a sub-window after the second hit has left the window: %v, want 1.5 or less", v.Estimate)
	}
}
