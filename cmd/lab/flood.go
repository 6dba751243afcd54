package main

import (
	"context"
	"io"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/namespace"
	"sluice/cmd/lab/bench"
)

// cmdFlood measures what new connections of blocked sources cost. It does so in a network of its
// own, in which it starts itself anew.
func cmdFlood(ctx context.Context, args []string) error {
	f := bench.Floods{Say: say}
	t := newTrial("flood",
		"one round of one second, of 500 sources: whether it works, not how fast")
	t.rounds(&f.Rounds, &f.For, 3, 10*time.Second,
		"of a flood; all that is done once in a lease is in ten seconds")
	t.IntVar(&f.Sources, "sources", 10_000,
		"blocked ones, each with an address of its own; at most 65536")
	t.IntVar(&f.Rate, "rate", 8000, "connections a second, of all of them together")
	t.some(&f.Ways, "ways", bench.FloodWays, bench.FloodWays, "what becomes of a connection")
	t.choices = append(t.choices, func() error {
		if f.Sources < 1 || f.Sources > 1<<16 || f.Rate < 1 {
			return cli.Usagef("--rate and --sources: want more than 0, and at most 65536 sources")
		}
		return nil
	})
	t.sluice(&f.Sluice)
	t.program(&f.Wall, "wall", "sluice-wall", "its helper")
	if err := t.parse(args); err != nil {
		return err
	}
	if t.short {
		f.Rounds, f.For, f.Sources, f.Rate = 1, time.Second, 500, 1000
	}
	if !namespace.Inside() {
		return namespace.Again(ctx)
	}
	f.Self = t.self
	if err := namespace.Up(); err != nil {
		return err
	}
	all, err := f.Run(ctx)
	if err != nil {
		return err
	}
	return t.report(map[string]any{"figures": all},
		func(w io.Writer) error { return bench.WriteFloods(w, all) })
}
