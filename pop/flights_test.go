package pop_test

import (
	"testing"
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/poptest"
)

// TestBacklogIsBounded: however many sources have something to report, few of them are under way to a node. What waits gathers
// hits, and all of it arrives.
func TestBacklogIsBounded(t *testing.T) {
	const sources, rounds = 30_000, 5
	r := newRule(t, 1000, time.Minute, time.Minute, counter.Nearest)
	secret := pop.SecretOf([]byte("test"))
	table := counter.New(counter.Options{Counters: 8 * sources, Tier: true, Phase: secret.Phase})
	m, err := pop.NewMachine(pop.Config{Nodes: []string{"node0:11211"}, Secret: secret, ID: 1, Counters: table, Bits: mitigation.New(100, nil)}, began)
	if err != nil {
		t.Fatal(err)
	}
	m.SetRules([]pop.Rule{r})
	var flying []pop.Command
	step := func(now time.Time, results []pop.Result) {
		flying = append(flying, m.Step(now, pop.Event{Results: results})...)
	}
	now := began
	for range rounds {
		for s := range uint32(sources) {
			ask := [1]counter.Ask{{Rule: r.Counter, Source: address(s), Hits: 1}}
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
	table.Sweep(now, true) // nothing waits for the end of its group
	for len(flying) > 0 && commands < 10*sources {
		now = now.Add(time.Millisecond)
		var results []pop.Result
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
