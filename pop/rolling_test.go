package pop_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/pop/secret"
	"sluice/pop/sim"
)

// TestRollingChange: while some edges have another limit, each edge refuses nobody who is within its own limit: neither who keeps to the
// lower limit nor, where the higher one is in force, who keeps to that.
func TestRollingChange(t *testing.T) {
	t.Parallel()
	refused := 0
	for seed := range histories(6) {
		rng := rand.New(rand.NewPCG(seed, 3))
		limits := [2]uint32{pick(rng, uint32(1), 3, 10, 60, 500), 0}
		limits[1] = limits[0] + 1 + rng.Uint32N(3*limits[0])
		window := pick(rng, time.Second, 2*time.Second, 10*time.Second, time.Minute)
		edges, timeout := 2+rng.IntN(7), pick(rng, 0, window/3, window, 3*window)
		var rules [2]limiter.Rule
		for i := range rules {
			rules[i] = limiter.Rule{Rule: newRule(t, limits[i], window, timeout, algorithm.Lower)}
		}
		w, err := sim.New(sim.Config{
			Edges: edges, Nodes: 1 + rng.IntN(3), RTT: time.Duration(1+rng.IntN(10)) * time.Millisecond, Counters: 100, Secret: secret.Of([]byte("test")),
		}, rules[:1], began)
		must(t, err)
		of := make([]limiter.Rule, edges)
		change := func(edge int, r limiter.Rule) {
			of[edge] = r
			w.Edges[edge].SetRules([]limiter.Rule{r})
		}
		for i := range of {
			change(i, rules[i%2])
		}
		// Source i keeps to limits[i], over all edges together.
		logs := [2]exactHits{{window: window}, {window: window}}
		for range 500 {
			if rng.IntN(20) > 0 {
				w.Run(w.Now().Add(time.Duration(rng.Float64() * float64(window) / float64(limits[1]) * 2)))
			}
			if rng.IntN(200) == 0 { // a reload
				i := rng.IntN(edges)
				change(i, rules[i%2])
			}
			n, edge := rng.IntN(2), rng.IntN(edges)
			now := w.Now()
			if logs[n].within(now) >= uint64(limits[n]) {
				continue
			}
			ok := !w.Edges[edge].Request(&of[edge], address(uint32(n))).Refused()
			switch {
			case ok:
				logs[n].add(now, 1)
			case of[edge].Counter.Limit >= limits[n]:
				t.Fatalf("seed %d: limits %d, window %v, timeout %v, %d edges: edge %d, limit %d, refused who kept to %d, at %v", seed, limits, window, timeout, edges, edge, of[edge].Counter.Limit, limits[n], now.Sub(began))
			default:
				refused++
			}
		}
	}
	if refused == 0 {
		t.Error("nobody was over the lower limit")
	}
}
