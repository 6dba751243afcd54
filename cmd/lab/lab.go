package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
	"sluice/cmd/lab/check"
	"sluice/cmd/lab/restart"
	"sluice/cmd/lab/slowclients"
	"sluice/loadgen/anycast"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/replay"
	"sluice/mitigation"
)

// trial is a lab in which a promise is checked.
type trial struct {
	*live.Lab
	check string
	times int
	short bool
	http2 bool
}

// cmdLab starts a lab and checks one promise.
func cmdLab(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("lab", pflag.ContinueOnError)
	f := &trial{Lab: live.AddLab(flags)}
	flags.StringVar(&f.check, "check", "", "the promise: "+cli.OneOf(checkNames()))
	flags.BoolVar(&f.short, "short", false, "with --check slow, bodies, words, rollback, shedding or exact: a small form, of seconds; with shared: asks the other edges after 10s, not 500ms")
	flags.IntVar(&f.times, "times", 20, "how often --check upgrades and --check restarts restart an edge, under 2,000 requests/s or --rate")
	flags.BoolVar(&f.http2, "http2", false, "with --check upgrades and restarts: clients speak HTTP/2, many requests on a connection")
	run := pflag.NewFlagSet("run", pflag.ContinueOnError) // what a check may have of its own
	traffic, rule, send := cli.AddTrace(run), cli.AddRule(run), live.AddSend(run)
	flags.AddFlagSet(run)
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if err := f.unheeded(run); err != nil {
		return err
	}
	if err := rule.OnlySliding("lab"); err != nil {
		return err
	}
	if err := f.Complete(); err != nil {
		return err
	}
	if err := send.Check(); err != nil {
		return err
	}
	_, rules, err := rule.Rules()
	if err != nil {
		return err
	}
	switch {
	case f.http2 && f.check != "upgrades" && f.check != "restarts":
		return cli.Usagef("--http2: it is for --check upgrades and restarts")
	case f.check == "":
		return cli.Usagef("--check: say which promise: %s; without one, sluice-loadgen lab replays a trace", cli.OneOf(checkNames()))
	case len(rules) != 1:
		return cli.Usagef("--check %s: one --limit and one --estimate", f.check)
	}
	return f.runCheck(ctx, rules[0], send, traffic)
}

// heeded is what of a run's flags a check heeds, for those that bring a rule or traffic of their own.
var heeded = map[string][]string{
	"quiet": ruleFlags, "shared": ruleFlags, "upgrades": {"rate"}, "restarts": {"rate"}, "slow": {"seed"}, "bodies": {"seed"}, "descriptors": {"seed"},
	"words": nil, "rollback": nil, "shedding": nil, "exact": nil,
}

var ruleFlags = []string{"limit", "window", "sub-windows", "estimate", "mitigation-timeout", "source"}

// unheeded reports a flag that was given and would change nothing.
func (f *trial) unheeded(run *pflag.FlagSet) (err error) {
	heeds, some := heeded[f.check]
	run.VisitAll(func(g *pflag.Flag) {
		if some && g.Changed && err == nil && !slices.Contains(heeds, g.Name) {
			err = cli.Usagef("--check %s: --%s would change nothing: leave it out", f.check, g.Name)
		}
	})
	return err
}

func checkNames() []string {
	return []string{"quiet", "shared", "upgrades", "restarts", "slow", "bodies", "descriptors", "words", "rollback", "shedding", "exact", "audit"}
}

// runCheck starts the lab and checks one promise.
func (f *trial) runCheck(ctx context.Context, rule mitigation.Rule, send *live.Send, traffic *cli.Trace) error {
	if !slices.Contains(checkNames(), f.check) {
		return cli.Usagef("--check %s: want %s", f.check, cli.OneOf(checkNames()))
	}
	switch f.check {
	case "upgrades", "restarts":
		return f.checkRestarts(ctx, traffic.Rate)
	case "slow", "bodies", "descriptors":
		return f.checkFront(ctx, rule, traffic.Seed)
	case "words":
		return f.checkWords(ctx, rule)
	case "rollback":
		return f.checkRollback(ctx, rule)
	case "shedding":
		return f.checkShedding(ctx, rule)
	case "exact":
		return f.checkExact(ctx, rule)
	case "audit":
		return f.checkAudit(ctx, rule, send, traffic)
	}
	lab, err := f.Site(rule, judge.Deployed, send.Carrier)
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
	}
	if err := printCheck(c, err); err != nil {
		return err
	}
	return site.Crashed()
}

// checkRestarts restarts edges of its own under load.
func (f *trial) checkRestarts(ctx context.Context, rate float64) error {
	if rate == 0 {
		rate = 2000
	}
	if rate < 100 || rate > 100_000 || f.times < 1 {
		return cli.Usagef("--check %s: --rate %v, --times %d: want 100 to 100,000 requests a second and at least one restart", f.check, rate, f.times)
	}
	r := restart.Check{Sluice: f.Sluice, Times: f.times, Rate: int(rate), HTTP2: f.http2, Log: cli.Logf}
	run := r.Upgrades
	if f.check == "restarts" {
		run = r.Rolling
	}
	return printCheck(run(ctx))
}

