package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"

	"sluice/cmd/sluice-loadgen/internal/cli"
	"sluice/cmd/sluice-loadgen/internal/virtual"
	"sluice/counter"
	"sluice/loadgen/design"
	"sluice/loadgen/judge"
	"sluice/loadgen/page"
	"sluice/loadgen/replay"
	"sluice/loadgen/report"
	"sluice/loadgen/trace"
	"sluice/pop"
	"sluice/pop/anycast"
)

// sendFlags say how a trace is sent to edges that are really there.
type sendFlags struct {
	speed         float64
	perConnection int
	source        string
	carrier       replay.Carrier
}

func addSend(flags *pflag.FlagSet) *sendFlags {
	f := new(sendFlags)
	flags.Float64Var(&f.speed, "speed", 1, "send so many times as fast; the limit and its window are the edge's all the same:\n"+
		"at --speed 60 a window of 1s stands for a minute of the trace, and figures are in the time of the run")
	flags.IntVar(&f.perConnection, "per-connection", 20, "requests of a connection, after which a source may meet another edge")
	flags.StringVar(&f.source, "source", "loopback", "how a source's address is carried: loopback (a peer of its own in 127.0.0.0/8), xff or proxy")
	return f
}

func (f *sendFlags) check() (err error) {
	if !(f.speed > 0) {
		return cli.Usagef("--speed %v: must be positive", f.speed)
	}
	if f.perConnection < 1 {
		return cli.Usagef("--per-connection %d: want at least 1", f.perConnection)
	}
	if f.carrier, err = replay.ParseCarrier(f.source); err != nil {
		return cli.Usagef("--%v", err)
	}
	return nil
}

// trace reads or makes the trace, in the time of the run. What a workload plays against is the edge's rule as the trace
// sees it: a window longer by the speed.
func (f *sendFlags) trace(traffic *cli.Trace, rule pop.Rule, edges int) (*trace.Trace, error) {
	t, err := traffic.Load(rule.Counter.Limit, time.Duration(float64(rule.Counter.Window)*f.speed), edges)
	if err != nil {
		return nil, err
	}
	return t.Speed(f.speed), nil
}

// live is a run against real edges, and all that is needed to judge it.
type live struct {
	command string
	mode    judge.Mode
	rule    pop.Rule
	phase   func(counter.Source) uint16 // when windows of sources begin; nil: all on the clock's
	send    *sendFlags
	trace   *trace.Trace // in the time of the run
	edges   []int        // of each PoP; at most 64 in all
	nodes   int          // of each PoP

	roundTrip time.Duration // from an edge to a node and back; 0: not known, and then there is no floor

	affinity *anycast.Affinity
}

// judge makes the report. Crossings of the limit are seen by the edges' own formula with perfect knowledge.
func (l *live) judge(out *replay.Outcome, inForce []judge.InForce) *report.Report {
	o := judge.Options{
		Limit: l.rule.Counter.Limit, Window: l.rule.Counter.Window, Timeout: l.rule.Timeout, Slack: replay.ClockSlack,
		Reach: virtual.Reach(l.trace, l.affinity, l.edges),
		Ideal: func() func(int32, time.Duration, bool) bool {
			return virtual.NewIdeal(virtual.NewLiveOracle(out.Start, out.Addresses, virtual.RoomFor(l.trace), l.phase), l.rule).Over
		},
	}
	for _, n := range l.edges {
		o.Edges += n
	}
	base, worst := judge.Baseline(l.trace, l.mode, o)
	o.Watch = worst
	found := &report.Report{Baseline: &base, Figures: judge.Judge(l.mode, o, out.Decisions, inForce)}
	if l.roundTrip > 0 && o.Edges > 1 && l.mode == judge.Deployed {
		floor := design.FloorOf(design.Options{
			Mode: l.mode, Limit: o.Limit, Window: o.Window, Timeout: o.Timeout, Edges: o.Edges, RoundTrip: l.roundTrip,
		}, o, out.Decisions)
		found.Floor = &floor
	}
	late := out.Late()
	found.Figures.SendError = &late
	found.SetNames(l.trace)
	r := &found.Run
	r.RoundTrip = report.Seconds(l.roundTrip)
	r.Describe(l.trace)
	r.Duration = report.Seconds(float64(l.trace.Duration()) * l.send.speed)
	r.Command, r.Mode = l.command, l.mode.String()
	r.Limit, r.Window, r.MitigationTimeout = o.Limit, report.Seconds(o.Window), report.Seconds(o.Timeout)
	r.SubWindows, r.Estimate = l.rule.Counter.SubWindows, l.rule.Counter.Estimate.String()
	r.PoPs, r.Edges, r.Nodes = len(l.edges), slices.Max(l.edges), l.nodes
	r.PerConnection, r.Speed, r.Carrier = l.send.perConnection, l.send.speed, l.send.carrier.String()
	r.Took = report.Seconds(out.Took)
	r.Notes = append(r.Notes, out.Judged()...)
	r.Details = &page.Details{Lines: clientLines(out), Open: out.ClientErrors() > 0}
	found.Disturb()
	return found
}

// clientLines is what the load generator saw on the wire.
func clientLines(out *replay.Outcome) []string {
	at := func(q float64) time.Duration {
		return time.Duration(out.Latency.ValueAtPercentile(q)).Round(time.Microsecond)
	}
	notes := []string{
		fmt.Sprintf("client: %d sent, %d answered over %d connections in %v; answers by status: %s", out.Sent, out.Answered,
			out.Connections, out.Took.Round(100*time.Millisecond), counts(out.Statuses)),
		fmt.Sprintf("client: answered within %v / %v / %v (p50 / p99 / max)", at(50), at(99), at(100)),
	}
	if out.Retried+out.Rerouted > 0 {
		notes = append(notes, fmt.Sprintf("client: %d requests sent again after their connection died unanswered, %d connections refused and made to another edge",
			out.Retried, out.Rerouted))
	}
	if out.ClientErrors() > 0 {
		notes = append(notes, "client: "+out.Trouble())
	}
	return notes
}

// clientErrors says how many there were.
func clientErrors(out *replay.Outcome) string {
	if n := out.ClientErrors(); n > 0 {
		return page.Plural(n, "client error")
	}
	return "no client errors"
}

// meter shows how far a replay is: a bar on a terminal, else a line every few seconds.
type meter struct {
	bar  *progressbar.ProgressBar
	said time.Duration
}

func newMeter(what string, total int) *meter {
	if info, err := os.Stderr.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &meter{}
	}
	return &meter{bar: cli.Progress(total, what)}
}

func (m *meter) show(p replay.Progress) {
	if m.bar != nil {
		m.bar.Describe(fmt.Sprintf("%v of %v, %d refused, %d failed", p.Elapsed.Round(time.Second), p.Total.Round(time.Second), p.Refused, p.Failed))
		m.bar.Set(p.Sent)
		return
	}
	if p.Elapsed-m.said < 5*time.Second {
		return
	}
	m.said = p.Elapsed
	fmt.Fprintf(os.Stderr, "%v of %v: %d of %d sent, %d answered, %d refused, %d failed\n", p.Elapsed.Round(time.Second),
		p.Total.Round(time.Second), p.Sent, p.Requests, p.Answered, p.Refused, p.Failed)
}

func (m *meter) done() {
	if m.bar != nil {
		m.bar.Finish()
	}
}
