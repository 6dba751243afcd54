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

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
	"sluice/cmd/internal/namespace"
	"sluice/loadgen/anycast"
	"sluice/loadgen/lab"
	"sluice/loadgen/page"
	"sluice/loadgen/promise"
	"sluice/loadgen/replay"
	"sluice/loadgen/report"
	"sluice/loadgen/trace"
)

// cmdLab starts PoPs, replays, reports and stops all, a run for each limit and estimate.
func cmdLab(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("lab", pflag.ContinueOnError)
	f := live.AddLab(flags)
	injected := flags.StringArray("fault", nil,
		`what happens when, such as "20s kill memcached/0"; also term, stop, cont, restart, of edge/N,`+"\n"+
			"memcached/N, twemproxy/N, origin/0 and, with --wall, wall/0, and \"20s step-clock edge/1 -5s\"; in the time of the run; repeatable")
	others := addLimiters(flags)
	demo := flags.Bool("demo", false,
		"a mixed attack of 12 s and an HTML report, with what is installed here")
	traffic, rule, send, output := cli.AddTrace(flags), cli.AddRule(flags), live.AddSend(flags).
		AddHTTP2(flags), cli.AddOutput(flags)
	output.AddDetails(flags)
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if err := rule.OnlySliding("lab"); err != nil {
		return err
	}
	if *demo {
		if err := demonstrate(flags); err != nil {
			return err
		}
	}
	if err := f.Complete(); err != nil {
		return err
	}
	if err := send.Check(); err != nil {
		return err
	}
	mode, rules, err := rule.Rules()
	if err != nil {
		return err
	}
	faults, err := cli.ParseFaults(*injected)
	if err != nil {
		return err
	}

	if err := others.check(f, send, mode, faults); err != nil {
		return err
	}
	for _, r := range rules {
		if err := f.CheckWall(send, r, mode); err != nil {
			return err
		}
	}
	if f.Wall && !namespace.Inside() {
		if err := namespace.Again(ctx); err != nil {
			return fmt.Errorf("--wall: %w", err)
		}
		return nil
	}
	if f.Wall {
		if err := namespace.Up(); err != nil {
			return fmt.Errorf("--wall: %w", err)
		}
	}

	var reports []*report.Report
	var unsound error
	for _, r := range rules {
		l := &live.Run{Command: "lab", Mode: mode, Rule: r, Send: send,
			Edges: slices.Repeat([]int{f.Edges}, f.PoPs), Nodes: f.Nodes}
		if l.Affinity, err = anycast.New(f.PoPs, f.Routes); err != nil {
			return err
		}
		if f.Nodes > 0 {
			l.Secrets = live.LabSecrets(f.PoPs)
		}
		if l.Trace, err = send.Load(traffic, r, f.Edges); err != nil {
			return err
		}
		report, err := others.report(ctx, f, l, traffic.Seed, faults)
		if report == nil {
			return err
		}
		unsound = errors.Join(unsound, err)
		reports = append(reports, report)
	}
	broken, err := held(reports)
	if err != nil {
		return err
	}
	if err := output.Write(os.Stdout, reports...); err != nil {
		return err
	}
	for _, name := range []string{output.JSON, output.HTML} {
		if name != "" {
			fmt.Fprintf(os.Stderr, "report written to %s\n", name)
		}
	}
	switch {
	case unsound == nil:
		return broken
	case broken == nil:
		return unsound
	}
	return fmt.Errorf("%w\n%v", unsound, broken) // which fails, whatever the machine did
}

// held holds reports against the promises of the documents, and says so in them. A run that was
// disturbed keeps and breaks none, and is a NoMeasurement; so is one that breaks some, if only one
// request was sent so late: that may be the machine's doing.
func held(reports []*report.Report) (broken, err error) {
	if _, err := promise.Check(reports); err != nil {
		return nil, err
	}
	var found, excused []report.Promise
	busy := false
	for _, r := range reports {
		switch why := promise.Excepted(r); {
		case r.Run.Disturbed:
			busy = true
		case why != "":
			r.Run.Notes = append(r.Run.Notes, "no promise is about this run: "+why)
		case len(r.Broken) == 0:
			r.Run.Notes = append(r.Run.Notes, "what the documents promise was kept")
		case r.OnceLate():
			busy, excused = true, append(excused, r.Broken...)
		default:
			found = append(found, r.Broken...)
		}
	}
	if len(found) > 0 {
		return promise.Err(found), nil
	}
	if !busy {
		return nil, nil
	}
	text := "no measurement: the machine was too busy"
	if err := promise.Err(excused); err != nil {
		text += "; " + err.Error()
	}
	return cli.NoMeasurement(text), nil
}

// runLab makes one run. A report comes with an error where the run can be judged but was not sound.
func runLab(ctx context.Context, f *live.Lab, l *live.Run, seed uint64,
	faults []lab.Fault) (*report.Report, error) {
	lab, err := f.Site(l.Rule, l.Mode, l.Send.Carrier)
	if err != nil {
		return nil, err
	}
	lab.HTTP2 = l.Send.HTTP2
	lab.Logged = lab.HTTP2 && slices.ContainsFunc(l.Trace.Requests,
		func(r trace.Request) bool { return r.Reset })
	site, err := lab.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer site.Stop()
	m := live.NewMeter("lab", len(l.Trace.Requests))
	r := replay.Replay{Affinity: l.Affinity.PoP, Seed: seed, Progress: m.Show}
	l.Send.Fill(&r)
	out, err := site.Run(ctx, r, l.Trace, faults)
	m.Done()
	if err != nil {
		return nil, err
	}
	l.RoundTrip = out.RoundTrip
	report := l.Judge(out.Outcome, out.InForce, out.Lost)
	report.Figures.SetTierOps(out.Ops())
	report.Run.Faults = append(out.Happened, cli.FlapLines(f.Flaps)...)
	if f.Peers {
		report.Run.Faults = append(report.Run.Faults,
			"PoPs send each other their blocks, and counts near the limit")
	}
	d := report.Run.Details
	d.Line = labLine(out)
	d.Lines = append(d.Lines, labLines(out)...)
	d.Open = d.Open || out.Err() != nil
	return report, out.Err()
}

// labLine says in one line whether all edges counted alike.
func labLine(out *lab.Outcome) string {
	line := "balance exact, "
	if out.Balance.Err() != nil {
		line = "balance OFF, "
	}
	if n := out.Ops(); n > 0 {
		line += page.Plural(int(n), "tier command") + ", "
	}
	return line + live.ClientErrors(out.Outcome)
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
			line += fmt.Sprintf("get %d, set and add %d, incr %d, evicted %d, items now %d",
				n.Stats["cmd_get"], n.Stats["cmd_set"],
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

// demonstrate sets what the command line left open to a mixed attack of 12 s on what can be had
// here: two memcached nodes and three edges, or, without a memcached, one edge that counts alone.
func demonstrate(flags *pflag.FlagSet) error {
	settings := [][2]string{
		{"workload", "mixed"}, {"duration", "12s"}, {"limit", "60"}, {"window",
			"5s"}, {"mitigation-timeout", "5s"},
		{"html", "report.html"}, {"edges", "3"}, {"memcached", "2"},
	}
	if _, err := exec.LookPath("memcached"); err != nil && !flags.Changed("memcached") {
		fmt.Fprintln(os.Stderr,
			"there is no memcached on the PATH: one edge with the embedded tier instead of three that share two nodes")
		settings = append(settings[:len(settings)-2], [][2]string{{"edges", "1"},
			{"memcached", "0"}}...)
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
