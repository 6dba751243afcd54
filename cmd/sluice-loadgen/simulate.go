package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"

	"sluice/counter"
	"sluice/loadgen"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/poptest"
)

// ruleFlags say what the limiter allows.
type ruleFlags struct {
	limits     []uint
	window     time.Duration
	timeout    time.Duration
	subWindows int
	estimates  []string
	mode       string
}

func addRule(flags *pflag.FlagSet) *ruleFlags {
	f := new(ruleFlags)
	flags.UintSliceVar(&f.limits, "limit", []uint{100}, "requests allowed in a window; several for a run each")
	flags.DurationVar(&f.window, "window", time.Minute, "`LENGTH` of the sliding window")
	flags.DurationVar(&f.timeout, "mitigation-timeout", time.Minute, "how `LONG` a source that went over is refused; 0 throttles")
	flags.IntVar(&f.subWindows, "sub-windows", 12, "1 (two plain counters), 2, 4, 8 or 12")
	flags.StringSliceVar(&f.estimates, "estimate", []string{"nearest"}, "nearest, lower or unrounded; several for a run each")
	flags.StringVar(&f.mode, "mode", "deployed", "estimator (nothing is blocked) or deployed")
	return f
}

// rules gives a rule for each limit and estimate, named alike, so that they would share counters of one shape.
func (f *ruleFlags) rules() (rules []pop.Rule, err error) {
	if f.timeout < 0 || f.timeout > mitigation.MaxTimeout {
		return nil, usagef("--mitigation-timeout %v: want 0 to %v", f.timeout, mitigation.MaxTimeout)
	}
	for _, limit := range f.limits {
		for _, name := range f.estimates {
			e := counter.Unrounded
			if name != "unrounded" {
				if e, err = counter.ParseEstimate(name); err != nil {
					return nil, usagef("--estimate %s: want nearest, lower or unrounded", name)
				}
			}
			if limit > counter.MaxLimit {
				return nil, usagef("--limit %d: want 1 to %d", limit, counter.MaxLimit)
			}
			r, err := counter.NewRule("default", uint32(limit), f.window, f.subWindows, e)
			if err != nil {
				return nil, usagef("--%v", err)
			}
			rules = append(rules, pop.Rule{Counter: r, Timeout: f.timeout})
		}
	}
	return rules, nil
}

// popFlags say how large the PoPs are, and what happens to them.
type popFlags struct {
	pops          int // 0: 1
	edges, nodes  int // of each
	rtt           time.Duration
	perConnection int
	skew          time.Duration
	faults, flaps []string
	quiet         bool // no bar

	troubles []loadgen.Fault // what faults and flaps say
	routes   []pop.Route
}

func addPoP(flags *pflag.FlagSet) *popFlags {
	f := new(popFlags)
	flags.IntVar(&f.pops, "pops", 1, "points of presence; sources belong to one by their routed prefix (/24, /48)")
	flags.IntVar(&f.edges, "edges", 1, "edges of each; one alone counts without a tier unless --memcached is given")
	flags.IntVar(&f.nodes, "memcached", 0, "memcached nodes; 0: one for every two edges")
	flags.DurationVar(&f.rtt, "rtt", time.Millisecond, "`TIME` from an edge to a node and back")
	flags.IntVar(&f.perConnection, "per-connection", 20, "requests of a connection, after which a source may meet another edge")
	flags.DurationVar(&f.skew, "skew", 0, "how far the clocks of the edges are `APART` at most")
	flags.StringArrayVar(&f.faults, "fault", nil, `what happens when, such as "20s kill memcached/0"; kill, stop, cont and restart of memcached/N,`+"\n"+
		"kill, term and restart of edge/N; an edge killed at 0s and restarted later is one that is added; repeatable")
	flags.StringArrayVar(&f.flaps, "flap", nil, `from when on a prefix reaches another PoP, such as "20s 198.51.100.0/24 1"; repeatable`)
	return f
}

func (f *popFlags) check() error {
	switch {
	case f.pops < 0 || f.pops > counter.MaxEdges:
		return usagef("--pops %d: want 1 to %d", f.pops, counter.MaxEdges)
	case f.edges < 1 || f.edges > counter.MaxEdges:
		return usagef("--edges %d: want 1 to %d", f.edges, counter.MaxEdges)
	case f.nodes < 0:
		return usagef("--memcached %d: must not be negative", f.nodes)
	case f.rtt < 0 || f.skew < 0:
		return usagef("--rtt %v, --skew %v: must not be negative", f.rtt, f.skew)
	case f.perConnection < 1:
		return usagef("--per-connection %d: want at least 1", f.perConnection)
	}
	f.pops = max(f.pops, 1)
	if f.pops*f.edges > counter.MaxEdges {
		return usagef("--pops %d, --edges %d: at most %d edges in all", f.pops, f.edges, counter.MaxEdges)
	}
	if f.nodes == 0 && (f.edges > 1 || f.pops > 1) {
		f.nodes = (f.edges + 1) / 2
	}
	var err error
	if f.routes, err = parseFlaps(f.flaps, f.pops); err != nil {
		return err
	}
	f.troubles = nil
	for _, text := range f.faults {
		fault, err := loadgen.ParseFault(text)
		if err != nil {
			return usagef("--%v", err)
		}
		if err := f.knows(fault); err != nil {
			return err
		}
		f.troubles = append(f.troubles, fault)
	}
	return nil
}

