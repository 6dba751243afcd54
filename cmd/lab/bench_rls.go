package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/lab/bench"
)

// cmdBenchRLS measures what it costs to ask for a decision: over Envoy's rate limit service here and at envoyproxy/ratelimit, and over the limit API.
func cmdBenchRLS(ctx context.Context, args []string) error {
	var (
		b        bench.RateLimit
		jsonFile string
		short    bool
	)
	flags := pflag.NewFlagSet("bench-rls", pflag.ContinueOnError)
	flags.IntVar(&b.Rounds, "rounds", 5, "how often each is measured in each work")
	flags.DurationVar(&b.For, "time", 2*time.Second, "of a measurement")
	flags.IntVar(&b.Conns, "connections", 4, "of the load")
	flags.IntVar(&b.Calls, "calls", 32, "at once on each connection of gRPC; HTTP/1.1 has as many connections in place of them")
	flags.IntVar(&b.Users, "users", 10_000, "who are asked about, each with a counter")
	flags.StringSliceVar(&b.Works, "work", bench.RateLimitWorks, "what is asked: calls that are admitted, and calls over the limit")
	flags.BoolVar(&short, "short", false, "one round of one second: whether it works, not how fast")
	flags.StringVar(&b.Sluice, "sluice", "", "`PATH` of the edge's executable; none: sluice beside this one")
	flags.StringVar(&b.Peer, "peer", "", "`PATH` of envoyproxy/ratelimit; none: ratelimit beside this one, which make bench-rls builds")
	flags.StringVar(&jsonFile, "json", "", "write the figures to `FILE`")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if err := cli.SomeOf("--work", b.Works, bench.RateLimitWorks); err != nil {
		return err
	}
	if b.Rounds < 1 || b.Conns < 1 || b.Calls < 1 || b.Users < 1 || b.For <= 0 {
		return cli.Usagef("--rounds, --time, --connections, --calls and --users: want more than 0")
	}
	if short {
		b.Rounds, b.For = 1, time.Second
	}
	for name, path := range map[string]*string{"sluice": &b.Sluice, "ratelimit": &b.Peer} {
		if err := cli.Beside(path, name); err != nil {
			return err
		}
		if _, err := os.Stat(*path); err != nil {
			return fmt.Errorf("bench-rls: %w: make bench-rls builds it", err)
		}
	}
	b.Say = func(s string) { fmt.Fprintln(os.Stderr, s) }
	figures, err := b.Run(ctx)
	if err != nil {
		return err
	}
	if err := cli.ToJSON(jsonFile, map[string]any{"figures": figures}); err != nil {
		return err
	}
	return bench.WriteRateLimit(os.Stdout, figures)
}
