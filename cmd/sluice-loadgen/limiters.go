package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
	"sluice/cmd/internal/virtual"
	"sluice/loadgen/answer"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/page"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/report"
	"sluice/loadgen/rival"
	"sluice/mitigation"
)

// limiters is which limiters a lab sends the trace to.
type limiters struct {
	Names     []string
	RateLimit string // executable of envoyproxy/ratelimit
	trial     string // of sluice-trial, which has the proxy that asks it
}

// Sluice under the rule as it is, and under one that throttles, as all others do.
const (
	sluice    = "sluice"
	throttles = "sluice-throttle"
)

// addLimiters registers its flags.
func addLimiters(flags *pflag.FlagSet) *limiters {
	l := new(limiters)
	flags.StringSliceVar(&l.Names, "limiter", []string{sluice},
		"who limits: sluice, sluice-throttle (with no mitigation timeout), nginx (limit_req), haproxy (stick tables with peers), envoy-ratelimit (envoyproxy/ratelimit\n"+
			"over memcached, behind proxies of ours), each with --edges instances; several get the same trace,\none after the other, and one report has all side by side, judged by what clients see")
	flags.StringVar(&l.RateLimit, "ratelimit", "",
		"`PATH` of envoyproxy/ratelimit; none: ratelimit beside this one, which make ratelimit builds")
	return l
}

// alone reports whether it is the lab that it was without them.
func (l *limiters) alone() bool { return slices.Equal(l.Names, []string{sluice}) }

// check reports what of a command line others than Sluice cannot do.
func (l *limiters) check(f *live.Lab, send *live.Send, mode judge.Mode, faults []lab.Fault) error {
	if err := cli.SomeOf("--limiter", l.Names, append([]string{sluice, throttles},
		rival.Names...)); err != nil {
		return err
	}
	if len(l.Names) == 0 {
		return cli.Usagef("--limiter: name at least one")
	}
	if l.alone() {
		return nil
	}
	const only = "that is for --limiter sluice alone"
	switch {
	case len(faults) > 0:
		return cli.Usagef("--fault: %s: nobody does faults to other limiters here", only)
	case f.PoPs > 1 || f.Peers || len(f.Flaps) > 0:
		return cli.Usagef("--pops, --flap, --peers: %s", only)
	case f.Twemproxy:
		return cli.Usagef("--twemproxy: %s", only)
	case f.Wall:
		return cli.Usagef("--wall: %s", only)
	case send.HTTP2:
		return cli.Usagef("--http2: %s", only)
	case send.Carrier != replay.Loopback:
		return cli.Usagef("--source %s: limiters are compared with real addresses, of loopback",
			send.Carrier)
	case mode != judge.Deployed:
		return cli.Usagef("--mode %s: other limiters tell no estimates", mode)
	}
	if err := cli.Beside(&l.RateLimit, "ratelimit"); err != nil {
		return err
	}
	return cli.Beside(&l.trial, "sluice-trial")
}

// report makes one run of a lab: of Sluice's edges, or of one limiter after the other.
func (l *limiters) report(ctx context.Context, f *live.Lab, of *live.Run, seed uint64,
	faults []lab.Fault) (*report.Report, error) {
	if l.alone() {
		return runLab(ctx, f, of, seed, faults)
	}
	return l.run(ctx, f, of, seed)
}

// run sends the trace to one limiter after the other, and gives one report of all.
func (l *limiters) run(ctx context.Context, f *live.Lab, of *live.Run,
	seed uint64) (*report.Report, error) {
	r := &report.Report{}
	for _, name := range l.Names {
		v, err := l.measure(ctx, name, f, of, seed)
		if err != nil {
			return nil, err
		}
		r.Rivals = append(r.Rivals, *v)
		r.Run.Disturbed = r.Run.Disturbed || v.Disturbed
	}
	r.Figures = r.Rivals[0].Figures
	of.Describe(r)
	var errors []string
	for _, v := range r.Rivals {
		if v.Errors > 0 {
			errors = append(errors, fmt.Sprintf("%s: %s", v.Limiter,
				page.Plural(v.Errors, "client error")))
		}
	}
	line := "no client errors"
	if len(errors) > 0 {
		line = strings.Join(errors, ", ")
	}
	r.Run.Details = &page.Details{Line: line}
	r.Run.Notes = append(r.Run.Notes,
		fmt.Sprintf("judged: Sluice by its edges' own times, others by the middle between sending and answer; slack %v", answer.ClockSlack),
		"only Sluice blocks for a time; others refuse what they find over")
	return r, nil
}

