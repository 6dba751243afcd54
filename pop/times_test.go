package pop_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/pop"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/sim"
	"sluice/pop/wire"
)

// TestSlowSourceIsBlockedInTime: a source that comes a little faster than its limit, through one edge after the other, is blocked
// by the request that is one too many, and on every edge before its next. For that, edges must know each other's hits in the
// sub-window that the window's beginning cuts as well as their own.
func TestSlowSourceIsBlockedInTime(t *testing.T) {
	const edges, limit = 8, 100
	percents := []int{2, 5, 9, 14}
	if raceEnabled {
		percents = []int{5}
	}
	for _, percent := range percents {
		r := newRule(t, limit, time.Minute, time.Minute, algorithm.Nearest)
		w := newWorld(t, sim.Config{Edges: edges, Nodes: 4, RTT: time.Millisecond, Counters: 1000}, r)
		s := address(uint32(percent))
		rng := rand.New(rand.NewPCG(uint64(percent), 1))
		gap := time.Minute * 100 / time.Duration(limit*(100+percent))
		var admitted []time.Time
		blocks, e := 0, 0
		for i := range 1000 {
			if i%20 == 0 {
				e = rng.IntN(edges)
			}
			for len(admitted) > 0 && w.Now().Sub(admitted[0]) >= r.Counter.Window {
				admitted = admitted[1:]
			}
			blocked := mitigated(w, w.Edges[e], r, s)
			switch ok := ask(w.Edges[e], r, s); {
			case ok:
				admitted = append(admitted, w.Now())
				if len(admitted) > limit {
					t.Errorf("%d %% above the limit: %d in a window were admitted", percent, len(admitted))
				}
			case !blocked:
				if blocks++; len(admitted) < limit {
					t.Errorf("%d %% above the limit: blocked after %d", percent, len(admitted))
				}
				w.Run(w.Now().Add(100 * time.Millisecond))
				for j := range edges {
					if !mitigated(w, w.Edges[j], r, s) {
						t.Errorf("%d %% above the limit: edge %d does not know of the block", percent, j)
					}
				}
			}
			w.Run(began.Add(time.Duration(i+1) * gap))
		}
		if blocks < 4 {
			t.Errorf("%d %% above the limit: %d blocks, and the test shows nothing", percent, blocks)
		}
	}
}

// TestTimesAreTakenInOnce: who reaches the tier can write an edge's lines a second time, and nobody counts by them twice.
func TestTimesAreTakenInOnce(t *testing.T) {
	shared := secret.Of([]byte("test"))
	f := func(again bool) (estimates [3]float64) {
		r := newRule(t, 30, time.Minute, time.Minute, algorithm.Nearest)
		w := newWorld(t, sim.Config{Edges: len(estimates), Nodes: 1, RTT: time.Millisecond, Counters: 1000}, r)
		s := address(1)
		send := func(edge, n int, from, gap time.Duration) {
			for i := range n {
				w.Run(began.Add(from + time.Duration(i)*gap))
				ask(w.Edges[edge], r, s)
			}
		}
		send(0, 20, 0, 500*time.Millisecond)
		send(1, 10, 40*time.Second, 500*time.Millisecond)
		send(2, 3, 60*time.Second+100*time.Millisecond, 200*time.Millisecond)
		w.Run(began.Add(61 * time.Second))
		node := w.Nodes[0]
		get := func(key string) []byte {
			return node.Do(w.Now(), wire.Command{Op: wire.Get, Key: key}).Values[0]
		}
		head, err := strconv.ParseUint(strings.TrimSpace(string(get(shared.LogHeadKey()))), 10, 64)
		must(t, err)
		var received []byte
		for number := head - 20; number <= head; number++ {
			item := get(shared.LogItemKey(number))
			for sealed, rest := record.Cut(item); sealed != nil; sealed, rest = record.Cut(rest) {
				if r, ok := record.Open(shared, sealed); ok && len(r.Times) > 0 {
					received = record.Append(received, sealed)
				}
			}
		}
		if len(received) == 0 {
			t.Fatal("no edge sent when hits came, and the test shows nothing")
		}
		if again {
			node.Do(w.Now(), wire.Command{Op: wire.Incr, Key: shared.LogHeadKey(), Delta: 1})
			node.Do(w.Now(), wire.Command{Op: wire.Set, Key: shared.LogItemKey(head + 1), Value: received, Expire: 100})
		}
		for range 50 {
			for i := range w.Edges {
				w.Tick(i)
			}
			w.Run(w.Now().Add(pop.Tick))
		}
		for i, e := range w.Edges {
			v, _ := e.Counters.Peek(r.Counter, s, w.Now())
			estimates[i] = v.Estimate
		}
		return estimates
	}
	if once, twice := f(false), f(true); once != twice {
		t.Errorf("estimates are %.2f, and %.2f after lines were written again", once, twice)
	}
}