// checkWords checks operators' words on edges under attack, with a rule of its own. All sources share connections, which leaves the
// machine to the edges.
func (f *trial) checkWords(ctx context.Context, rule mitigation.Rule) error {
	l, err := f.Site(rule, judge.Deployed, replay.Forwarded)
	if err != nil {
		return err
	}
	scale := check.WordsScales(f.short)
	l.PoPs, l.Rule = 1, scale.Rule(l.Edges)
	return onSite(ctx, l, func(s *lab.Site) (*check.Result, error) { return check.Words(ctx, s, scale) })
}

// checkRollback checks that a limit which was lowered and rolled back blocks nobody, with a rule of its own.
func (f *trial) checkRollback(ctx context.Context, rule mitigation.Rule) error {
	l, err := f.Site(rule, judge.Deployed, replay.Forwarded)
	if err != nil {
		return err
	}
	scale := check.RollbackScales(f.short)
	l.PoPs, l.Rule = 1, scale.Rule()
	return onSite(ctx, l, func(s *lab.Site) (*check.Result, error) { return check.Rollback(ctx, s, scale) })
}

// checkShedding checks two edges before an origin of the check's own, with rules of its own beside one that nobody reaches.
func (f *trial) checkShedding(ctx context.Context, rule mitigation.Rule) error {
	l, err := f.Site(rule, judge.Deployed, replay.Loopback)
	if err != nil {
		return err
	}
	l.PoPs, l.Edges, l.Memcached, l.Twemproxy, l.Rule.Limit = 1, 2, min(l.Memcached, 1), false, 1_000_000_000
	return printCheck(check.Shedding(ctx, l, check.SheddingScales(f.short)))
}

// checkExact checks edges that share nodes, with rules of the check's own beside one that nobody reaches.
func (f *trial) checkExact(ctx context.Context, rule mitigation.Rule) error {
	l, err := f.Site(rule, judge.Deployed, replay.Loopback)
	if err != nil {
		return err
	}
	l.PoPs, l.Edges, l.Memcached, l.Rule.Limit = 1, max(l.Edges, 3), max(l.Memcached, 2), 1_000_000_000
	return printCheck(check.Exact(ctx, l, check.ExactScales(f.short)))
}

// checkAudit checks edges that audit every source against the judge of a replay, under a mixed attack unless set
// otherwise, with a window that is over in the time of a check.
func (f *trial) checkAudit(ctx context.Context, rule mitigation.Rule, send *live.Send, traffic *cli.Trace) error {
	if len(traffic.Files) == 0 && traffic.Workload == "" {
		traffic.Workload = "mixed"
	}
	if traffic.Duration == 0 && len(traffic.Files) == 0 {
		traffic.Duration = 30 * time.Second
	}
	if rule.Counter.Window > 20*time.Second || rule.Counter.Limit > 4096 {
		return cli.Usagef("--check audit: --window %v, --limit %d: want at most 20s, or it takes too long, and at most 4096, more of which edges do not audit",
			rule.Counter.Window, rule.Counter.Limit)
	}
	site, err := f.Site(rule, judge.Deployed, send.Carrier)
	if err != nil {
		return err
	}
	site.PoPs, site.AuditOneIn = 1, 1
	l := &live.Run{Command: "lab", Mode: judge.Deployed, Rule: rule, Send: send, Edges: []int{f.Edges}, Nodes: f.Nodes, Secrets: live.LabSecrets(1)}
	if l.Affinity, err = anycast.New(1, nil); err != nil {
		return err
	}
	if l.Trace, err = send.Load(traffic, rule, f.Edges); err != nil {
		return err
	}
	running, err := site.Start(ctx)
	if err != nil {
		return err
	}
	defer running.Stop()
	return printCheck(check.Audit{
		Replay: replay.Replay{Affinity: l.Affinity.PoP, PerConnection: send.PerConnection, Seed: traffic.Seed, Speed: send.Speed}, Trace: l.Trace,
		Judge: func(out *lab.Outcome) judge.Figures { return l.Judge(out.Outcome, out.InForce, out.Lost).Figures },
	}.Run(ctx, running))
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

// checkFront checks what clients can do to an edge by itself, with a rule that nobody reaches.
func (f *trial) checkFront(ctx context.Context, rule mitigation.Rule, seed uint64) error {
	l, err := f.Site(rule, judge.Deployed, replay.Loopback)
	if err != nil {
		return err
	}
	l.PoPs, l.Edges, l.Memcached, l.Twemproxy, l.Rule.Limit = 1, 1, 0, false, 1_000_000_000
	var run func(*lab.Site) (*check.Result, error)
	switch f.check {
	case "slow":
		l.Edges = 2 // the second is without slow clients
		scale := slowclients.Scales(f.short)
		l.Limits = scale.Limits()
		run = func(s *lab.Site) (*check.Result, error) { return slowclients.Check(ctx, s, scale) }
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
		l.Descriptors = slowclients.FewDescriptors
		run = func(s *lab.Site) (*check.Result, error) { return slowclients.Descriptors(ctx, s) }
	}
	return onSite(ctx, l, run)
}

// onSite starts a site, runs a check on it, and prints what that found.
func onSite(ctx context.Context, l lab.Lab, run func(*lab.Site) (*check.Result, error)) error {
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
