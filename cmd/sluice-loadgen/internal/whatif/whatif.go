// Package whatif is the subcommand what-if: the rules of a configuration, or one of the command
// line, judge the requests of a log as an edge would have, each rule once more at other limits.
package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/virtual"
	"sluice/cmd/sluice-loadgen/internal/dryrun"
	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/config"
	"sluice/edge/rules"
	"sluice/loadgen/judge"
	"sluice/loadgen/report"
	"sluice/loadgen/trace"
	"sluice/loadgen/whatif"
	"sluice/mitigation"
)

// askFlags say which rules are asked about.
type askFlags struct {
	set *pflag.FlagSet

	config          string
	limit           uint32
	window, timeout time.Duration
	subWindows      int
	estimate        string
	good, curves    []string
	source          string
	top             int
	plan            string
	algorithm       string
	burst           uint32
	host            string

	limitless []rules.Config // rules of the file that have no limit, which are not asked
}

func addFlags(flags *pflag.FlagSet) *askFlags {
	f := &askFlags{set: flags}
	flags.StringVar(&f.config, "config", "",
		"rules of this `FILE`, a configuration of the edge; its source, allow and deny count, too")
	flags.Uint32Var(&f.limit, "limit", 100,
		"requests allowed in a window, where no file gives rules")
	flags.DurationVar(&f.window, "window", time.Minute,
		"`LENGTH` of the sliding window, where no file gives rules")
	flags.DurationVar(&f.timeout, "mitigation-timeout", time.Minute,
		"how `LONG` a source that went over is refused; 0 throttles; where no file gives rules")
	flags.IntVar(&f.subWindows, "sub-windows", 12,
		"1 (two plain counters), 2, 4, 8 or 12, where no file gives rules")
	flags.StringVar(&f.estimate, "estimate", "nearest",
		"nearest or lower, for rules that do not say")
	cli.AddAlgorithm(flags, &f.algorithm, &f.burst)
	flags.StringSliceVar(&f.good, "good", nil,
		"`WHO,...` should never be refused, as addresses or prefixes, or as answered=95%: sources to whom the origin\nanswered at least so much with 2xx or 3xx. What each limit would lose of them")
	flags.StringVar(&f.source, "source", "",
		"the story of one source, by its `ADDRESS`, instead of a report of all")
	flags.StringSliceVar(&f.curves, "curve", nil,
		"`RULE,...` to try at other limits, each alone; without, the rule if there is only one")
	flags.StringVar(&f.plan, "plan", "",
		"judge all as if on this `PLAN`; without, as on the file's plans.default. No store of plans is read")
	flags.StringVar(&f.host, "host", "",
		"`NAME` that was asked where a log does not say, for rules about hosts")
	flags.IntVar(&f.top, "top", 20, "how many refused sources to show")
	return f
}

