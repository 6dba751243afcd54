package pop_test

import (
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

// TestReadsShareAGet: what the PoP knows of many sources that an edge sees for the first time is read with few commands, each a
// line that memcached takes as it takes any, and each source learns what is its own.
func TestReadsShareAGet(t *testing.T) {
	const sources = 100
	r := newRule(t, 1000, time.Minute, time.Minute, algorithm.Nearest)
	shared := secret.Of([]byte("test"))
	node, gets := poptest.New(0), 0
	edge := func(id uint64) (table *counter.Table, hit func(now time.Time, hits func(uint32) uint32)) {
		table = counter.New(counter.Options{Counters: 10 * sources, Tier: true, Phase: shared.Phase})
		m, err := pop.NewMachine(pop.Config{Nodes: []string{"node0:11211"}, Secret: shared, ID: id, Counters: table, Blocks: mitigation.New(100, nil)}, began)
		must(t, err)
		m.SetRules([]mitigation.Rule{r})
		return table, func(now time.Time, hits func(uint32) uint32) {
			for s := range uint32(sources) {
				ask := [1]counter.Reservation{{Rule: r.Counter, Source: address(s), Hits: hits(s)}}
				table.Reserve(ask[:], now)
			}
			gets = 0
			for commands := m.Step(now, pop.Event{}); len(commands) > 0; {
				var results []wire.Result
				for _, c := range commands {
					if c.Report && c.Op == wire.Get {
						gets++
						if len("get ")+len(c.Key)+len("\r\n") > 2048 {
							t.Errorf("a Get of %d bytes", len(c.Key))
						}
					}
					results = append(results, node.Do(now, c))
				}
				commands = m.Step(now, pop.Event{Results: results})
			}
		}
	}
	_, first := edge(1)
	table, second := edge(2)
	hits := func(s uint32) uint32 { return 1 + s%7 }
	first(began, hits)
	later := began.Add(35 * time.Second) // in another group, in the same window
	second(later, func(uint32) uint32 { return 1 })
	if gets > sources/10 || gets == 0 {
		t.Errorf("%d commands to look for %d sources", gets, sources)
	}
	for s := range uint32(sources) {
		if v, _ := table.Peek(r.Counter, address(s), later); v.Estimate != float64(hits(s)+1) {
			t.Errorf("source %d: %v hits, want %d of another edge and 1", s, v.Estimate, hits(s))
		}
	}
}

// TestReadBetweenAddAndIncr: an edge that adds in vain, and reads the counter before its incr is answered, counts its own hit beside
// what it has read.
func TestReadBetweenAddAndIncr(t *testing.T) {
	r := newRule(t, 10_000, time.Hour, time.Minute, algorithm.Nearest)
	for _, hits := range []int{1, 7, 100} {
		w := newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: 10 * time.Millisecond}, r)
		for range 300 {
			ask(w.Edges[0], r, address(1))
		}
		pass(w, time.Second)
		w.Edges[0].Flush()
		pass(w, time.Second)
		e := w.Edges[1]
		for range hits {
			ask(e, r, address(1))
		}
		e.Machine.Exchanges.Fetch(counter.Counter{Rule: r.Counter, Source: address(1)})
		for range 1000 {
			passBy(w, 100*time.Microsecond, 100*time.Microsecond)
			v, _ := e.Counters.Peek(r.Counter, address(1), w.Now())
			if got := int(v.Estimate + 0.5); got != hits && got != 300+hits {
				t.Fatalf("%d own hits, and 300 of the other edge: estimate %v", hits, v.Estimate)
			}
		}
		if v, _ := e.Counters.Peek(r.Counter, address(1), w.Now()); int(v.Estimate+0.5) != 300+hits {
			t.Errorf("%d own hits, and 300 of the other edge: estimate %v at the end", hits, v.Estimate)
		}
	}
}
