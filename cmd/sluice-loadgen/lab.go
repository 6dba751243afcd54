package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice-loadgen/internal/cli"
	"sluice/counter"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/page"
	"sluice/loadgen/replay"
	"sluice/loadgen/report"
	"sluice/pop"
	"sluice/pop/anycast"
	"sluice/pop/secret"
)

// labFlags say what a lab consists of and what happens to it.
type labFlags struct {
	pops, edges, nodes int
	twemproxy          bool
	sluice             string
	posture            string
	faults, flaps      []string
	routes             []anycast.Route // what flaps say
	check              string
	times              int
	short, demo        bool
	peers              bool
}

func addLab(flags *pflag.FlagSet) *labFlags {
	f := new(labFlags)
	flags.IntVar(&f.pops, "pops", 1, "points of presence; sources belong to one by their routed prefix")
	flags.IntVar(&f.edges, "edges", 3, "edges of each")
	flags.IntVar(&f.nodes, "memcached", 2, "memcached nodes of each; 0: every edge counts alone")
	flags.BoolVar(&f.twemproxy, "twemproxy", false, "put a nutcracker between the edges and the nodes")
	flags.StringVar(&f.sluice, "sluice", "", "`PATH` of the edge's executable; none: sluice beside this one")
	flags.StringVar(&f.posture, "on-store-failure", "local", "of the rule: local, open or closed")
	flags.StringArrayVar(&f.faults, "fault", nil, `what happens when, such as "20s kill memcached/0"; also term, stop, cont, restart, of edge/N,`+"\n"+
		"memcached/N, twemproxy/N and origin/0; in the time of the run; repeatable")
	flags.StringArrayVar(&f.flaps, "flap", nil, `from when on a prefix reaches another PoP, such as "20s 198.51.100.0/24 1"; repeatable`)
	flags.StringVar(&f.check, "check", "", "instead of replaying a trace, check one thing: "+oneOf(checkNames()))
	flags.BoolVar(&f.short, "short", false, "with --check slow, bodies, words or shedding: a small form, of seconds; with shared: asks the other edges after 10s, not 500ms")
	flags.IntVar(&f.times, "times", 20, "how often --check upgrades and --check restarts restart an edge, under 2,000 requests/s or --rate;\n"+
		"and how many rounds --check soak makes, of a minute or --duration each, a fault in each")
	flags.BoolVar(&f.demo, "demo", false, "a mixed attack of 25 s and an HTML report, with what is installed here")
	flags.BoolVar(&f.peers, "peers", false, "PoPs tell each other whom they block (pop.peers)")
	return f
}

// cmdLab starts PoPs, replays, reports and stops all, a run for each limit and estimate.
func cmdLab(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("lab", pflag.ContinueOnError)
	f, traffic, rule, send, output := addLab(flags), cli.AddTrace(flags), cli.AddRule(flags), addSend(flags), cli.AddOutput(flags)
	output.AddDetails(flags)
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if err := rule.OnlySliding("lab"); err != nil {
		return err
	}
	if f.demo {
		if err := f.demonstrate(flags); err != nil {
			return err
		}
	}
	if err := f.complete(); err != nil {
		return err
	}
	if err := send.check(); err != nil {
		return err
	}
	mode, rules, err := rule.Rules()
	if err != nil {
		return err
	}
	faults, err := cli.ParseFaults(f.faults)
	if err != nil {
		return err
	}
	if f.check != "" {
		if len(rules) != 1 {
			return cli.Usagef("--check %s: one --limit and one --estimate", f.check)
		}
		return f.runCheck(ctx, rules[0], send, traffic)
	}

	var reports []*report.Report
	var unsound error
	for _, r := range rules {
		l := &live{command: "lab", mode: mode, rule: r, send: send, edges: slices.Repeat([]int{f.edges}, f.pops), nodes: f.nodes}
		if l.affinity, err = anycast.New(f.pops, f.routes); err != nil {
			return err
		}
		if f.nodes > 0 {
			l.phase = secret.Of([]byte(labSecret)).Phase
		}
		if l.trace, err = send.trace(traffic, r, f.edges); err != nil {
			return err
		}
		report, err := f.run(ctx, l, traffic.Seed, faults)
		if report == nil {
			return err
		}
		unsound = errors.Join(unsound, err)
		reports = append(reports, report)
	}
	if err := output.Write(os.Stdout, reports...); err != nil {
		return err
	}
	for _, name := range []string{output.JSON, output.HTML} {
		if name != "" {
			fmt.Fprintf(os.Stderr, "report written to %s\n", name)
		}
	}
	return unsound
}

// labSecret keys the PoPs of a lab, so that windows begin and sources are placed the same in every run.
const labSecret = "a secret that everybody knows, for labs alone"

