//go:build !race

package simulate

import (
	"fmt"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/virtual"
	"sluice/loadgen/trace"
	"sluice/loadgen/workload"
)

// By its own exact form each algorithm decides nothing wrongly on one edge, but where there is no room for a log. On eight it refuses nobody who is not over the limit, and lets pass
// what edges do not know of each other: within the bound, and so much of all requests at most.
func TestAlgorithmsByTheirTruth(t *testing.T) {
	for _, x := range []struct {
		algorithm string
		burst     uint32
		passes    float64 // in 1,000 requests, on eight edges
		alone     float64 // and on one
	}{
		{"token_bucket", 0, 10, 0}, {"token_bucket", 7, 5, 0}, {"leaky_bucket", 6, 5, 0}, {"fixed", 0, 1, 0}, {"exact", 0, 4, 0.5},
	} {
		for _, edges := range []int{1, 8} {
			t.Run(fmt.Sprintf("%s, burst %d, %d edges", x.algorithm, x.burst, edges), func(t *testing.T) {
				t.Parallel()
				const limit, window = 20, 10 * time.Second
				var all []*trace.Trace
				for _, name := range []string{"burst", "just-above", "constant", "onoff"} {
					w, err := workload.Generate(name, workload.Options{Seed: 1, Limit: limit, Window: window, Duration: time.Minute, Edges: 8})
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, w)
				}
				f := &cli.RuleFlags{Limits: []uint{limit}, Window: window, Timeout: window, SubWindows: 12, Estimates: []string{"nearest"}, Mode: "deployed",
					Algorithm: x.algorithm, Burst: x.burst}
				m, rules, err := f.Rules()
				if err != nil {
					t.Fatal(err)
				}
				size := &cli.PoP{Size: virtual.Size{Edges: edges, RTT: time.Millisecond}, PerConnection: 20, Quiet: true}
				if err := size.Check(); err != nil {
					t.Fatal(err)
				}
				r, err := Run(t.Context(), trace.Merge(all...), m, rules[0], size)
				if err != nil {
					t.Fatal(err)
				}
				got := &r.Figures
				passes := 1000 * float64(got.WronglyAllowed) / float64(got.Requests)
				t.Logf("%d requests, %d refused, %.3g of 1,000 let pass above the limit, %d refused under it; %d in the worst window, at most %d",
					got.Requests, got.Refused, passes, got.WronglyLimited, got.WorstWindow, got.Bound)
				if edges == 1 && (passes > x.alone || got.WronglyLimited > 0) {
					t.Errorf("%d and %d wrong decisions on one edge", got.WronglyAllowed, got.WronglyLimited)
				}
				if w := got.Waits; (w != nil) != (x.algorithm == "leaky_bucket") {
					t.Errorf("waits %+v", w)
				} else if w != nil {
					t.Logf("waited: %+v", *w)
					// The last of six waits for three seconds. One edge is off by the rounding of its level, eight by what they have not heard of.
					if w.Requests == 0 || w.Beyond > 0 || w.Queue != 3 || w.Delay.Max > w.Queue || w.Early.N == 0 || edges == 1 && w.Early.Max > 0.001 {
						t.Errorf("waits %+v", *w)
					}
				}
				if got.FalsePositiveSources > 0 || got.BeyondBound > 0 || passes > x.passes || got.Refused == 0 {
					t.Errorf("%d innocent sources, %d beyond the bound", got.FalsePositiveSources, got.BeyondBound)
				}
			})
		}
	}
}
