package pop_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/secret"
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

// TestCandidatesKeepTheBudget: a candidate that would block a source again and again, at once when its last block has ended, makes its
// requests cost no more than any others may: three commands each.
func TestCandidatesKeepTheBudget(t *testing.T) {
	for _, edges := range []int{1, 2, 8} {
		for _, window := range []time.Duration{time.Second, 10 * time.Second} {
			for _, part := range []float64{0.3, 0.9} { // of a window, between two requests of a source
				rule := tryingOne(t, newRule(t, 100, window, time.Second, algorithm.Nearest), time.Millisecond)
				w, err := sim.New(sim.Config{Edges: edges, Nodes: 1, RTT: time.Millisecond, Secret: secret.Of([]byte("test"))}, []limiter.Rule{rule}, began)
				must(t, err)
				pass(w, 200*time.Millisecond)
				const requests = 2000
				sources := int(100 * window.Seconds() * part)
				before, would := w.Commands, 0
				for n := range requests {
					w.Run(w.Now().Add(10 * time.Millisecond))
					if w.Edges[n/sources%edges].Request(&rule, address(uint32(n%sources))).WouldRefuse() {
						would++
					}
				}
				pass(w, 200*time.Millisecond)
				got := float64(w.Commands-before) / requests
				t.Logf("%d edges, window %v, a request every %v: %.2f commands for each, %d would be refused", edges, window, time.Duration(part*float64(window)), got, would)
				if got > 3 || edges == 1 && would == 0 {
					t.Errorf("%d edges, window %v, a request every %v: %.2f commands for each", edges, window, time.Duration(part*float64(window)), got)
				}
			}
		}
	}
}

// tryingOne is a rule with a candidate of one request, which blocks for a while.
func tryingOne(t *testing.T, r mitigation.Rule, timeout time.Duration) limiter.Rule {
	t.Helper()
	bits, err := algorithm.NewSliding("test candidate", 1, r.Counter.Window, 12, algorithm.Nearest)
	must(t, err)
	return limiter.Rule{Rule: r, Candidate: &limiter.Candidate{Counter: r.Counter.With(1, algorithm.Nearest), Bits: mitigation.Rule{Name: r.Counter.Name, Counter: bits, Timeout: timeout, Tried: true}}}
}