// knows tells whether a fault can happen in virtual time.
func (f *popFlags) knows(fault loadgen.Fault) error {
	there := map[string]int{"edge": f.pops * f.edges, "memcached": f.pops * f.nodes}
	n, known := there[fault.Kind]
	switch {
	case !known:
		return usagef("--fault %q: in virtual time there are edges and memcached nodes", fault)
	case fault.Kind == "edge" && f.nodes == 0:
		return usagef("--fault %q: an only edge; give --memcached or more --edges", fault)
	case fault.Index >= n:
		return usagef("--fault %q: there is no %s; of this kind there are %d", fault, fault.Target(), n)
	case fault.Kind == "edge" && (fault.Action == loadgen.Stop || fault.Action == loadgen.Cont):
		return usagef("--fault %q: an edge in virtual time can be killed, ended (term) and restarted", fault)
	}
	return nil
}

func cmdSimulate(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("simulate", pflag.ContinueOnError)
	trace, rule, size, out := addTrace(flags), addRule(flags), addPoP(flags), addOutput(flags)
	scale := flags.Int("scale", 1, "of --workload published-bursty and published-poisson (400 million requests of 270,000 sources):\none part in so many")
	if err := parse(flags, args, false); err != nil {
		return err
	}
	if err := size.check(); err != nil {
		return err
	}
	mode, err := loadgen.ParseMode(rule.mode)
	if err != nil {
		return usagef("--%v", err)
	}
	rules, err := rule.rules()
	if err != nil {
		return err
	}
	if trace.workload == loadgen.PublishedBursty || trace.workload == loadgen.PublishedPoisson {
		if len(rule.limits) != 1 || size.edges != 1 || size.nodes != 0 || mode != loadgen.Estimator || *scale < 1 || len(trace.files) > 0 {
			return usagef("--workload %s is for --mode estimator, one --limit, one edge, no --trace and a --scale of at least 1", trace.workload)
		}
		reports, err := simulatePublished(ctx, trace.workload, *scale, trace.seed, rules)
		if err != nil {
			return err
		}
		return out.write(os.Stdout, reports...)
	}
	var reports []*loadgen.Report
	for _, r := range rules {
		t, err := trace.load(r.Counter.Limit, r.Counter.Window, size.edges)
		if err != nil {
			return err
		}
		report, err := simulate(ctx, t, mode, r, size)
		if err != nil {
			return err
		}
		reports = append(reports, report)
	}
	return out.write(os.Stdout, reports...)
}

