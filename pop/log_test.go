package pop_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/sim"
)

// blocks lets so many sources a second be blocked, each by one edge in turn, and returns the longest it took until another edge knew, and how
// many times one never did.
func blocks(t *testing.T, w *sim.World, perSecond int, lasting time.Duration) (longest time.Duration, missing int) {
	t.Helper()
	r := newRule(t, 2, time.Minute, time.Minute, algorithm.Nearest)
	n := perSecond * int(lasting/time.Second)
	blocked, known := make(map[counter.Source]time.Time, n), 0
	for _, e := range w.Edges {
		e.Blocks.Observe = func(k mitigation.Key, b mitigation.Bit) {
			if at, ok := blocked[k.Source]; ok {
				known++
				longest = max(longest, w.Now().Sub(at))
			} else {
				blocked[k.Source] = w.Now()
			}
		}
	}
	start := w.Now()
	for i := range n {
		w.Run(start.Add(time.Duration(i) * time.Second / time.Duration(perSecond)))
		for range 3 {
			ask(w.Edges[i%len(w.Edges)], r, address(uint32(i)))
		}
	}
	w.Run(w.Now().Add(3 * time.Second))
	if len(blocked) != n {
		t.Errorf("%d sources were blocked, want %d", len(blocked), n)
	}
	return longest, n*(len(w.Edges)-1) - known
}

// TestLogIsReadOnce: what edges read of the log is what was written, once each.
func TestLogIsReadOnce(t *testing.T) {
	t.Parallel()
	const edges, lasting = 4, 10 * time.Second
	w := newWorld(t, sim.Config{Edges: edges, Nodes: 1, RTT: time.Millisecond}, newRule(t, 2, time.Minute, time.Minute, algorithm.Nearest))
	w.Run(w.Now().Add(time.Second))
	before := w.Cost
	_, missing := blocks(t, w, 1000, lasting)
	cost := w.Cost.Minus(before)
	if missing > 0 {
		t.Errorf("%d times an edge did not learn of a block", missing)
	}
	if read := float64(cost.LogRead) / lasting.Seconds(); read > 2e6 {
		t.Errorf("edges read %.0f bytes a second of the log, want at most 2 MB", read)
	}
	if most := edges*2*cost.LogWritten + edges*8192*uint64(lasting.Seconds()); cost.LogRead > most {
		t.Errorf("edges read %d bytes of the log, of which %d were written: want at most %d", cost.LogRead, cost.LogWritten, most)
	}
	t.Logf("1,000 blocks a second: %d records, %.0f bytes a second written, %.0f read by all", cost.LogRecords,
		float64(cost.LogWritten)/lasting.Seconds(), float64(cost.LogRead)/lasting.Seconds())
}

// TestManyBlocksReachEveryEdge: five thousand blocks a second are known everywhere in time.
func TestManyBlocksReachEveryEdge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sim.Config{Edges: 8, Nodes: 1, RTT: time.Millisecond}, newRule(t, 2, time.Minute, time.Minute, algorithm.Nearest))
	w.Run(w.Now().Add(time.Second))
	longest, missing := blocks(t, w, 5000, 4*time.Second)
	if missing > 0 || longest > 2*time.Second {
		t.Errorf("%d times an edge did not learn of a block, the last did after %v", missing, longest)
	}
	t.Logf("5,000 blocks a second: known everywhere after %v", longest)
}

// wakeAll has every edge serve a request, of a source each: who serves nobody reads the logs twice a second.
func wakeAll(w *sim.World, r mitigation.Rule) {
	for i, e := range w.Edges {
		ask(e, r, address(1<<20+uint32(i)))
	}
	w.Run(w.Now().Add(10 * time.Millisecond)) // they have looked
}

// TestBlocksPassAnnouncements: however many counters come near their limits at once, the block of a source does not wait until all of them have been
// announced.
func TestBlocksPassAnnouncements(t *testing.T) {
	t.Parallel()
	r := newRule(t, 20, time.Minute, time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 64, Nodes: 1, RTT: time.Millisecond}, r)
	w.Run(w.Now().Add(time.Second))
	for _, hits := range []int{1, 11} {
		for i := range uint32(20_000) {
			for range hits {
				ask(w.Edges[0], r, address(i+1))
			}
		}
		if hits == 1 {
			w.Run(w.Now().Add(300 * time.Millisecond)) // all are known to the tier
		}
	}
	wakeAll(w, r)
	w.Run(w.Now().Add(20 * time.Millisecond)) // most are reported
	attacker, last := address(0), w.Edges[len(w.Edges)-1]
	for range 21 {
		ask(w.Edges[0], r, attacker)
	}
	blocked := w.Now()
	for !mitigated(w, last, r, attacker) && w.Now().Sub(blocked) < time.Second {
		w.Run(w.Now().Add(time.Millisecond))
	}
	if took := w.Now().Sub(blocked); took > 50*time.Millisecond {
		t.Errorf("another edge knew of a block after %v", took)
	}
}

