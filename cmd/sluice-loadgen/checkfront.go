package main

import (
	"context"
	"errors"

	"sluice/loadgen/check"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/replay"
	"sluice/pop"
)

// checkFront checks what clients can do to one edge by itself, with a rule that nobody reaches.
func (f *labFlags) checkFront(ctx context.Context, rule pop.Rule, seed uint64) error {
	l, err := f.lab(rule, judge.Deployed, replay.Loopback)
	if err != nil {
		return err
	}
	l.PoPs, l.Edges, l.Memcached, l.Twemproxy, l.Rule.Limit = 1, 1, 0, false, 1_000_000_000
	var run func(*lab.Site) (*check.Result, error)
	switch f.check {
	case "slow":
		scale := check.SlowScales(f.short)
		l.Limits = scale.Limits()
		run = func(s *lab.Site) (*check.Result, error) { return check.Slow(ctx, s, scale) }
	case "bodies":
		origin, err := check.StartBodyOrigin()
		if err != nil {
			return err
		}
		defer origin.Stop()
		l.Before = origin.Addr
		exchanges, largest := 200, int64(64<<20)
		if f.short {
			exchanges, largest = 40, 4<<20
		}
		run = func(s *lab.Site) (*check.Result, error) {
			return check.Bodies(ctx, s, origin, exchanges, largest, seed)
		}
	case "descriptors":
		l.Descriptors = check.FewDescriptors
		run = func(s *lab.Site) (*check.Result, error) { return check.Descriptors(ctx, s) }
	}
	site, err := l.Start(ctx)
	if err != nil {
		return err
	}
	defer site.Stop()
	c, err := run(site)
	if err != nil {
		return errors.Join(site.Crashed(), err) // that it has gone is why it could not be asked
	}
	return told(c)
}
