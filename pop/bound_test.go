package pop_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/counter/algorithm"
	"sluice/pop/sim"
)

// most is the largest number of times in any stretch of the given length, its beginning included or not.
func most(times []time.Time, within time.Duration, beginning bool) (peak uint32) {
	first := 0
	for i, t := range times {
		for ; ; first++ {
			if age := t.Sub(times[first]); age < within || beginning && age == within {
				break
			}
		}
		peak = max(peak, uint32(i-first+1))
	}
	return peak
}

// traffic draws when a source sends: volleys at one instant, even rates and pauses, one after the other.
func traffic(t *rapid.T, limit int, window time.Duration) (times []time.Time) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	at := began.Add(time.Duration(rng.Int64N(int64(window))))
	for range rapid.IntRange(1, 8).Draw(t, "stretches") {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			for range rapid.IntRange(1, 10*limit).Draw(t, "volley") {
				times = append(times, at)
			}
		case 1:
			gap := time.Duration(rapid.IntRange(100, 500_000).Draw(t, "gap")) * time.Microsecond
			for range rapid.IntRange(1, 4*limit).Draw(t, "n") {
				at = at.Add(gap)
				times = append(times, at)
			}
		case 2: // a few sub-windows apart, where the formula is weakest
			for range rapid.IntRange(1, limit).Draw(t, "some") {
				at = at.Add(time.Duration(rng.Int64N(int64(window) / int64(limit))))
				times = append(times, at)
			}
		case 3:
			at = at.Add(time.Duration(rng.Int64N(int64(window) * 5 / 4)))
		}
	}
	return times
}

// TestNoWindowExceedsTheBound holds Rule.Bound against whole PoPs, volleys that meet all edges at one instant included.
func TestNoWindowExceedsTheBound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		edges, limit := rapid.IntRange(1, 8).Draw(rt, "edges"), rapid.IntRange(1, 60).Draw(rt, "limit")
		rtt := time.Duration(rapid.IntRange(1, 20).Draw(rt, "rtt")) * time.Millisecond
		estimate := rapid.SampledFrom([]algorithm.Estimate{algorithm.Nearest, algorithm.Lower}).Draw(rt, "estimate")
		timeout := rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(rt, "timeout")
		sticky := rapid.SampledFrom([]int{1, 20}).Draw(rt, "requests per connection")
		times := traffic(rt, limit, 10*time.Second)

		r := newRule(t, uint32(limit), 10*time.Second, timeout, estimate)
		w := newWorld(t, sim.Config{Edges: edges, Nodes: 2, RTT: rtt, Counters: 1000}, r)
		rng := rand.New(rand.NewPCG(uint64(len(times)), 2))
		var admitted []time.Time
		e := 0
		for i, at := range times {
			w.Run(at)
			if i%sticky == 0 {
				e = rng.IntN(edges)
			}
			if ask(w.Edges[e], r, address(1)) {
				admitted = append(admitted, at)
			}
		}
		bound := sim.Bound(r, edges, most(times, sim.Propagation(rtt, edges), true), most(times, r.Counter.Window/12, true))
		if got := most(admitted, r.Counter.Window, false); uint64(got) > bound {
			rt.Errorf("%d admitted in a window, the bound is %d", got, bound)
		}
	})
}

// TestWhatOlderGroupsHide plays patterns that a search found, in which each edge learns early of what others count
// later. Once they passed Rule.Bound.
func TestWhatOlderGroupsHide(t *testing.T) {
	const limit, stretch = 60, 2500 * time.Millisecond // a stretch is half a sub-window
	for _, pattern := range [][]struct{ edge, n int }{
		{
			{1, 4}, {1, 4}, {1, 2}, {0, 4}, {0, 2}, {0, 5}, {0, 1}, {0, 5}, {0, 4}, {0, 4}, {0, 1}, {1, 5}, {0, 0}, {1, 1}, {1, 3},
			{1, 4}, {1, 4}, {1, 4}, {1, 3}, {1, 4}, {1, 2}, {1, 3}, {0, 5}, {1, 3}, {0, 1}, {0, 0}, {0, 0}, {0, 5},
		},
		{
			{0, 4}, {0, 5}, {1, 5}, {0, 0}, {1, 2}, {1, 3}, {0, 5}, {1, 3}, {0, 4}, {1, 2}, {1, 2}, {2, 4}, {0, 5}, {2, 2}, {1, 1},
			{2, 5}, {0, 0}, {1, 2}, {2, 3}, {0, 4}, {1, 4}, {2, 5}, {2, 4}, {1, 3}, {1, 4}, {0, 2}, {0, 1}, {0, 2},
		},
	} {
		edges := 0
		for _, p := range pattern {
			edges = max(edges, p.edge+1)
		}
		r, s := newRule(t, limit, time.Minute, time.Minute, algorithm.Nearest), address(65) // the patterns are for its phase
		w := newWorld(t, sim.Config{Edges: edges, Nodes: 1, RTT: time.Millisecond, Counters: 1000}, r)
		for _, e := range w.Edges { // they have met
			ask(e, r, s)
		}
		w.Run(w.Now().Add(3 * time.Minute))
		var sent, admitted []time.Time
		for _, p := range pattern {
			begin := w.Now()
			for i := range p.n {
				w.Run(begin.Add(time.Duration(i) * stretch / time.Duration(p.n)))
				sent = append(sent, w.Now())
				if ask(w.Edges[p.edge], r, s) {
					admitted = append(admitted, w.Now())
				}
			}
			w.Run(begin.Add(stretch))
		}
		got := uint64(most(admitted, r.Counter.Window, false))
		bound := sim.Bound(r, edges, most(sent, sim.Propagation(time.Millisecond, edges), true), most(sent, r.Counter.Window/12, true))
		if got < limit || got > bound {
			t.Errorf("%d edges: %d admitted, want %d to %d", edges, got, limit, bound)
		}
	}
}

// TestLowerRefusesNobodyWithin: a source that never sends more than its limit in a window, longer by what the clocks of the edges are
// apart, is never refused.
func TestLowerRefusesNobodyWithin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		edges, limit := rapid.IntRange(1, 8).Draw(rt, "edges"), rapid.IntRange(1, 60).Draw(rt, "limit")
		skew := time.Duration(rapid.IntRange(0, 2000).Draw(rt, "skew")) * time.Millisecond
		ahead := make([]time.Duration, edges)
		for i := range ahead {
			ahead[i] = time.Duration(rapid.Float64Range(0, 1).Draw(rt, "ahead") * float64(skew))
		}
		times := traffic(rt, limit, 10*time.Second)

		r := newRule(t, uint32(limit), 10*time.Second, 10*time.Second, algorithm.Lower)
		w := newWorld(t, sim.Config{
			Edges: edges, Nodes: 2, RTT: time.Millisecond, Counters: 1000, Skew: func(edge int) time.Duration { return ahead[edge] },
		}, r)
		rng := rand.New(rand.NewPCG(uint64(len(times)), 3))
		var sent []time.Time
		for _, at := range times {
			for len(sent) > 0 && at.Sub(sent[0]) > r.Counter.Window+skew {
				sent = sent[1:]
			}
			if len(sent) == limit {
				continue
			}
			sent = append(sent, at)
			w.Run(at)
			if !ask(w.Edges[rng.IntN(edges)], r, address(1)) {
				rt.Fatalf("refused, %d in a window of %v, where %d are allowed", len(sent), r.Counter.Window+skew, limit)
			}
		}
	})
}
