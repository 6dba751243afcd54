package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/counter"
	"sluice/edge"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/memcached"
)

// shared is what this edge counts in, and what shares it with the PoP. Everything that differs between an edge that counts
// alone and one with a tier is decided in share.
type shared struct {
	table    *counter.Table
	bits     *mitigation.Table
	tier     edge.Tier
	metrics  prometheus.Collector // nil: none beside the edge's own
	setNodes func([]string) error // changes the list of the tier's nodes; nil without a tier
	// sync works until ctx is done, then reports what is left and returns when all that it started has ended.
	sync func(ctx context.Context) error
}

func share(c *edge.Config, secret pop.Secret, log *slog.Logger) (*shared, error) {
	if len(c.PoP.Memcached) == 0 {
		s := &shared{table: counter.New(counter.Options{Counters: c.Counters, Began: time.Now()}), bits: mitigation.New(0, nil)}
		s.sync = s.tidy
		return s, nil
	}
	var tier *memcached.Tier
	wake := func() { tier.Wake() }
	s := &shared{
		table: counter.New(counter.Options{Counters: c.Counters, Tier: true, Began: time.Now(), Phase: secret.Phase, Wake: wake}),
		bits:  mitigation.New(0, wake),
	}
	machine, err := pop.NewMachine(pop.Config{
		Nodes: c.PoP.Memcached, Secret: secret, ID: rand.Uint64(), Edges: c.PoP.Edges, Counters: s.table, Bits: s.bits,
	}, time.Now())
	if err != nil {
		return nil, err
	}
	if tier, err = memcached.NewTier(machine, c.PoP.Memcached); err != nil {
		return nil, fmt.Errorf("pop.memcached: %w", err)
	}
	tier.Caught = func(v any, stack []byte) {
		log.Error("a panic in the tier's goroutines was caught", "panic", v, "stack", string(stack))
	}
	s.sync, s.setNodes = tier.Sync, machine.SetNodes
	s.metrics = newTierMetrics(tier, machine)
	s.tier = edge.Tier{
		Up: func(counter.Source) bool { return machine.Up() },
		Ask: func(rule *counter.Rule, source counter.Source) {
			machine.Ask(counter.Counter{Rule: rule, Source: source})
			tier.Wake()
		},
		Rules: func(rules []edge.TierRule) {
			known := make([]pop.Rule, len(rules))
			for i, r := range rules {
				known[i] = pop.Rule{Counter: r.Counter, Timeout: r.Timeout}
			}
			machine.SetRules(known)
		},
		Nodes: func() []edge.NodeStatus {
			var nodes []edge.NodeStatus
			for _, m := range machine.Members() {
				nodes = append(nodes, edge.NodeStatus{Address: m.Name, Up: m.Up, Joining: m.Joining, Leaving: m.Leaving})
			}
			return nodes
		},
	}
	return s, nil
}

// alone reports whether there is no tier.
func (s *shared) alone() bool { return s.tier.Up == nil }

// tidy keeps the tables of an edge without a tier tidy.
func (s *shared) tidy(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if step := s.table.Stepped(now); step != 0 {
				s.table.Adjust(step, now)
			}
			s.table.Sweep(now, true)
		}
	}
}
