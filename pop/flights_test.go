package pop_test

import (
	"strconv"
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

// TestBacklogIsBounded: however many sources have something to report, few of them are under way to a node. What waits gathers
// hits, and all of it arrives.
func TestBacklogIsBounded(t *testing.T) {
	const sources, rounds = 30_000, 5
	r := newRule(t, 1000, time.Minute, time.Minute, algorithm.Nearest)
	shared := secret.Of([]byte("test"))
	table := counter.New(counter.Options{Counters: 8 * sources, Tier: true, Phase: shared.Phase})
	m, err := pop.NewMachine(pop.Config{Nodes: []string{"node0:11211"}, Secret: shared, ID: 1, Counters: table, Blocks: mitigation.New(100, nil)}, began)
	must(t, err)
	m.SetRules([]mitigation.Rule{r})
	var flying []wire.Command
	step := func(now time.Time, results []wire.Result) {
		flying = append(flying, m.Step(now, pop.Event{Results: results})...)
	}
	now := began
	for range rounds {
		for s := range uint32(sources) {
			ask := [1]counter.Reservation{{Rule: r.Counter, Source: address(s), Hits: 1}}
			table.Reserve(ask[:], now)
		}
		now = now.Add(10 * time.Millisecond)
		step(now, nil)
	}
	if len(flying) > pop.MaxFlying+10 || len(flying) < pop.MaxFlying/2 {
		t.Errorf("%d commands under way without an answer, want about %d", len(flying), pop.MaxFlying)
	}
	if got := table.Stats().Unreported; got != sources*rounds {
		t.Errorf("%d hits wait, want all %d", got, sources*rounds)
	}
	node, commands := poptest.New(0), 0
	table.Reports().Sweep(now, true) // nothing waits for the end of its group
	for len(flying) > 0 && commands < 10*sources {
		now = now.Add(time.Millisecond)
		var results []wire.Result
		for _, c := range flying {
			results = append(results, node.Do(now, c))
		}
		commands += len(flying)
		flying = flying[:0]
		step(now, results)
	}
	if s := table.Stats(); s.Unreported != 0 || s.LostBacklog+s.LostUnknown+s.LostExpired > 0 {
		t.Errorf("left over: %+v", s)
	}
	if commands > 3*sources { // an add, a look, and hits that came while the first were under way
		t.Errorf("%d commands for %d sources", commands, sources)
	}
}

// TestFullNode: a node that has no memory does not get hits again and again that it cannot hold, and learns of them
// when it can.
func TestFullNode(t *testing.T) {
	const requests, perSecond = 100, 10
	r := newRule(t, 10_000, time.Minute, time.Minute, algorithm.Nearest)
	shared := secret.Of([]byte("test"))
	table := counter.New(counter.Options{Counters: 1000, Tier: true, Phase: shared.Phase})
	m, err := pop.NewMachine(pop.Config{Nodes: []string{"node0:11211"}, Secret: shared, ID: 1, Counters: table, Blocks: mitigation.New(100, nil)}, began)
	must(t, err)
	m.SetRules([]mitigation.Rule{r})
	node, now, full, commands := poptest.New(0), began, true, 0
	run := func(steps int) {
		var results []wire.Result
		for range steps {
			out := m.Step(now, pop.Event{Results: results})
			results = nil
			for _, c := range out {
				if c.Report {
					commands++
				}
				if full && (c.Report || c.Op != wire.Get) {
					results = append(results, wire.Result{Command: c, Status: wire.Unsent, Err: wire.ErrFull})
				} else {
					results = append(results, node.Do(now, c))
				}
			}
			now = now.Add(5 * time.Millisecond)
		}
		for len(results) > 0 { // nothing is under way when it returns, but probes
			out := m.Step(now, pop.Event{Results: results})
			results = nil
			for _, c := range out {
				results = append(results, node.Do(now, c))
			}
		}
	}
	hit := func() {
		ask := [1]counter.Reservation{{Rule: r.Counter, Source: address(1), Hits: 1}}
		table.Reserve(ask[:], now)
	}
	for range requests {
		hit()
		run(1000 / 5 / perSecond)
	}
	if commands > 2*requests {
		t.Errorf("%d commands for %d requests", commands, requests)
	}
	before := commands
	if run(2000); commands > before {
		t.Errorf("%d commands in ten seconds without a request", commands-before)
	}
	if s := table.Stats(); s.LostFull == 0 || s.LostFull+s.Unreported != requests {
		t.Errorf("%+v", s)
	}
	full = false
	hit()
	table.Reports().Sweep(now, true)
	run(100)
	_, groups := table.Reports().Snapshot(counter.Counter{Rule: r.Counter, Source: address(1)}, now)
	values := node.Do(now, wire.Command{Op: wire.Get, Key: strings.Join(pop.CounterKeys(shared, r, address(1), now), " ")}).Values
	if last := values[len(values)-1]; last == nil || strings.TrimLeft(string(last), "0") != strconv.FormatUint(groups[0], 10) {
		t.Errorf("the node has %q, want what is known: %d", last, groups[0])
	}
}

// TestFullNodeDoesNotGetBlocksAgainAndAgain: what it cannot hold of the mitigation log is tried once a second, however
// many edges have something to say, and is said when there is memory again.
func TestFullNodeDoesNotGetBlocksAgainAndAgain(t *testing.T) {
	for _, edges := range []int{1, 16} {
		r := newRule(t, 5, time.Minute, 10*time.Minute, algorithm.Nearest)
		full, log, items := true, 0, 0
		w := newWorld(t, sim.Config{
			Edges: edges, Nodes: 1, RTT: time.Millisecond, Counters: 1000,
			Carry: func(c wire.Command, n *poptest.Node, now time.Time) wire.Result {
				if c.Report && c.Key == secret.Of([]byte("test")).LogHeadKey() {
					log++
				}
				if full && (c.Op == wire.Add || c.Op == wire.Set) {
					return wire.Result{Command: c, Status: wire.Unsent, Err: wire.ErrFull}
				}
				if c.Key[0] == 'l' && c.Op == wire.Set {
					items++
				}
				return n.Do(now, c)
			},
		}, r)
		for _, e := range w.Edges {
			for range 6 {
				ask(e, r, address(1))
			}
		}
		const seconds = 4
		run := func(d time.Duration) {
			for until := w.Now().Add(d); w.Now().Before(until); {
				for i := range w.Edges {
					w.Tick(i)
				}
				w.Run(w.Now().Add(5 * time.Millisecond))
			}
		}
		run(seconds * time.Second)
		if most := 3 * edges * (seconds + 1); log > most {
			t.Errorf("%d edges: %d commands in %d seconds, want at most %d", edges, log, seconds, most)
		}
		full = false
		run(1500 * time.Millisecond)
		if items == 0 {
			t.Errorf("%d edges: nothing was written when there was memory again", edges)
		}
	}
}
