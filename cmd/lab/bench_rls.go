package main

import (
	"context"
	"io"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/lab/bench"
)

// cmdBenchRLS measures what it costs to ask for a decision: over Envoy's rate limit service here
// and at envoyproxy/ratelimit, and over the limit API.
func cmdBenchRLS(ctx context.Context, args []string) error {
	b := bench.RateLimit{Say: say}
	t := newTrial("bench-rls", "one round of one second: whether it works, not how fast")
	t.rounds(&b.Rounds, &b.For, 5, 2*time.Second, "of a measurement")
	t.IntVar(&b.Conns, "connections", 4, "of the load")
	t.IntVar(&b.Calls, "calls", 32,
		"at once on each connection of gRPC; HTTP/1.1 has as many connections in place of them")
	t.IntVar(&b.Users, "users", 10_000, "who are asked about, each with a counter")
	t.some(&b.Works, "work", bench.RateLimitWorks, bench.RateLimitWorks,
		"what is asked: calls that are admitted, and calls over the limit")
	t.choices = append(t.choices, func() error {
		if b.Conns < 1 || b.Calls < 1 || b.Users < 1 {
			return cli.Usagef("--connections, --calls and --users: want more than 0")
		}
		return nil
	})
	t.sluice(&b.Sluice)
	t.program(&b.Peer, "peer", "ratelimit", "envoyproxy/ratelimit, which make bench-rls builds")
	if err := t.parse(args); err != nil {
		return err
	}
	if t.short {
		b.Rounds, b.For = 1, time.Second
	}
	figures, err := b.Run(ctx)
	if err != nil {
		return err
	}
	return t.report(map[string]any{"figures": figures},
		func(w io.Writer) error { return bench.WriteRateLimit(w, figures) })
}
