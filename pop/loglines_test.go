package pop_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/pop/poptest"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/sim"
	"sluice/pop/wire"
)

// TestLogLinesOfASource: whatever one source does, the edges write at most as many lines about it to the mitigation log as there are
// edges, and eight, for each time that it is blocked.
func TestLogLinesOfASource(t *testing.T) {
	t.Parallel()
	worst := make(map[string]string)
	peak, where := make(map[int]float64), make(map[int]string) // by edges
	for name, attack := range map[string]func(w *sim.World, hit func(edge, n int), limit int, rng *rand.Rand){
		"touches all edges, and comes to its limit on one": func(w *sim.World, hit func(edge, n int), limit int, _ *rand.Rand) {
			for e := range w.Edges {
				hit(e, 1)
				w.Run(w.Now().Add(20 * time.Millisecond))
			}
			for range 2 * limit {
				hit(0, 1)
				w.Run(w.Now().Add(20 * time.Millisecond))
			}
		},
		"touches all edges, and comes near its limit on one at once": func(w *sim.World, hit func(edge, n int), limit int, _ *rand.Rand) {
			for e := range w.Edges {
				hit(e, 1)
			}
			w.Run(w.Now().Add(time.Second))
			hit(0, 2*limit)
		},
		"a volley on all edges": func(w *sim.World, hit func(edge, n int), limit int, _ *rand.Rand) {
			for e := range w.Edges {
				hit(e, 2*limit)
			}
		},
		"volleys on all edges, a little below the limit": func(w *sim.World, hit func(edge, n int), limit int, _ *rand.Rand) {
			for range 4 {
				for e := range w.Edges {
					hit(e, max(limit/len(w.Edges)/3, 1))
				}
				w.Run(w.Now().Add(3 * time.Second))
			}
		},
		"crosses slowly, on all edges in turn": func(w *sim.World, hit func(edge, n int), limit int, _ *rand.Rand) {
			for i := range 2 * limit {
				hit(i%len(w.Edges), 1)
				w.Run(w.Now().Add(time.Minute * 9 / 10 / time.Duration(limit)))
			}
		},
		"crosses slowly, on one edge after the other": func(w *sim.World, hit func(edge, n int), limit int, rng *rand.Rand) {
			e := 0
			for i := range 2 * limit {
				if i%20 == 0 {
					e = rng.IntN(len(w.Edges))
				}
				hit(e, 1)
				w.Run(w.Now().Add(time.Minute * 98 / 100 / time.Duration(limit)))
			}
		},
		"one hit on each edge, after a sub-window again": func(w *sim.World, hit func(edge, n int), limit int, _ *rand.Rand) {
			for range 12 {
				for e := range w.Edges {
					hit(e, 1)
				}
				w.Run(w.Now().Add(5 * time.Second))
			}
		},
		"keeps just below its limit for two windows": func(w *sim.World, hit func(edge, n int), limit int, _ *rand.Rand) {
			for i := range 2 * limit {
				hit(i%len(w.Edges), 1)
				w.Run(w.Now().Add(time.Minute * 102 / 100 / time.Duration(limit)))
			}
		},
	} {
		for _, edges := range []int{1, 8, 16, 32, 64} {
			if edges > 8 && raceEnabled || edges > 16 && *manyHistories == 1 {
				continue
			}
			for _, limit := range []int{5, 30, 100} {
				if limit > 30 && edges > 16 {
					continue // takes long
				}
				for _, estimate := range []algorithm.Estimate{algorithm.Nearest, algorithm.Lower} {
					if (edges == 8 || edges == 32) == (estimate == algorithm.Lower) && limit > 5 {
						continue // one of the two, in turn
					}
					r := newRule(t, uint32(limit), time.Minute, time.Minute, estimate)
					kinds := make(map[string]int)
					w := newWorld(t, sim.Config{
						Edges: edges, Nodes: 2, RTT: time.Millisecond, Counters: 100,
						Carry: func(c wire.Command, node *poptest.Node, now time.Time) wire.Result {
							if c.Key[0] == 'l' && c.Op == wire.Set {
								for sealed, rest := record.Cut(c.Value); sealed != nil; sealed, rest = record.Cut(rest) {
									r, _ := record.Open(secret.Of([]byte("test")), sealed)
									kinds[r.Kind.String()]++
								}
							}
							return node.Do(now, c)
						},
					}, r)
					s, blocks, blocked := address(1), 0, false
					begin := w.Now()
					attack(w, func(edge, n int) {
						for range n {
							ask(w.Edges[edge], r, s)
						}
						if is := mitigated(w, w.Edges[edge], r, s); is != blocked {
							if blocked = is; is {
								blocks++
							}
						}
					}, limit, rand.New(rand.NewPCG(uint64(edges), uint64(limit))))
					w.Run(w.Now().Add(time.Second))
					lines := uint64(0)
					for _, e := range w.Edges {
						lines += e.Machine.Stats().LogRecords
					}
					// Without a block, a window counts as one.
					spans := max(blocks, int(w.Now().Sub(begin)/time.Minute)+1)
					// What is said once by all edges together: when hits came each says for itself, and may ask.
					if once := kinds["standing"] + kinds["block"]; once > 8*spans {
						worst[fmt.Sprintf("%s: %d edges, limit %d, %v", name, edges, limit, estimate)] = fmt.Sprintf("%v in %d", kinds, spans)
					}
					ratio := float64(lines) / float64(spans*(edges+8))
					if ratio > peak[edges] {
						peak[edges], where[edges] = ratio, fmt.Sprintf("%s, limit %d, %v: %d lines in %d", name, limit, estimate, lines, spans)
					}
					if most := uint64(spans * (edges + 8)); lines > most {
						worst[fmt.Sprintf("%s: %d edges, limit %d, %v", name, edges, limit, estimate)] =
							fmt.Sprintf("%d lines, %d blocks in %v, want at most %d", lines, blocks, w.Now().Sub(begin), most)
					}
				}
			}
		}
	}
	t.Logf("most of what is allowed, by edges: %v; %v", peak, where)
	for what, lines := range worst {
		t.Errorf("%s: %s", what, lines)
	}
}