// simulate runs one rule over a trace: the two-counter baseline, the formula with perfect knowledge, and, where there is more than
// one edge or a fault, the PoP.
func simulate(ctx context.Context, t *loadgen.Trace, mode loadgen.Mode, rule pop.Rule, size *popFlags) (*loadgen.Report, error) {
	o := loadgen.JudgeOptions{Limit: rule.Counter.Limit, Window: rule.Counter.Window, Timeout: rule.Timeout}
	began := time.Now()
	base, worst := loadgen.Baseline(t, mode, o)
	o.Watch = worst
	v := loadgen.VirtualOptions{Edges: size.edges, PerConnection: size.perConnection, Seed: t.Seed}

	report := &loadgen.Report{Baseline: &base}
	report.Run.Describe(t)
	report.SetNames(t)
	report.Run.Command = "simulate"
	report.Run.Limit, report.Run.Window = rule.Counter.Limit, loadgen.Seconds(rule.Counter.Window)
	report.Run.SubWindows, report.Run.Estimate = rule.Counter.SubWindows, rule.Counter.Estimate.String()
	report.Run.MitigationTimeout = loadgen.Seconds(rule.Timeout)
	report.Run.Mode = mode.String()
	report.Run.Edges, report.Run.Nodes = size.edges, size.nodes
	report.Run.RoundTrip, report.Run.Skew = loadgen.Seconds(size.rtt), loadgen.Seconds(size.skew)
	report.Run.PerConnection = size.perConnection
	report.Run.Faults = append(slices.Clone(size.faults), flapLines(size.flaps)...)
	if size.pops > 1 {
		report.Run.PoPs = size.pops
	}

	if !size.quiet {
		bar := progress(len(t.Requests), fmt.Sprintf("limit %d, %s", rule.Counter.Limit, rule.Counter.Estimate))
		defer bar.Finish()
		v.Progress = func(done int) { bar.Set(done) }
	}

	o.Bound = boundOf(t, rule, &popFlags{edges: 1})
	alone := v
	alone.Edges = 1
	started := time.Now()
	formula, err := loadgen.Simulate(ctx, t, mode, o, alone, newSolo(t, mode, rule).limiter())
	if err != nil {
		return nil, err
	}
	formula.DecisionsASecond = float64(len(t.Requests)) / time.Since(started).Seconds()
	report.Figures = formula
	if size.nodes > 0 {
		o.Bound = boundOf(t, rule, size)
		pop := func(undisturbed bool) (*loadgen.Figures, error) {
			site, err := newVirtualSite(t, mode, rule, size, undisturbed)
			if err != nil {
				return nil, err
			}
			o.Ideal = newSolo(t, loadgen.Deployed, rule).ideal
			started := time.Now()
			f, err := loadgen.Simulate(ctx, t, mode, o, site.options(v), site.limiter())
			if err = cmp.Or(err, site.err); err != nil {
				return nil, err
			}
			f.DecisionsASecond = float64(len(t.Requests)) / time.Since(started).Seconds()
			f.SetTierOps(site.commands())
			return &f, nil
		}
		delay, err := pop(true)
		if err != nil {
			return nil, err
		}
		var faults *loadgen.Figures
		report.Figures = *delay
		if len(size.troubles)+len(size.routes) > 0 {
			if faults, err = pop(false); err != nil {
				return nil, err
			}
			report.Figures = *faults
		}
		split := loadgen.NewSplit(&formula, delay, faults)
		report.Split = &split
	}
	report.Run.Took = loadgen.Seconds(time.Since(began))
	return report, nil
}

func progress(total int, what string) *progressbar.ProgressBar {
	return progressbar.NewOptions(total, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("req"),
		progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish())
}

// sourceKey makes the i-th source of a trace one of the limiter's, in a network of its own: traces may hold several sources of
// one address.
func sourceKey(i int32) counter.Source {
	var b [16]byte
	b[0], b[1] = 0xfd, 0x51
	binary.BigEndian.PutUint32(b[4:], uint32(i))
	return counter.SourceOf(netip.AddrFrom16(b), 32, 64)
}

func sourceIndex(s counter.Source) int32 {
	p, _ := s.Prefix()
	b := p.Addr().As16()
	return int32(binary.BigEndian.Uint32(b[4:]))
}

// epoch is when a workload begins, which has no time of its own.
var epoch = time.Unix(1_700_000_000, 0)

func startOf(t *loadgen.Trace) time.Time {
	if t.Start.IsZero() {
		return epoch
	}
	return t.Start
}

// simSecret places windows and sources the same in every run.
var simSecret = pop.SecretOf([]byte("simulation"))

// solo is one edge with perfect knowledge: the tables alone.
type solo struct {
	rule     pop.Rule
	mode     loadgen.Mode
	counters *counter.Table
	bits     *mitigation.Table
	start    time.Time
	now      time.Time
	sources  []counter.Source
	asks     [1]counter.Ask
	news     []loadgen.InForce
}

func newSolo(t *loadgen.Trace, mode loadgen.Mode, rule pop.Rule) *solo {
	s := &solo{
		rule: rule, mode: mode, start: startOf(t),
		counters: counter.New(counter.Options{Counters: roomFor(t), Phase: simSecret.Phase}),
		bits:     mitigation.New(roomFor(t), nil),
		sources:  sourceKeys(t),
	}
	s.now = s.start
	return s
}

// roomFor is a table in which no source of the trace is ever in another's way, so that every run gives the same: one counter in 64 may
// have fine bins. It is no larger than an edge's.
func roomFor(t *loadgen.Trace) int { return min(64*len(t.Sources)+1000, 1_000_000) }

func sourceKeys(t *loadgen.Trace) []counter.Source {
	keys := make([]counter.Source, len(t.Sources))
	for i := range keys {
		keys[i] = sourceKey(int32(i))
	}
	return keys
}

func (s *solo) limiter() loadgen.Limiter {
	return loadgen.Limiter{
		Advance: func(at time.Duration) { s.now = s.start.Add(at) },
		Decide:  s.decide,
		News: func() []loadgen.InForce {
			news := s.news
			s.news = s.news[:0]
			return news
		},
	}
}