// Command shows what rules would have done to a log.
func Command(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("what-if", pflag.ContinueOnError)
	trace, ask, out := cli.AddTrace(flags), addFlags(flags), cli.AddOutput(flags)
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if trace.Fold {
		return cli.Usagef("--fold: rules know sources by their addresses, so days cannot be laid onto each other")
	}
	if ask.top < 1 {
		return cli.Usagef("--top %d: want at least 1", ask.top)
	}
	good, answered, err := ask.called()
	if err != nil {
		return err
	}
	var source netip.Addr
	if ask.source != "" {
		if source, err = netip.ParseAddr(ask.source); err != nil {
			return cli.Usagef("--source %s: want an address such as 192.0.2.7", ask.source)
		}
	}
	asked, err := ask.load()
	if err != nil {
		return err
	}
	curves, err := ask.curved(asked)
	if err != nil {
		return err
	}
	if source.IsValid() {
		curves = nil
	}
	trace.Agents = true
	if len(trace.Trust) == 0 && len(trace.Files) > 0 {
		for _, p := range asked.Source.Trust {
			trace.Trust = append(trace.Trust, p.String())
		}
	}
	first := asked.Rules[0] // what a workload plays against
	t, err := trace.Load(first.Limit, time.Duration(first.Window), 1)
	if err != nil {
		return err
	}
	began := time.Now()
	if ask.host != "" {
		for i := range t.Requests {
			t.Requests[i].Host = cmp.Or(t.Requests[i].Host, ask.host)
		}
	}
	logged := loggedOf(t)
	passes := 1
	for _, r := range curves {
		passes += len(whatif.LimitsAround(asked.Rules[r].Limit, algorithm.MaxLimit))
	}
	bar, pass := cli.Progress(passes*len(t.Requests), "as it is"), 0
	defer bar.Finish()
	run := func(c *config.Config, top int) (*whatif.Report, error) {
		o, err := dryRun(t, c, logged)
		if err != nil {
			return nil, err
		}
		o.Good, o.Answered, o.Top, o.Characters = good, answered, top, pass == 0
		if pass == 0 {
			o.Source = source
		}
		base := pass * len(t.Requests)
		o.Progress = func(done int) { bar.Set(base + done) }
		pass++
		return whatif.Run(ctx, t, o)
	}
	found, err := run(asked, ask.top)
	if err != nil {
		return err
	}
	for _, r := range curves {
		curve, err := drawCurve(asked, asked.Rules[r], func(c *config.Config,
			limit uint32) (*whatif.Report, error) {
			bar.Describe(fmt.Sprintf("%s at %d", asked.Rules[r].Name, limit))
			return run(c, 1)
		})
		if err != nil {
			return err
		}
		found.Curves = append(found.Curves, curve)
	}
	bar.Finish()
	found.Run.Command = "what-if"
	found.Run.Describe(t)
	found.Run.Mode, found.Run.Edges = judge.Deployed.String(), 1
	if r := first; len(asked.Rules) == 1 {
		found.Run.Limit, found.Run.Window, found.Run.SubWindows = r.Limit, report.Seconds(r.Window),
			r.SubWindows
		found.Run.MitigationTimeout, found.Run.Estimate = report.Seconds(r.MitigationTimeout),
			asked.Estimate.String()
		if r.Estimate != nil {
			found.Run.Estimate = r.Estimate.String()
		}
	}
	found.Run.Notes = append(notes(t, asked, logged, found.Forgotten),
		sheddingNotes(asked, ask.limitless)...)
	found.Run.Took = report.Seconds(time.Since(began))
	if err := whatif.WriteText(os.Stdout, found); err != nil {
		return err
	}
	if err := cli.ToFile(out.JSON, func(w io.Writer) error {
		return whatif.WriteJSON(w, found)
	}); err != nil {
		return err
	}
	return cli.ToFile(out.HTML, func(w io.Writer) error { return whatif.WriteHTML(w, found) })
}

// called reads --good: addresses, and the share of good answers that makes a source good.
func (f *askFlags) called() (list []netip.Prefix, answered float64, err error) {
	for _, text := range f.good {
		if share, is := strings.CutPrefix(text, "answered="); is {
			v, err := strconv.ParseFloat(strings.TrimSuffix(share, "%"), 64)
			if err != nil || !strings.HasSuffix(share, "%") || v <= 0 || v > 100 {
				return nil, 0, cli.Usagef("--good %s: want a share such as answered=95%%", text)
			}
			answered = v / 100
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return nil, 0,
					cli.Usagef("--good %s: want an address such as 192.0.2.7, a prefix such as 192.0.2.0/24, or a share of good answers such as answered=95%%", text)
			}
			a = a.Unmap()
			p = netip.PrefixFrom(a, a.BitLen())
		}
		list = append(list, p.Masked())
	}
	return list, answered, nil
}