// instances is a limiter that runs.
type instances struct {
	targets    []netip.AddrPort
	parts      []rival.Part
	configured string
	refused    bool // refused requests count, too
	timeout    time.Duration
	stop       func()
	crashed    func() error
}

// measure starts a limiter, sends it the trace, and judges it.
func (l *limiters) measure(ctx context.Context, name string, f *live.Lab, of *live.Run,
	seed uint64) (*report.Rival, error) {
	cli.Logf("starting %d instances of %s", f.Edges, name)
	start, ours := l.rival, name == sluice || name == throttles
	if ours {
		start = l.sluice
	}
	s, err := start(ctx, name, f, of)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	m := live.NewMeter(name, len(of.Trace.Requests))
	r := replay.Replay{Seed: seed, Progress: m.Show}
	of.Send.Fill(&r)
	out, costs, err := rival.Run(ctx, r, of.Trace, s.targets, s.parts, !ours)
	m.Done()
	if err != nil {
		return nil, err
	}
	if err := s.crashed(); err != nil {
		return nil, err
	}
	c := of.Rule.Counter
	v := &report.Rival{Limiter: name, Configured: s.configured, Errors: out.ClientErrors(),
		Figures: rival.Judge(out, c.Limit, c.Window, s.timeout, virtual.Grain(c), f.Edges,
			s.refused)}
	for _, c := range costs {
		v.Costs = append(v.Costs, report.Cost(c))
		v.CPU += c.CPU
		v.AtRest += c.AtRest
	}
	disturbed := report.Report{Figures: v.Figures,
		Run: report.Run{Window: report.Seconds(c.Window)}}
	disturbed.Disturb()
	v.Disturbed = disturbed.Run.Disturbed
	return v, nil
}

// rival starts one of others.
func (l *limiters) rival(ctx context.Context, name string, f *live.Lab,
	of *live.Run) (*instances, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s, err := rival.Lab{
		Limiter: name, Instances: f.Edges, Limit: of.Rule.Counter.Limit,
		Window: of.Rule.Counter.Window,
		Origin: []string{self, "origin"}, Memcached: f.Nodes, RateLimit: l.RateLimit,
		Proxy: []string{l.trial, "ratelimit-proxy"},
	}.Start(ctx)
	if err != nil {
		return nil, err
	}
	return &instances{targets: s.Targets, parts: s.Parts, configured: s.Configured,
		refused: s.Refused, stop: s.Stop, crashed: s.Crashed}, nil
}

// sluice starts edges and their nodes, as a lab without others has them.
func (l *limiters) sluice(ctx context.Context, name string, f *live.Lab,
	of *live.Run) (*instances, error) {
	rule := of.Rule
	if name == throttles {
		rule.Timeout = 0
	}
	made, err := f.Site(rule, of.Mode, of.Send.Carrier)
	if err != nil {
		return nil, err
	}
	site, err := made.Start(ctx)
	if err != nil {
		return nil, err
	}
	edges, tier := rival.Part{Name: sluice}, rival.Part{Name: "memcached"}
	if said, err := exec.CommandContext(ctx, site.Sluice, "version").Output(); err == nil {
		edges.Version, _, _ = strings.Cut(strings.TrimSpace(strings.TrimPrefix(string(said),
			"sluice")), ", go")
		edges.Version = strings.TrimSuffix(edges.Version, ", commit unknown")
	}
	if path, err := exec.LookPath("memcached"); err == nil {
		if tier.Version, err = process.Version(ctx, path, "-V"); err != nil {
			site.Stop()
			return nil, err
		}
	}
	for _, m := range site.EdgeProcesses {
		edges.PIDs = append(edges.PIDs, m.PID())
	}
	for _, m := range site.NodeProcesses {
		tier.PIDs = append(tier.PIDs, m.PID())
	}
	return &instances{
		targets: site.Targets[0], parts: []rival.Part{edges, tier}, timeout: rule.Timeout,
		stop: site.Stop, crashed: site.Crashed,
		configured: sluiceConfigured(rule, f.Nodes),
	}, nil
}

func sluiceConfigured(r mitigation.Rule, nodes int) string {
	does := fmt.Sprintf("who is over is blocked for %v", r.Timeout)
	if r.Timeout == 0 {
		does = "who is over is throttled"
	}
	return fmt.Sprintf("limit %d in a sliding window of %v, %s, over %d memcached", r.Counter.Limit,
		r.Counter.Window, does, nodes)
}
