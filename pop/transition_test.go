package pop_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/poptest"
	"sluice/pop/secret"
	"sluice/pop/sim"
	"sluice/pop/wire"
)

// TestNodeListChanges: while one edge after the other gets a new list of nodes, and once all have it, no source is admitted more than
// its limit (and what edges may not know of each other), and no steady source under it is refused.
func TestNodeListChanges(t *testing.T) {
	t.Parallel()
	const limit = 30
	sources, usual := uint32(min(20**manyHistories, 60)), uint32(0)
	if raceEnabled {
		sources = 12
	}
	for _, change := range []struct {
		name  string
		nodes []string
	}{
		{"no change", []string{"node0:11211", "node1:11211"}},
		{"one more", []string{"node0:11211", "node1:11211", "node2:11211"}},
		{"one replaced", []string{"node0:11211", "NODE2.:11211"}},
		{"one less", []string{"node1:11211"}},
	} {
		if raceEnabled && change.name != "no change" && change.name != "one replaced" {
			continue
		}
		r := newRule(t, limit, time.Minute, time.Minute, algorithm.Lower)
		w := newWorld(t, sim.Config{Edges: 3, Nodes: 3, RTT: time.Millisecond, List: []string{"node0:11211", "node1:11211"}}, r)
		rng := rand.New(rand.NewPCG(1, 2))
		admitted := make(map[uint32][]time.Time)
		good := 0
		gap := time.Minute / (2 * limit) / time.Duration(sources) // every source at twice its limit
		w.Run(began.Add(time.Second))
		reloaded := 0
		for i := uint32(0); w.Now().Sub(began) < 10*time.Minute; i++ {
			if reloaded < 3 && w.Now().Sub(began) >= time.Minute+time.Duration(reloaded)*90*time.Second { // a minute and a half apart
				must(t, w.Edges[reloaded].Machine.Nodes.Set(change.nodes))
				reloaded++
			}
			s := rng.Uint32N(sources)
			if ask(w.Edges[rng.IntN(3)], r, address(s)) {
				admitted[s] = append(admitted[s], w.Now())
			}
			if i%(25*sources) == 0 { // a good source, at four fifths of its limit
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
		if worst > usual+limit/5 { // of many sources the worst; counted apart, it would be twice the limit
			t.Errorf("%s: %d admitted in a window, the limit is %d, and %d without a change", change.name, worst, limit, usual)
		}
		if len(w.Edges[0].Machine.Nodes.Members()) != len(change.nodes) {
			t.Errorf("%s: %v after the transition", change.name, w.Edges[0].Machine.Nodes.Members())
		}
		t.Logf("%s: at most %d of %d in a window", change.name, worst, limit)
	}
}

// TestNodeListChangesThroughFaults: sources under their limit are not refused while the list changes and the old node takes no commands
// for a moment, is killed, or hangs: what it did not take is reported again, and must not count at the new place each time.
func TestNodeListChangesThroughFaults(t *testing.T) {
	const limit, perWindow = 60, 54
	sources := 40
	if raceEnabled {
		sources = 8
	}
	for name, fault := range map[string]func(w *sim.World, refuse *bool){
		"refuses for a moment": func(_ *sim.World, refuse *bool) { *refuse = true },
		"killed":               func(w *sim.World, _ *bool) { w.Kill(0) },
		"hung":                 func(w *sim.World, _ *bool) { w.Hang(0) },
	} {
		var old *poptest.Node
		refuse := false
		r := newRule(t, limit, 10*time.Second, 10*time.Second, algorithm.Lower)
		w := newWorld(t, sim.Config{
			Edges: 2, Nodes: 2, RTT: time.Millisecond, Counters: 10_000, List: []string{"node0:11211"},
			Carry: func(c wire.Command, n *poptest.Node, now time.Time) wire.Result {
				if n == old && refuse {
					return wire.Result{Command: c, Status: wire.Unsent, Err: poptest.ErrDown}
				}
				return n.Do(now, c)
			},
		}, r)
		old = w.Nodes[0]
		refused := 0
		for i := 0; w.Now().Sub(began) < time.Minute; i++ {
			at := w.Now().Sub(began)
			before := w.Now().Add(-10 * time.Second / perWindow / time.Duration(sources)).Sub(began)
			now := func(moment time.Duration) bool { return at >= moment && before < moment }
			switch {
			case now(10 * time.Second):
				for _, e := range w.Edges {
					must(t, e.Machine.Nodes.Set([]string{"node1:11211"}))
				}
			case now(20 * time.Second):
				fault(w, &refuse)
			case now(20*time.Second + 300*time.Millisecond):
				refuse = false
			}
			if !ask(w.Edges[i/sources%2], r, address(uint32(i%sources))) {
				refused++
			}
			w.Run(w.Now().Add(10 * time.Second / perWindow / time.Duration(sources)))
		}
		if refused > 0 {
			t.Errorf("%s: %d requests refused of sources at nine tenths of their limit", name, refused)
		}
	}
}

// TestRecordsThatNodesDoNotTake: what a node has no room for does not gather without bound.
func TestRecordsThatNodesDoNotTake(t *testing.T) {
	r := newRule(t, 1, time.Minute, time.Minute, algorithm.Lower)
	w := newWorld(t, sim.Config{
		Edges: 2, Nodes: 1, RTT: time.Millisecond, Counters: 100_000,
		Carry: func(c wire.Command, n *poptest.Node, now time.Time) wire.Result {
			if c.Report && c.Op == wire.Set {
				return wire.Result{Command: c, Status: wire.Unsent, Err: wire.ErrFull}
			}
			return n.Do(now, c)
		},
	}, r)
	const sources = 30_000
	for s := range uint32(sources) {
		for range 3 {
			ask(w.Edges[0], r, address(s))
		}
		if s%100 == 0 {
			w.Run(w.Now().Add(time.Millisecond))
		}
	}
	w.Run(w.Now().Add(5 * time.Second))
	if stats := w.Edges[0].Machine.Stats(); stats.LogLost == 0 {
		t.Errorf("%d records wait", stats.LogRecords)
	}
}

// TestNodesAreNamedOnce: however a node is spelled, it is one, and sources are placed alike by all edges.
func TestNodesAreNamedOnce(t *testing.T) {
	machine := func(nodes ...string) (*pop.Machine, error) {
		shared := secret.Of([]byte("test"))
		table := counter.New(counter.Options{Counters: 1000, Tier: true, Phase: shared.Phase})
		return pop.NewMachine(pop.Config{Nodes: nodes, Secret: shared, ID: 1, Counters: table, Blocks: mitigation.New(100, nil)}, began)
	}
	for _, c := range []struct {
		nodes []string
		says  string
	}{
		{nil, "no memcached node"},
		{[]string{"LOCALHOST:11211", "localhost:11211"}, `"LOCALHOST:11211" and "localhost:11211" are the same node: name it once`},
		{[]string{"a:1", "[::ffff:192.0.2.1]:1", "192.0.2.1:01"}, `"[::ffff:192.0.2.1]:1" and "192.0.2.1:01" are the same node`},
		{[]string{"a:1", ""}, "a node without a name"},
	} {
		if _, err := machine(c.nodes...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.nodes, err, c.says)
		}
	}
	one, err1 := machine("cache-1.example:11211", "cache-2.example:11211", "[2001:db8::1]:11211")
	other, err2 := machine("CACHE-1.example.:011211", "Cache-2.Example:11211", "[2001:db8:0::1]:11211")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	for s := range uint32(1000) {
		if a, b := pop.Place(one, address(s)), pop.Place(other, address(s)); a != b {
			t.Fatalf("source %d is on node %d of one edge and on %d of the other", s, a, b)
		}
	}
}
