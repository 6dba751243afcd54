package pop_test

import (
	"testing"
	"time"

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
