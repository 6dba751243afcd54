package main

import (
	"context"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
	"sluice/cmd/lab/chaos"
)

// cmdSoak runs edges for as long as one likes, with a fault now and then.
func cmdSoak(ctx context.Context, args []string) error {
	t := newTrial("soak", "")
	length := t.Duration("for", time.Hour, "how long in all")
	k := chaos.Soak{}
	t.DurationVar(&k.Length, "every", time.Minute, "a fault in each so long")
	edges := t.Int("edges", 3, "the last of which is never ended")
	nodes := t.Int("memcached", 2, "nodes")
	t.Uint64Var(&k.Seed, "seed", 1, "of the faults and of the traffic")
	l := chaos.Live{Secret: live.LabSecret, Log: cli.Logf}
	t.choices = append(t.choices, func() error {
		if k.Length > 0 {
			k.Rounds = int(*length / k.Length)
		}
		switch {
		case k.Length < 4*time.Second || k.Length > time.Hour:
			return cli.Usagef("--every %v: want 4s to 1h", k.Length)
		case k.Rounds < 3 || *length > 30*24*time.Hour:
			return cli.Usagef("--for %v, --every %v: want at least 3 faults, to compare what is held after the last with what was held after the first, and at most 30 days", *length, k.Length)
		case *edges < 2 || *edges > 64 || *nodes < 1 || *nodes > 16:
			return cli.Usagef("--edges %d, --memcached %d: want 2 to 64 and 1 to 16", *edges,
				*nodes)
		}
		return nil
	})
	t.sluice(&l.Sluice)
	if err := t.parse(args); err != nil {
		return err
	}
	l.Origin = []string{t.self, "origin"}
	site, err := k.Lab(l, *edges, *nodes).Start(ctx)
	if err != nil {
		return err
	}
	defer site.Stop()
	if err := printCheck(k.Run(ctx, site)); err != nil {
		return err
	}
	return site.Crashed()
}
