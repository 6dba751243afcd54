package pop_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"sluice/pop/sim"
)

// What a source costs the tier, in commands for each of its requests, where each meets another edge: one and a read now and then, next to nothing
// when it is far above.
func TestCommandsPerRequest(t *testing.T) {
	f := func(name string, perSecond, most float64) {
		t.Helper()
		r := newRule(t, 60, time.Minute, time.Minute, 0)
		w := newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond}, r)
		rng := rand.New(rand.NewPCG(1, 2))
		const sources = 4
		requests := 0
		gap := time.Duration(float64(time.Second) / perSecond / sources)
		for end := w.Now().Add(20 * time.Minute); w.Now().Before(end); requests++ {
			ask(w.Edges[rng.IntN(3)], r, address(uint32(requests%sources)))
			w.Run(w.Now().Add(gap))
		}
		if got := float64(w.Commands) / float64(requests); got > most {
			t.Errorf("%s: %.3f commands for a request, want at most %.2f", name, got, most)
		} else {
			t.Logf("%s: %.3f commands for a request", name, got)
		}
	}
	f("a tenth of its limit", 0.1, 1.9)
	f("half its limit", 0.5, 1.7)
	f("nine tenths of its limit", 0.9, 1.4)
	f("ten times its limit", 10, 0.12)
}

// However hard a source hits, it costs at most one increment for each edge and round trip until it is blocked, then none.
func TestHardHitterIsCheap(t *testing.T) {
	const (
		edges   = 4
		rtt     = time.Millisecond
		perEdge = 25_000 // requests a second
	)
	for _, limit := range []uint32{100, 10_000, 200_000} {
		if raceEnabled && limit > 10_000 {
			continue
		}
		r := newRule(t, limit, time.Minute, time.Minute, 0)
		w := newWorld(t, sim.Config{Edges: edges, Nodes: 2, RTT: rtt}, r)
		source := address(1)
		start, blocked := w.Now(), time.Time{}
		atBlock := uint64(0)
		for w.Now().Sub(start) < 15*time.Second && (blocked.IsZero() || w.Now().Sub(blocked) < 2*time.Second) {
			all := true
			for _, e := range w.Edges {
				ask(e, r, source)
				all = all && mitigated(w, e, r, source)
			}
			if all && blocked.IsZero() {
				blocked = w.Now()
				w.Run(w.Now().Add(100 * time.Millisecond)) // what is under way arrives
				atBlock = w.Commands
			}
			w.Run(w.Now().Add(time.Second / perEdge))
		}
		if blocked.IsZero() {
			t.Fatalf("limit %d: not blocked on all edges in %v", limit, w.Now().Sub(start))
		}
		trips := uint64(blocked.Sub(start)/rtt) + 1
		if most := edges*trips + 40; atBlock > most { // 40: a look back at first sight and in each new group, the bits and their log
			t.Errorf("limit %d: %d commands in %d round trips of %d edges, want at most %d", limit, atBlock, trips, edges, most)
		}
		if w.Commands != atBlock {
			t.Errorf("limit %d: %d commands after it was blocked, want none", limit, w.Commands-atBlock)
		}
		t.Logf("limit %d: blocked everywhere after %v, %d commands by then", limit, blocked.Sub(start), atBlock)
	}
}
