package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sluice/cmd/sluice-loadgen/internal/cli"
	"sluice/loadgen/check"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/replay"
	"sluice/loadgen/restart"
	"sluice/loadgen/trace"
	"sluice/pop"
	"sluice/pop/anycast"
)

func checkNames() []string {
	return []string{"quiet", "shared", "upgrades", "restarts", "soak", "slow", "bodies", "descriptors", "words", "shedding"}
}

// runCheck starts the lab and checks one promise.
func (f *labFlags) runCheck(ctx context.Context, rule pop.Rule, send *sendFlags, traffic *cli.Trace) error {
	if !slices.Contains(checkNames(), f.check) {
		return cli.Usagef("--check %s: want %s", f.check, oneOf(checkNames()))
	}
	switch f.check {
	case "upgrades", "restarts":
		return f.checkRestarts(ctx, traffic.Rate)
	case "soak":
		switch {
		case f.times < 3:
			return cli.Usagef("--check soak: --times %d: want at least 3 rounds, to compare the last with the first", f.times)
		case len(traffic.Files) > 0:
			return cli.Usagef("--check soak: it runs a --workload, not a --trace")
		}
	case "slow", "bodies", "descriptors":
		return f.checkFront(ctx, rule, traffic.Seed)
	case "words":
		return f.checkWords(ctx, rule)
	case "shedding":
		return f.checkShedding(ctx, rule)
	}
	lab, err := f.lab(rule, judge.Deployed, send.carrier)
	if err != nil {
		return err
	}
	site, err := lab.Start(ctx)
	if err != nil {
		return err
	}
	defer site.Stop()
	var c *check.Result
	switch f.check {
	case "quiet":
		c, err = check.Quiet(ctx, site, 5*time.Second)
	case "shared":
		after := 500 * time.Millisecond
		if f.short { // the machine has other work: whether they share, not how soon
			after = 10 * time.Second
		}
		c, err = check.Shared(ctx, site, after)
	case "soak":
		c, err = f.soak(ctx, site, rule, send, traffic)
	}
	if err := printCheck(c, err); err != nil {
		return err
	}
	return site.Crashed()
}

// soak runs rounds of a workload, a minute each unless told otherwise, with a fault in each.
func (f *labFlags) soak(ctx context.Context, site *lab.Site, rule pop.Rule, send *sendFlags, traffic *cli.Trace) (*check.Result, error) {
	if traffic.Duration == 0 {
		traffic.Duration = time.Minute
	}
	if traffic.Workload == "" {
		traffic.Workload = "mixed"
	}
	affinity, err := anycast.New(f.pops, f.routes)
	if err != nil {
		return nil, err
	}
	seed := traffic.Seed
	return check.Soak{
		Rounds: f.times, Length: traffic.Duration, Seed: seed,
		Replay: replay.Replay{Affinity: affinity.PoP, PerConnection: send.perConnection, Seed: seed, Speed: send.speed},
		Trace: func(round int) (*trace.Trace, error) {
			traffic.Seed = seed + uint64(round)
			return traffic.Load(rule.Counter.Limit, rule.Counter.Window, f.edges)
		},
	}.Run(ctx, site)
}

// checkRestarts restarts edges of its own under load.
func (f *labFlags) checkRestarts(ctx context.Context, rate float64) error {
	if rate == 0 {
		rate = 2000
	}
	if rate < 100 || rate > 100_000 || f.times < 1 {
		return cli.Usagef("--check %s: --rate %v, --times %d: want 100 to 100,000 requests a second and at least one restart", f.check, rate, f.times)
	}
	r := restart.Check{Sluice: f.sluice, Times: f.times, Rate: int(rate), Log: logLine}
	run := r.Upgrades
	if f.check == "restarts" {
		run = r.Rolling
	}
	return printCheck(run(ctx))
}

// checkWords checks operators' words on edges under attack, with a rule of its own. All sources share connections, which leaves the
// machine to the edges.
func (f *labFlags) checkWords(ctx context.Context, rule pop.Rule) error {
	l, err := f.lab(rule, judge.Deployed, replay.Forwarded)
	if err != nil {
		return err
	}
	scale := check.WordsScales(f.short)
	l.PoPs, l.Rule = 1, scale.Rule(l.Edges)
	site, err := l.Start(ctx)
	if err != nil {
		return err
	}
	defer site.Stop()
	c, err := check.Words(ctx, site, scale)
	if err != nil {
		err = errors.Join(site.Crashed(), err)
	}
	return printCheck(c, err)
}

// checkShedding checks two edges before an origin of the check's own, with rules of its own beside one that nobody reaches.
func (f *labFlags) checkShedding(ctx context.Context, rule pop.Rule) error {
	l, err := f.lab(rule, judge.Deployed, replay.Loopback)
	if err != nil {
		return err
	}
	l.PoPs, l.Edges, l.Memcached, l.Twemproxy, l.Rule.Limit = 1, 2, min(l.Memcached, 1), false, 1_000_000_000
	return printCheck(check.Shedding(ctx, l, check.SheddingScales(f.short)))
}

// printCheck prints a check, or returns why there is none; its error says that it was not kept.
func printCheck(c *check.Result, err error) error {
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(os.Stdout); err != nil {
		return err
	}
	if !c.Kept {
		return fmt.Errorf("check %s: the promise was not kept", c.Name)
	}
	return nil
}

func logLine(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// oneOf is a choice in words.
func oneOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// checkFront checks what clients can do to an edge by itself, with a rule that nobody reaches.
func (f *labFlags) checkFront(ctx context.Context, rule pop.Rule, seed uint64) error {
	l, err := f.lab(rule, judge.Deployed, replay.Loopback)
	if err != nil {
		return err
	}
	l.PoPs, l.Edges, l.Memcached, l.Twemproxy, l.Rule.Limit = 1, 1, 0, false, 1_000_000_000
	var run func(*lab.Site) (*check.Result, error)
	switch f.check {
	case "slow":
		l.Edges = 2 // the second is without slow clients
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
		err = errors.Join(site.Crashed(), err) // that it has gone is why it could not be asked
	}
	return printCheck(c, err)
}