// TestCrossingEdgeAnnounces: an edge that brings a source over its limit announces it at once, or, where it has learned
// from them in the same moment that the limit is reached, after the time that an edge leaves to others. Either way all
// know soon.
func TestCrossingEdgeAnnounces(t *testing.T) {
	t.Parallel()
	r := newRule(t, 20, time.Minute, time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 8, Nodes: 1, RTT: time.Millisecond}, r)
	w.Run(w.Now().Add(time.Second))
	wakeAll(w, r)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		source := address(uint32(i))
		for range r.Counter.Limit {
			ask(w.Edges[i%8], r, source)
			w.Run(w.Now().Add(time.Millisecond))
		}
		w.Run(w.Now().Add(time.Duration(rng.IntN(int(6 * time.Millisecond))))) // by and by all learn that the limit is reached
		crosses, crossed := w.Edges[(i+3)%8], w.Now()
		once := ask(crosses, r, source)
		if twice := ask(crosses, r, source); !once || !twice {
			continue
		}
		for _, e := range w.Edges {
			for !mitigated(w, e, r, source) && w.Now().Sub(crossed) < time.Second {
				w.Run(w.Now().Add(time.Millisecond))
			}
		}
		if took := w.Now().Sub(crossed); took > 40*time.Millisecond {
			t.Errorf("source %d: all edges know after %v", i, took)
		}
	}
}

// TestRecordsOfOneSource: a source that touches all edges, and comes to its limit on one, again and again, has a record for each edge in
// a window, and a few.
func TestRecordsOfOneSource(t *testing.T) {
	t.Parallel()
	for _, edges := range []int{8, 16, 32, 64} {
		r := newRule(t, 100, 10*time.Second, 0, algorithm.Nearest)
		w := newWorld(t, sim.Config{Edges: edges, Nodes: 1, RTT: time.Millisecond, Counters: 1000}, r)
		w.Run(w.Now().Add(time.Second))
		before := w.Cost
		const windows = 3
		for i := range windows * 110 {
			e := 0
			if i%110 < edges {
				e = i % 110
			}
			ask(w.Edges[e], r, address(1))
			w.Run(w.Now().Add(10 * time.Second / 110))
		}
		if n := w.Cost.Minus(before).LogRecords; n > windows*uint64(edges+8) {
			t.Errorf("%d edges: %d records in %d windows, want at most %d for each", edges, n, windows, edges+8)
		} else {
			t.Logf("%d edges: %d records in %d windows", edges, n, windows)
		}
	}
}

// TestBlocksDoNotWaitForTheBudget: where each second request leads to a block, nothing is left for announcements, three commands a request suffice,
// and every edge knows of each block at once, at any number of edges.
func TestBlocksDoNotWaitForTheBudget(t *testing.T) {
	t.Parallel()
	const requests = 400
	for _, edges := range []int{2, 16, 64} {
		r := newRule(t, 1, time.Minute, time.Minute, algorithm.Nearest)
		w := newWorld(t, sim.Config{Edges: edges, Nodes: 2, RTT: time.Millisecond}, r)
		w.Run(w.Now().Add(time.Second))
		wakeAll(w, r)
		before := w.Cost
		longest := time.Duration(0)
		for i := range requests / 2 {
			source, began := address(uint32(i)), w.Now()
			ask(w.Edges[i%edges], r, source)
			ask(w.Edges[(i+1)%edges], r, source)
			for _, e := range w.Edges {
				for !mitigated(w, e, r, source) && w.Now().Sub(began) < time.Second {
					w.Run(w.Now().Add(time.Millisecond))
				}
			}
			longest = max(longest, w.Now().Sub(began))
			w.Run(began.Add(20 * time.Millisecond))
		}
		if longest > 50*time.Millisecond {
			t.Errorf("%d edges: a block is on all of them after %v", edges, longest)
		}
		cost := w.Cost.Minus(before)
		if cost.Commands > 3*requests {
			t.Errorf("%d edges: %d commands for %d requests, want at most three each", edges, cost.Commands, requests)
		}
		w.Run(w.Now().Add(10 * time.Second))
		if more := w.Cost.Minus(before).Commands - cost.Commands; more > 2*uint64(edges) {
			t.Errorf("%d edges: %d commands long after the last request", edges, more)
		}
		t.Logf("%d edges: %d commands and %d records for %d requests, a block everywhere after %v", edges, cost.Commands, cost.LogRecords, requests, longest)
	}
}
