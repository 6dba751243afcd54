package sim

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/pop/operatorlog"
	"sluice/pop/poptest"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// TestTogetherIsTheSameAsApart holds a World against its slow twin, in which every answer has a Step of its own: in random histories with
// idle minutes and all that can go wrong in them, edges decide the same, and nodes are sent the same at every instant.
func TestTogetherIsTheSameAsApart(t *testing.T) {
	t.Parallel()
	saved := 0
	seeds := uint64(12)
	if raceEnabled { // one goroutine's arithmetic
		seeds = 2
	}
	for seed := range seeds {
		fast, steps := live(t, seed, false)
		slow, apart := live(t, seed, true)
		for i := range slow {
			if i >= len(fast) || fast[i] != slow[i] {
				t.Fatalf("seed %d: after %d alike\ntogether %q\napart    %q", seed, i, fast[i:min(i+1, len(fast))], slow[i])
			}
		}
		if len(fast) != len(slow) {
			t.Fatalf("seed %d: %d lines together, %d apart", seed, len(fast), len(slow))
		}
		saved += apart - steps
	}
	if saved <= 0 {
		t.Error("no Step was saved")
	}
}

// live is a history of a World that follows from a seed: what can be seen of it from outside, and how many Steps it took.
func live(t *testing.T, seed uint64, apart bool) (seen []string, steps int) {
	rng := rand.New(rand.NewPCG(seed, 11))
	edges, nodes := 1+rng.IntN(6), 1+rng.IntN(3)
	rule := newRule(t, "twin", []uint32{2, 5, 20, 60}[rng.IntN(4)])
	if rng.IntN(4) == 0 {
		rule.Timeout = 0
	}
	var at time.Time
	var sent uint64 // at that instant: a sum, because the order in which sources have their turn is random in every World
	instant := func(now time.Time) {
		if !now.Equal(at) {
			if sent != 0 {
				seen = append(seen, fmt.Sprintf("%v sent %x", at.Sub(began), sent))
			}
			at, sent = now, 0
		}
	}
	w, err := New(Config{
		Edges: edges, Nodes: nodes, RTT: []time.Duration{time.Millisecond, 4 * time.Millisecond, 30 * time.Millisecond}[rng.IntN(3)],
		Counters: 1000, Secret: secret.Of([]byte("twin")), Learn: rng.IntN(3) == 0,
		Skew: func(edge int) time.Duration { return time.Duration(edge) * 10 * time.Millisecond },
		Carry: func(c wire.Command, node *poptest.Node, now time.Time) wire.Result {
			instant(now)
			sent += maphash.String(twinSeed, fmt.Sprintf("%d %v %s %q %d", c.Node, c.Op, c.Key, c.Value, c.Delta))
			return node.Do(now, c)
		},
		apart: apart,
	}, []limiter.Rule{rule}, began)
	if err != nil {
		t.Fatal(err)
	}
	sources := []counter.Source{a, b, ip("198.51.100.7")}
	note := func(format string, args ...any) {
		instant(time.Time{})
		seen = append(seen, fmt.Sprintf("%v ", w.now.Sub(began))+fmt.Sprintf(format, args...))
	}
	for range 60 {
		switch rng.IntN(8) {
		case 0:
			w.after(time.Duration(rng.Int64N(int64(3 * time.Minute))))
		case 1, 2:
			w.after(time.Duration(rng.Int64N(int64(10 * time.Second))))
		case 3, 4, 5:
			w.after(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
		}
		if rng.IntN(6) == 0 {
			note("%s", fault(t, w, rng, sources))
			continue
		}
		source := sources[rng.IntN(len(sources))]
		for range 1 + rng.IntN(8) {
			if e := w.Edges[rng.IntN(edges)]; !e.gone && w.now.After(e.paused) {
				d := e.Request(&rule, source)
				note("edge %d %v %v", e.index, d.Verdict, d.Results[0].Until)
			}
		}
	}
	w.after(10 * time.Second)
	for _, e := range w.Edges {
		s := e.Machine.Stats()
		note("edge %d: %+v, %d edges, %d records, %d lost, up %v", e.index, e.Counters.Stats(), s.Edges, s.LogRecords, s.LogLost, e.Machine.Nodes.Health())
	}
	note("%+v", w.Cost)
	return seen, w.steps
}

var twinSeed = maphash.MakeSeed()

// fault lets something go wrong or come right.
func fault(t *testing.T, w *World, rng *rand.Rand, sources []counter.Source) string {
	edge, node := rng.IntN(len(w.Edges)), rng.IntN(len(w.Nodes))
	did := fmt.Sprintf
	switch rng.IntN(10) {
	case 0:
		w.Kill(node)
		return did("node %d killed", node)
	case 1, 2:
		if err := w.Restart(node); err != nil {
			t.Fatal(err)
		}
		return did("node %d restarted", node)
	case 3:
		w.Hang(node)
		return did("node %d hangs", node)
	case 4:
		w.Resume(node)
		return did("node %d goes on", node)
	case 5:
		w.Stop(edge, rng.IntN(2) == 0)
		return did("edge %d stopped", edge)
	case 6:
		if err := w.Start(edge); err != nil {
			t.Fatal(err)
		}
		return did("edge %d started", edge)
	case 7:
		by := []time.Duration{5 * time.Second, -5 * time.Second, time.Hour}[rng.IntN(3)]
		if !w.Edges[edge].gone {
			w.StepClock(edge, by)
		}
		return did("clock %d by %v", edge, by)
	case 8:
		d := time.Duration(rng.Int64N(int64(3 * time.Second)))
		w.Pause(edge, w.now.Add(d))
		return did("edge %d paused for %v", edge, d)
	}
	if w.Edges[edge].gone || rng.IntN(3) > 0 { // most Worlds have no word for a while
		if rng.IntN(2) == 0 {
			w.Cut(edge)
		} else {
			w.Mend(edge)
		}
		return did("edge %d cut %v", edge, w.Edges[edge].cut)
	}
	order := operatorlog.Order{Rule: "twin", Source: sources[rng.IntN(len(sources))], Kind: operatorlog.Lift, Start: w.now}
	if rng.IntN(2) == 0 {
		order.Kind, order.End = operatorlog.Block, w.now.Add(time.Minute)
	}
	_, err := w.Edges[edge].Order(order)
	return did("word %d at edge %d: %v", order.Kind, edge, err)
}
