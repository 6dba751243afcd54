package pop_test

import (
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/secret"
	"sluice/pop/sim"
)

// TestThrottleByCosts: under a rule that throttles, and whose requests cost what their answers say, no more are
// admitted over all edges than it takes to pass the limit: a total that jumps over it is announced to all, as one that
// comes to it.
func TestThrottleByCosts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit, cost uint32
		edges, most int
	}{{100, 40, 4, 3}, {100, 70, 8, 2}, {1000, 999, 8, 2}, {100, 101, 4, 1}, {100, 1, 4, 101}} {
		r, err := algorithm.NewCostly("test", test.limit, time.Minute, 12, algorithm.Nearest, algorithm.MaxCost)
		must(t, err)
		rule := limiter.Rule{Rule: mitigation.Rule{Counter: r}, Costs: true}
		w, err := sim.New(sim.Config{Edges: test.edges, Nodes: 2, RTT: time.Millisecond, Secret: secret.Of([]byte("test"))}, []limiter.Rule{rule}, began)
		must(t, err)
		admitted := 0
		for n := range 400 { // one after the other, on the edges in turn
			e := w.Edges[n%test.edges]
			var d limiter.Decision
			d.Add(&rule, address(1))
			d.Results[0].Due = true
			if e.Decide(&d); !d.Refused() {
				admitted++
			}
			w.Run(w.Now().Add(5 * time.Millisecond)) // the answer takes so long
			d.Results[0].Hits = test.cost
			e.Settle(&d, 200)
			w.Run(w.Now().Add(50 * time.Millisecond)) // others have read the log
		}
		if admitted > test.most {
			t.Errorf("limit %d, cost %d, %d edges: %d requests were admitted, want at most %d", test.limit, test.cost, test.edges, admitted, test.most)
		}
	}
}