func (f *labFlags) complete() error {
	switch {
	case f.pops < 1 || f.pops > 64:
		return cli.Usagef("--pops %d: want 1 to 64", f.pops)
	case f.edges < 1 || f.edges > counter.MaxEdges:
		return cli.Usagef("--edges %d: want 1 to %d", f.edges, counter.MaxEdges)
	case f.pops*f.edges > counter.MaxEdges:
		return cli.Usagef("--pops %d, --edges %d: at most %d edges in all", f.pops, f.edges, counter.MaxEdges)
	case f.peers && (f.pops < 2 || f.pops > 16 || f.nodes == 0):
		return cli.Usagef("--peers: PoPs tell each other whom they block: give --pops 2 to 16, and --memcached")
	case f.nodes < 0 || f.nodes > 64:
		return cli.Usagef("--memcached %d: want 0 to 64", f.nodes)
	case !slices.Contains([]string{"local", "open", "closed"}, f.posture):
		return cli.Usagef("--on-store-failure %s: want local, open or closed", f.posture)
	}
	var err error
	if f.routes, err = cli.ParseFlaps(f.flaps, f.pops); err != nil {
		return err
	}
	return cli.Beside(&f.sluice, "sluice")
}

// lab is the site for a rule.
func (f *labFlags) lab(rule pop.Rule, mode judge.Mode, carrier replay.Carrier) (lab.Lab, error) {
	self, err := os.Executable()
	if err != nil {
		return lab.Lab{}, err
	}
	return lab.Lab{
		PoPs: f.pops, Edges: f.edges, Memcached: f.nodes, Twemproxy: f.twemproxy,
		Sluice: f.sluice, Origin: []string{self, "origin"}, Secret: labSecret, Carrier: carrier,
		Rule: lab.Rule{
			Limit: rule.Counter.Limit, Window: rule.Counter.Window, MitigationTimeout: rule.Timeout,
			SubWindows: rule.Counter.SubWindows, Estimate: rule.Counter.Estimate.String(), OnStoreFailure: f.posture, Mode: mode,
		},
		Log: logLine, Peers: f.peers,
	}, nil
}

// run makes one run. A report comes with an error where the run can be judged but was not sound.
func (f *labFlags) run(ctx context.Context, l *live, seed uint64, faults []lab.Fault) (*report.Report, error) {
	lab, err := f.lab(l.rule, l.mode, l.send.carrier)
	if err != nil {
		return nil, err
	}
	site, err := lab.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer site.Stop()
	m := newMeter("lab", len(l.trace.Requests))
	out, err := site.Run(ctx, replay.Replay{
		Affinity: l.affinity.PoP, PerConnection: l.send.perConnection, Seed: seed, Progress: m.show,
	}, l.trace, faults)
	m.done()
	if err != nil {
		return nil, err
	}
	l.roundTrip = out.RoundTrip
	report := l.judge(out.Outcome, out.InForce)
	report.Figures.SetTierOps(out.Ops())
	report.Run.Faults = append(out.Happened, cli.FlapLines(f.flaps)...)
	if f.peers {
		report.Run.Faults = append(report.Run.Faults, "PoPs tell each other whom they block")
	}
	d := report.Run.Details
	d.Line = labLine(out)
	d.Lines = append(d.Lines, labLines(out)...)
	d.Open = d.Open || out.Err() != nil
	return report, out.Err()
}

// labLine says in one line whether everybody counted alike.
func labLine(out *lab.Outcome) string {
	line := "balance exact, "
	if out.Balance.Err() != nil {
		line = "balance OFF, "
	}
	if n := out.Ops(); n > 0 {
		line += page.Plural(int(n), "tier command") + ", "
	}
	return line + clientErrors(out.Outcome)
}

// labLines is what was seen from inside.
func labLines(out *lab.Outcome) []string {
	var notes []string
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(out.TierOps)) {
		if n := out.TierOps[kind]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %.0f", kind, math.Round(n)))
		}
	}
	if len(kinds) > 0 {
		notes = append(notes, "tier commands by the edges: "+strings.Join(kinds, ", "))
	}
	for _, n := range out.Nodes {
		line := n.Name + " counted: "
		if n.Err != nil {
			line += "it does not answer (" + n.Err.Error() + ")"
		} else {
			line += fmt.Sprintf("get %d, set and add %d, incr %d, evicted %d, items now %d", n.Stats["cmd_get"], n.Stats["cmd_set"],
				n.Stats.Increments(), n.Stats["evictions"], n.Stats["curr_items"])
		}
		notes = append(notes, line)
	}
	for _, r := range out.Balance.Rows {
		notes = append(notes, "balance: "+r.String())
	}
	for _, n := range out.Balance.Notes {
		notes = append(notes, "balance: "+n)
	}
	return notes
}

// demonstrate sets what the command line left open to a mixed attack of 25 s on what can be had here: two memcached nodes
// and three edges, or, without a memcached, one edge that counts alone.
func (f *labFlags) demonstrate(flags *pflag.FlagSet) error {
	settings := [][2]string{
		{"workload", "mixed"}, {"duration", "25s"}, {"limit", "60"}, {"window", "5s"}, {"mitigation-timeout", "5s"},
		{"html", "report.html"}, {"edges", "3"}, {"memcached", "2"},
	}
	if _, err := exec.LookPath("memcached"); err != nil && !flags.Changed("memcached") {
		fmt.Fprintln(os.Stderr, "there is no memcached on the PATH: one edge with the embedded tier instead of three that share two nodes")
		settings = append(settings[:len(settings)-2], [][2]string{{"edges", "1"}, {"memcached", "0"}}...)
	}
	for _, s := range settings {
		if s[0] == "workload" && flags.Changed("trace") || flags.Changed(s[0]) {
			continue
		}
		if err := flags.Set(s[0], s[1]); err != nil {
			return fmt.Errorf("demo: --%s %s: %w", s[0], s[1], err)
		}
	}
	return nil
}