func (s *solo) decide(_ int, source int32) loadgen.Decision {
	s.asks[0] = counter.Ask{Rule: s.rule.Counter, Source: s.sources[source], Hits: 1, Always: s.mode == loadgen.Estimator}
	if s.mode == loadgen.Estimator {
		s.counters.Reserve(s.asks[:], s.now)
		return loadgen.Decision{Over: s.asks[0].Over, Estimate: s.asks[0].Estimate}
	}
	key := mitigation.Key{Rule: s.rule.Counter.ID, Source: s.asks[0].Source}
	if until := s.bits.Until(key, s.now); !until.IsZero() {
		return loadgen.Decision{Verdict: loadgen.Mitigated, Estimate: math.NaN(), Until: until.Sub(s.start)}
	}
	admitted := s.counters.Reserve(s.asks[:], s.now)
	d := loadgen.Decision{Estimate: s.asks[0].Estimate, Over: s.asks[0].Over}
	if !admitted {
		d.Verdict = loadgen.Limited
	}
	if end := mitigation.End(s.asks[0].Verdict, s.rule.Timeout, s.now); !end.IsZero() {
		s.bits.Start(key, mitigation.Bit{Start: s.now, End: end, By: mitigation.ByEdge}, s.now)
		d.Until = end.Sub(s.start)
		s.news = append(s.news, loadgen.InForce{Source: source, Start: s.now.Sub(s.start), At: s.now.Sub(s.start), Until: d.Until})
	}
	return d
}

// ideal is the formula with perfect knowledge of what the judged limiter counts: it says when a source crosses its limit.
func (s *solo) ideal(source int32, at time.Duration, counted bool) bool {
	now := s.start.Add(at)
	s.asks[0] = counter.Ask{Rule: s.rule.Counter, Source: s.sources[source], Hits: 1, Always: counted, Hold: !counted}
	s.counters.Reserve(s.asks[:], now)
	s.counters.Cancel(&s.asks[0])
	return s.asks[0].Over
}

// virtualPoP is a whole PoP.
type virtualPoP struct {
	world   *poptest.World
	rule    pop.Rule
	mode    loadgen.Mode
	start   time.Time
	sources []counter.Source
	ask     [1]counter.Ask
	news    []loadgen.InForce
	first   int // number of its first edge among those of all PoPs
}

func newVirtualPoP(t *loadgen.Trace, mode loadgen.Mode, rule pop.Rule, size *popFlags) (*virtualPoP, error) {
	start := startOf(t)
	if mode == loadgen.Estimator {
		rule.Timeout = 0 // nobody is blocked, by no edge and not by the PoP
	}
	w, err := poptest.NewWorld(poptest.WorldConfig{
		Edges: size.edges, Nodes: size.nodes, RTT: size.rtt, Counters: roomFor(t), Secret: simSecret,
		Skew: func(edge int) time.Duration { // spread evenly over the whole of it
			return size.skew * time.Duration(edge) / time.Duration(max(size.edges-1, 1))
		},
	}, []pop.Rule{rule}, start)
	if err != nil {
		return nil, err
	}
	v := &virtualPoP{world: w, rule: rule, mode: mode, start: start, sources: sourceKeys(t)}
	for i, e := range w.Edges {
		e.Bits.Observe = func(k mitigation.Key, b mitigation.Bit) {
			v.news = append(v.news, loadgen.InForce{
				Source: sourceIndex(k.Source), Edge: int16(v.first + i), Start: b.Start.Sub(start), At: w.Now().Sub(start), Until: b.End.Sub(start),
				Total: b.By == mitigation.ByPoP,
			})
		}
	}
	return v, nil
}

func (v *virtualPoP) limiter() loadgen.Limiter {
	return loadgen.Limiter{
		Advance: func(at time.Duration) { v.world.Run(v.start.Add(at)) },
		Decide:  v.decide,
		News: func() []loadgen.InForce {
			news := v.news
			v.news = v.news[:0]
			return news
		},
	}
}

func (v *virtualPoP) decide(edge int, source int32) loadgen.Decision {
	v.ask[0] = counter.Ask{Rule: v.rule.Counter, Source: v.sources[source], Hits: 1, Always: v.mode == loadgen.Estimator}
	until, admitted := v.world.Edges[edge].Decide(v.rule, &v.ask)
	d := loadgen.Decision{Estimate: v.ask[0].Estimate, Over: v.ask[0].Over}
	switch {
	case !until.IsZero():
		d.Verdict, d.Estimate, d.Until = loadgen.Mitigated, math.NaN(), until.Sub(v.start)
	case !admitted && v.mode == loadgen.Deployed:
		d.Verdict = loadgen.Limited
		if end := mitigation.End(v.ask[0].Verdict, v.rule.Timeout, v.world.Now()); !end.IsZero() {
			d.Until = end.Sub(v.start)
		}
	}
	return d
}
