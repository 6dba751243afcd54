package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
	"sluice/cmd/lab/chaos"
)

// cmdSoak runs edges for as long as one likes, with a fault now and then.
func cmdSoak(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("soak", pflag.ContinueOnError)
	length := flags.Duration("for", time.Hour, "how long in all")
	every := flags.Duration("every", time.Minute, "a fault in each so long")
	edges := flags.Int("edges", 3, "the last of which is never ended")
	nodes := flags.Int("memcached", 2, "nodes")
	seed := flags.Uint64("seed", 1, "of the faults and of the traffic")
	sluice := flags.String("sluice", "", "`PATH` of the edge's executable; none: sluice beside this one")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	k := chaos.Soak{Length: *every, Seed: *seed}
	if *every > 0 {
		k.Rounds = int(*length / *every)
	}
	switch {
	case *every < 4*time.Second || *every > time.Hour:
		return cli.Usagef("--every %v: want 4s to 1h", *every)
	case k.Rounds < 3 || *length > 30*24*time.Hour:
		return cli.Usagef("--for %v, --every %v: want at least 3 faults, to compare what is held after the last with what was held after the first, and at most 30 days", *length, *every)
	case *edges < 2 || *edges > 64 || *nodes < 1 || *nodes > 16:
		return cli.Usagef("--edges %d, --memcached %d: want 2 to 64 and 1 to 16", *edges, *nodes)
	}
	if err := cli.Beside(sluice, "sluice"); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	l := k.Lab(chaos.Live{Sluice: *sluice, Origin: []string{self, "origin"}, Secret: live.LabSecret, Log: cli.Logf}, *edges, *nodes)
	site, err := l.Start(ctx)
	if err != nil {
		return err
	}
	defer site.Stop()
	if err := printCheck(k.Run(ctx, site)); err != nil {
		return err
	}
	return site.Crashed()
}