// load puts file and flags together: what the edge would have in force. There is at least one rule
// that is not off.
func (f *askFlags) load() (*config.Config, error) {
	c := config.Default()
	if f.config != "" {
		text, err := os.ReadFile(f.config)
		if err != nil {
			var path *os.PathError
			if errors.As(err, &path) {
				err = path.Err
			}
			return nil, fmt.Errorf("--config %s: cannot be read: %w", f.config, err)
		}
		p := config.Parser{Env: os.LookupEnv, Modules: dryrun.Modules().Config(), Missing: dryrun.Missing,
			Others: true}
		if c, err = p.Parse(f.config, text); err != nil {
			first, rest, more := strings.Cut(err.Error(), "\n")
			if more {
				return nil, fmt.Errorf("%s (and %d more: sluice check %s shows all)", first,
					1+strings.Count(rest, "\n"), f.config)
			}
			return nil, err
		}
	}
	e, err := algorithm.ParseEstimate(f.estimate)
	if err != nil {
		return nil, cli.Usagef("--estimate %s: want nearest or lower", f.estimate)
	}
	if f.set.Changed("estimate") || f.config == "" {
		c.Estimate = e
	}
	if len(c.Rules) > 0 {
		for _, name := range []string{"limit", "window", "mitigation-timeout", "sub-windows",
			"algorithm", "burst"} {
			if f.set.Changed(name) {
				return nil,
					cli.Usagef("--%s: %s gives rules, so there is no rule to set: remove the flag, or change the file", name, f.config)
			}
		}
		if !slices.ContainsFunc(c.Rules, func(r rules.Config) bool { return r.Mode != rules.Off }) {
			return nil, fmt.Errorf("%s: every rule is off: there is nothing to ask about", f.config)
		}
		c.Rules = slices.DeleteFunc(c.Rules,
			func(r rules.Config) bool { return r.Mode == rules.Off })
		if !slices.ContainsFunc(c.Rules, func(r rules.Config) bool { return r.Limit > 0 }) {
			return nil,
				fmt.Errorf("%s: no rule has a limit: who is shed follows from how fast an origin answers, and how many are in flight from how long requests take, and a log shows neither: there is nothing to ask about", f.config)
		}
		c.Rules = slices.DeleteFunc(c.Rules, func(r rules.Config) bool {
			if r.Limit == 0 {
				f.limitless = append(f.limitless, r)
			}
			return r.Limit == 0
		})
		return c, f.onPlan(c)
	}
	if f.plan != "" {
		return nil,
			cli.Usagef("--plan %s: only rules of a file have plans: give --config FILE, or the limit of the plan with --limit", f.plan)
	}
	if f.timeout < 0 || f.timeout > mitigation.MaxTimeout {
		return nil, cli.Usagef("--mitigation-timeout %v: want 0 to %v", f.timeout,
			mitigation.MaxTimeout)
	}
	if _, err := algorithm.NewSliding("default", f.limit, f.window, f.subWindows, e); err != nil {
		return nil, cli.Usagef("--%s", strings.Replace(err.Error(), "sub_windows", "sub-windows",
			1))
	}
	r := rules.Default("default", f.limit)
	if f.algorithm != string(rules.Sliding) {
		r.Estimate = &e
	}
	r.Window, r.MitigationTimeout, r.SubWindows = rules.Duration(f.window),
		rules.Duration(f.timeout), f.subWindows
	r.Algorithm, r.Burst = rules.Algorithm(f.algorithm), f.burst
	if !slices.Contains(rules.Algorithms, r.Algorithm) {
		return nil, cli.Usagef("--algorithm %s: want one of %v", f.algorithm, rules.Algorithms)
	}
	if field, err := r.CheckAlgorithm(); err != nil {
		return nil, cli.Usagef("--%s: %v", strings.ReplaceAll(field, "_", "-"), err)
	}
	c.Rules = []rules.Config{r}
	return c, nil
}

// onPlan puts everybody on one plan: its limits become those of the rules.
func (f *askFlags) onPlan(c *config.Config) error {
	if f.plan != "" {
		known := slices.ContainsFunc(c.Rules, func(r rules.Config) bool {
			_, limit := r.Plans[f.plan]
			return limit || slices.Contains(r.Match.Plans, f.plan) || r.Match.Not != nil &&
				slices.Contains(r.Match.Not.Plans, f.plan)
		})
		if !known && f.plan != c.Plans.Default {
			return cli.Usagef("--plan %s: no rule of %s knows that plan", f.plan, f.config)
		}
		c.Plans.Default = f.plan
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		if l, named := r.Plans[c.Plans.Default]; named {
			r.Limit = l.Limit
		}
	}
	return nil
}

