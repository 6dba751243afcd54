package pop_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"sluice/counter"
	"sluice/pop/sim"
)

// TestNodeListChanges: while one edge after the other gets a new list of nodes, and once all have it, no source is admitted more than
// its limit (and what edges may not know of each other), and no steady source under it is refused.
func TestNodeListChanges(t *testing.T) {
	const sources, limit = 60, 30
	usual := uint32(0)
	for _, change := range []struct {
		name  string
		nodes []string
	}{
		{"no change", []string{"node0:11211", "node1:11211"}},
		{"one more", []string{"node0:11211", "node1:11211", "node2:11211"}},
		{"one replaced", []string{"node0:11211", "NODE2.:11211"}},
		{"one less", []string{"node1:11211"}},
	} {
		r := newRule(t, limit, time.Minute, time.Minute, counter.Lower)
		w := newWorld(t, sim.Config{Edges: 3, Nodes: 3, RTT: time.Millisecond, List: []string{"node0:11211", "node1:11211"}}, r)
		rng := rand.New(rand.NewPCG(1, 2))
		admitted := make(map[uint32][]time.Time)
		good := 0
		gap := time.Minute / (2 * limit) / sources // every source at twice its limit
		w.Run(began.Add(time.Second))
		for i := 0; w.Now().Sub(began) < 10*time.Minute; i++ {
			if at := w.Now().Sub(began); i%100 == 0 {
				for e := range 3 { // edges are reloaded a minute and a half apart
					if begin := time.Minute + time.Duration(e)*90*time.Second; at >= begin && at < begin+time.Second {
						if err := w.Edges[e].Machine.SetNodes(change.nodes); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			s := rng.Uint32N(sources)
			if ask(w.Edges[rng.IntN(3)], r, address(s)) {
				admitted[s] = append(admitted[s], w.Now())
			}
			if i%1500 == 0 { // a good source, at four fifths of its limit
				good++
				if !ask(w.Edges[rng.IntN(3)], r, address(1000)) {
					t.Errorf("%s: a good source was refused", change.name)
				}
			}
			w.Run(w.Now().Add(gap))
		}
		worst := uint32(0)
		for _, times := range admitted {
			worst = max(worst, most(times, r.Counter.Window, false))
		}
		if change.name == "no change" {
			usual = worst
		}
		if worst > usual+limit/5 { // of 60 sources the worst; counted apart, it would be twice the limit
			t.Errorf("%s: %d admitted in a window, the limit is %d, and %d without a change", change.name, worst, limit, usual)
		}
		if len(w.Edges[0].Machine.Members()) != len(change.nodes) {
			t.Errorf("%s: %v after the transition", change.name, w.Edges[0].Machine.Members())
		}
		t.Logf("%s: at most %d of %d in a window", change.name, worst, limit)
	}
}

func TestBadNodeLists(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, counter.Lower)
	w := newWorld(t, sim.Config{Edges: 1, Nodes: 1, RTT: time.Millisecond}, r)
	for _, nodes := range [][]string{{}, {""}, {"node0"}, {"node0:11211", "NODE0:011211"}} {
		if w.Edges[0].Machine.SetNodes(nodes) == nil {
			t.Errorf("%q was accepted", nodes)
		}
	}
}
