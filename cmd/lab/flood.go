package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/namespace"
	"sluice/cmd/lab/flood"
)

// cmdFlood measures what new connections of blocked sources cost. It does so in a network of its own, in which it starts itself anew.
func cmdFlood(ctx context.Context, args []string) error {
	var (
		f        flood.Floods
		jsonFile string
		short    bool
	)
	flags := pflag.NewFlagSet("flood", pflag.ContinueOnError)
	flags.IntVar(&f.Rounds, "rounds", 3, "how often each is measured")
	flags.DurationVar(&f.For, "time", 10*time.Second, "of a flood; all that is done once in a lease is in ten seconds")
	flags.IntVar(&f.Sources, "sources", 10_000, "blocked ones, each with an address of its own; at most 65536")
	flags.IntVar(&f.Rate, "rate", 8000, "connections a second, of all of them together")
	flags.StringSliceVar(&f.Ways, "ways", flood.Ways, "what becomes of a connection")
	flags.BoolVar(&short, "short", false, "one round of one second, of 500 sources: whether it works, not how fast")
	flags.StringVar(&f.Sluice, "sluice", "", "`PATH` of the edge's executable; none: sluice beside this one")
	flags.StringVar(&f.Wall, "wall", "", "`PATH` of its helper; none: sluice-wall beside this one")
	flags.StringVar(&jsonFile, "json", "", "write the figures to `FILE`")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if err := cli.SomeOf("--ways", f.Ways, flood.Ways); err != nil {
		return err
	}
	if f.Rounds < 1 || f.Sources < 1 || f.Sources > 1<<16 || f.Rate < 1 || f.For <= 0 {
		return cli.Usagef("--rounds, --time, --rate and --sources: want more than 0, and at most 65536 sources")
	}
	if short {
		f.Rounds, f.For, f.Sources, f.Rate = 1, time.Second, 500, 1000
	}
	for name, path := range map[string]*string{"sluice": &f.Sluice, "sluice-wall": &f.Wall} {
		if err := cli.Beside(path, name); err != nil {
			return err
		}
	}
	if !namespace.Inside() {
		return namespace.Again(ctx)
	}
	if err := namespace.Up(); err != nil {
		return err
	}
	f.Say = func(s string) { fmt.Fprintln(os.Stderr, s) }
	all, err := f.Run(ctx)
	if err != nil {
		return err
	}
	if err := cli.ToJSON(jsonFile, map[string]any{"figures": all}); err != nil {
		return err
	}
	return flood.Write(os.Stdout, all)
}