// dryRun has one edge with the configuration judge a trace, as loadgen wants it.
func dryRun(t *trace.Trace, c *config.Config, logged *logged) (whatif.Options, error) {
	var o whatif.Options
	counters, bits := virtual.Tables(roomFor(t, c), virtual.Secret.Phase)
	r, err := dryrun.New(c, counters, bits)
	if err != nil {
		return o, err
	}
	limits := r.Limits()
	for _, rule := range c.Rules {
		for range rule.Limits() {
			l := limits[len(o.Rules)]
			o.Rules = append(o.Rules, whatif.JudgedRule{
				Name: l.Policy, About: about(rule, c.Modules), Limit: l.Counter.Limit,
				Window:  l.Counter.Window,
				Timeout: time.Duration(rule.MitigationTimeout), Shadow: c.Shadow ||
					rule.Mode == rules.Shadow || rule.Action == rules.Tag,
				Challenges: rule.Action == dryrun.Challenge,
				Truth:      virtual.TruthOf(t, l.Counter), Units: rule.Cost.Units,
				Lacks: logged.lacks(&rule),
			})
		}
	}
	start := virtual.StartOf(t)
	numbers := make([]map[counter.Source]int32, len(limits))
	for i := range numbers {
		numbers[i] = make(map[counter.Source]int32)
	}
	var cases []whatif.RuleResult
	o.Forgotten = func() uint64 { return counters.Stats().Evicted }
	o.DryRun = func(i int) whatif.Outcome {
		q := &t.Requests[i]
		method, target := q.Line()
		said := r.Judge(dryrun.Request{Addr: t.Addr(i), Method: method, Host: q.Host,
			Target: target, Status: int(q.Status), Agent: t.Agent(i)}, start.Add(q.At))
		cases = cases[:0]
		for _, k := range said.Cases {
			n, there := numbers[k.Limit][k.Source]
			if !there {
				n = int32(len(numbers[k.Limit]))
				numbers[k.Limit][k.Source] = n
			}
			cases = append(cases, whatif.RuleResult{Rule: k.Limit, Counter: n, Refuses: k.Refuses,
				Begins: k.Over, Counts: k.Counts, Delay: k.Delay})
		}
		return whatif.Outcome{Denied: said.Denied, Malformed: said.Malformed, Allowed: said.Allowed,
			Refused: said.Refused, Challenged: said.Challenged, Results: cases}
	}
	return o, nil
}

// roomFor is a table with room for each source under each limit, or, where a rule distinguishes
// more than sources, for each request: no larger for a limit than an edge's default table.
func roomFor(t *trace.Trace, c *config.Config) (room int) {
	bySource := virtual.RoomFor(t)
	byRequest := max(bySource, min(64*len(t.Requests)+1000, 1_000_000))
	spread := slices.ContainsFunc(t.Sources, func(s trace.Source) bool { return s.Spread > 1 })
	for i := range c.Rules {
		r := &c.Rules[i]
		if finer := spread || slices.ContainsFunc(r.Key, func(part string) bool {
			return part != "source" && part != "global"
		}); finer {
			room += r.Limits() * byRequest
		} else {
			room += r.Limits() * bySource
		}
	}
	return min(room, 20_000_000)
}

// about says in a few words which requests a rule is about and how it counts them; nothing for a
// rule about all.
func about(r rules.Config, modules []config.Module) string {
	var parts []string
	if len(r.Match.Methods) > 0 {
		parts = append(parts, strings.Join(r.Match.Methods, ", "))
	}
	if r.Match.Path != "" {
		parts = append(parts, r.Match.Path)
	}
	if len(r.Match.Hosts) > 0 && !slices.Contains(r.Match.Hosts, "*") {
		parts = append(parts, "on "+strings.Join(r.Match.Hosts, ", "))
	}
	parts = append(parts, r.Match.Others(config.Facts(modules)...)...)
	if len(r.Count.Statuses) > 0 {
		statuses := make([]string, len(r.Count.Statuses))
		for i, s := range r.Count.Statuses {
			statuses[i] = fmt.Sprint(s)
		}
		parts = append(parts, "answered with "+strings.Join(statuses, ", "))
	}
	if r.Count.Refused {
		parts = append(parts, "refused ones count, too")
	}
	if r.Cost.Is() {
		parts = append(parts, "at a cost of "+r.Cost.String())
	}
	if !slices.Equal(r.Key, []string{"source"}) {
		parts = append(parts, "by "+strings.Join(r.Key, " and "))
	}
	if len(r.Escalate) > 0 {
		parts = append(parts, "repeaters blocked for "+strings.Trim(fmt.Sprint(r.Escalate), "[]"))
	}
	switch r.Algorithm {
	case rules.TokenBucket, rules.LeakyBucket:
		parts = append(parts, fmt.Sprintf("(algorithm %s, burst %d)", r.Algorithm, r.Burst))
	case rules.Fixed, rules.Exact:
		parts = append(parts, fmt.Sprintf("(algorithm %s)", r.Algorithm))
	}
	return strings.Join(parts, " ")
}
