package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/lab/worst"
	"sluice/counter"
	"sluice/counter/algorithm"
)

func cmdWorst(_ context.Context, args []string) error {
	flags := pflag.NewFlagSet("worst", pflag.ContinueOnError)
	var o worst.Options
	flags.Uint64Var(&o.Seed, "seed", 1, "of the search")
	flags.IntVar(&o.Rounds, "rounds", 40, "behaviours to try for each objective")
	flags.IntVar(&o.Edges, "edges", 0, "of the PoP; 0: searched, as everything below that is not given")
	flags.IntVar(&o.Nodes, "nodes", 1, "memcached nodes")
	flags.Uint32Var(&o.Limit, "limit", 0, "requests in a window")
	flags.DurationVar(&o.Window, "window", 0, "of the limit")
	flags.DurationVar(&o.Timeout, "mitigation-timeout", -1, "of a block; 0: the rule throttles; below 0: searched")
	sources := flags.String("sources", "any", "`WHICH`: known (the same again and again), fresh (always new ones) or any")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	switch {
	case o.Rounds < 1 || o.Rounds > 100_000:
		return cli.Usagef("--rounds %d: want 1 to 100000", o.Rounds)
	case o.Edges < 0 || o.Edges > counter.MaxEdges:
		return cli.Usagef("--edges %d: want 1 to %d", o.Edges, counter.MaxEdges)
	case o.Nodes < 1 || o.Nodes > 64:
		return cli.Usagef("--nodes %d: want 1 to 64", o.Nodes)
	case o.Limit > 1_000_000:
		return cli.Usagef("--limit %d: want 1 to 1000000", o.Limit)
	case o.Window != 0 && (o.Window < algorithm.MinWindow || o.Window > time.Hour):
		return cli.Usagef("--window %v: want %v to 1h", o.Window, algorithm.MinWindow)
	case o.Timeout > time.Hour:
		return cli.Usagef("--mitigation-timeout %v: want at most 1h", o.Timeout)
	}
	var err error
	if o.Sources, err = worst.ParseSources(*sources); err != nil {
		return cli.Usagef("--sources %v", err)
	}
	bar := cli.Progress(o.Rounds*len(worst.Objectives()), "searching")
	found, err := worst.Search(o, func(int) { bar.Add(1) })
	bar.Finish()
	if err != nil {
		return err
	}
	return worst.Write(os.Stdout, found)
}
