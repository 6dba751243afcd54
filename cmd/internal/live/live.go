// Package live is what is said of runs against real edges on a command line: how a trace is sent,
// which points of presence are started, and how the answers are judged.
package live

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/virtual"
	"sluice/counter"
	"sluice/loadgen/answer"
	"sluice/loadgen/anycast"
	"sluice/loadgen/design"
	"sluice/loadgen/judge"
	"sluice/loadgen/page"
	"sluice/loadgen/replay"
	"sluice/loadgen/report"
	"sluice/loadgen/trace"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// Send says how a trace is sent to edges that are really there.
type Send struct {
	Speed         float64
	PerConnection int
	Source        string // as it was given
	Carrier       replay.Carrier
	HTTP2         bool
	Streams       int // of a connection at once, over HTTP/2
}

// AddSend adds the flags of Send.
func AddSend(flags *pflag.FlagSet) *Send {
	f := new(Send)
	flags.Float64Var(&f.Speed, "speed", 1,
		"send so many times as fast; the limit and its window are the edge's all the same:\n"+
			"at --speed 60 a window of 1s stands for a minute of the trace, and figures are in the time of the run")
	flags.IntVar(&f.PerConnection, "per-connection", 20,
		"requests of a connection, after which a source may meet another edge")
	flags.StringVar(&f.Source, "source", "loopback",
		"how a source's address is carried: loopback (a peer of its own in 127.0.0.0/8), xff or proxy")
	return f
}

// AddHTTP2 adds the flags of a command that can speak HTTP/2.
func (f *Send) AddHTTP2(flags *pflag.FlagSet) *Send {
	flags.BoolVar(&f.HTTP2, "http2", false,
		"speak HTTP/2: each request is a stream of a connection, and those of rapid-reset are reset")
	flags.IntVar(&f.Streams, "streams", 100,
		"of a connection at once, with --http2; it carries as many requests at least, whatever --per-connection says")
	return f
}

// Check reports what of it cannot be.
func (f *Send) Check() (err error) {
	if !(f.Speed > 0) {
		return cli.Usagef("--speed %v: must be positive", f.Speed)
	}
	if f.PerConnection < 1 {
		return cli.Usagef("--per-connection %d: want at least 1", f.PerConnection)
	}
	if f.HTTP2 && f.Streams < 1 {
		return cli.Usagef("--streams %d: want at least 1", f.Streams)
	}
	if f.Carrier, err = replay.ParseCarrier(f.Source); err != nil {
		return cli.Usagef("--%v", err)
	}
	return nil
}

// Fill enters how it is sent.
func (f *Send) Fill(r *replay.Replay) {
	r.Carrier, r.PerConnection = f.Carrier, f.PerConnection
	if f.HTTP2 {
		r.HTTP2, r.Streams, r.PerConnection = true, f.Streams, max(f.PerConnection, f.Streams)
	}
}

// Load reads or makes the trace, in the time of the run. What a workload plays against is the
// edge's rule as the trace sees it: a window longer by the speed.
func (f *Send) Load(traffic *cli.Trace, rule mitigation.Rule, edges int) (*trace.Trace, error) {
	t, err := traffic.Load(rule.Counter.Limit, time.Duration(float64(rule.Counter.Window)*f.Speed),
		edges)
	if err != nil {
		return nil, err
	}
	return t.Speed(f.Speed), nil
}

// Run is a run against real edges, and all that is needed to judge it.
type Run struct {
	Command string
	Mode    judge.Mode
	Rule    mitigation.Rule
	// Of each PoP: when windows of sources begin follows from it; nil: all on the clock's
	Secrets []secret.Secret
	Send    *Send
	Trace   *trace.Trace // in the time of the run
	Edges   []int        // of each PoP; at most 64 in all
	Nodes   int          // of each PoP

	Escalate []time.Duration // how long blocks of repeaters last

	// From an edge to a node and back; 0: not known, and then there is no floor
	RoundTrip time.Duration

	Affinity *anycast.Affinity
}

// Judge makes the report. Crossings of the limit are seen by the edges' own formula with perfect
// knowledge. Lost is which edges lost what they knew.
func (l *Run) Judge(out *replay.Outcome, inForce []judge.InForce,
	lost []judge.Lost) *report.Report {
	phase := l.phase(out.Addresses)
	o := judge.Options{
		Limit: l.Rule.Counter.Limit, Window: l.Rule.Counter.Window, Timeout: l.Rule.Timeout,
		Slack: answer.ClockSlack,
		Grain: virtual.Grain(l.Rule.Counter), Grace: answer.Grace(l.Rule.Counter.Window),
		Lost: lost, Escalate: l.Escalate,
		Reach: virtual.Reach(l.Trace, l.Affinity, l.Edges),
		Ideal: func() func(int32, time.Duration, bool) bool {
			return virtual.NewIdeal(virtual.NewLiveOracle(out.Start, out.Addresses,
				virtual.RoomFor(l.Trace), phase), l.Rule).Over
		},
	}
	for _, n := range l.Edges {
		o.Edges += n
	}
	base, worst := judge.Baseline(l.Trace, l.Mode, o)
	o.Watch = worst
	found := &report.Report{Baseline: &base, Figures: judge.Judge(l.Mode, o, out.Decisions,
		inForce)}
	if l.RoundTrip > 0 && o.Edges > 1 && l.Mode == judge.Deployed {
		floor := design.FloorOf(design.Options{
			Mode: l.Mode, Limit: o.Limit, Window: o.Window, Timeout: o.Timeout, Edges: o.Edges,
			RoundTrip: l.RoundTrip,
		}, o, out.Decisions)
		found.Floor = &floor
	}
	late := out.Late()
	found.Figures.SendError = &late
	found.SetNames(l.Trace)
	r := &found.Run
	r.RoundTrip = report.Seconds(l.RoundTrip)
	l.Describe(found)
	r.Took = report.Seconds(out.Took)
	r.Notes = append(r.Notes, out.Judged()...)
	r.Details = &page.Details{Lines: clientLines(out), Open: out.ClientErrors() > 0}
	found.Disturb()
	return found
}

// phase is when the windows of the run's sources begin, each by the PoP where it began.
func (l *Run) phase(addrs []netip.Addr) func(counter.Source) uint16 {
	if l.Secrets == nil {
		return nil
	}
	pops := make(map[counter.Source]int, len(addrs))
	for i, a := range addrs {
		if len(l.Secrets) > 1 {
			pops[counter.SourceOf(a, 32, 64)] = l.Affinity.PoP(l.Trace.Sources[i].Addr, 0)
		}
	}
	return func(s counter.Source) uint16 { return l.Secrets[pops[s]].Phase(s) }
}

// Describe enters what the run was given.
func (l *Run) Describe(found *report.Report) {
	r := &found.Run
	r.Describe(l.Trace)
	r.Duration = report.Seconds(float64(l.Trace.Duration()) * l.Send.Speed)
	r.Command, r.Mode = l.Command, l.Mode.String()
	r.Limit, r.Window, r.MitigationTimeout = l.Rule.Counter.Limit,
		report.Seconds(l.Rule.Counter.Window), report.Seconds(l.Rule.Timeout)
	r.SubWindows, r.Estimate = l.Rule.Counter.SubWindows, l.Rule.Counter.Estimate.String()
	r.PoPs, r.Edges, r.Nodes = len(l.Edges), slices.Max(l.Edges), l.Nodes
	r.PerConnection, r.Speed, r.Carrier = l.Send.PerConnection, l.Send.Speed,
		l.Send.Carrier.String()
	if l.Send.HTTP2 {
		r.PerConnection, r.Streams = max(r.PerConnection, l.Send.Streams), l.Send.Streams
	}
}

// clientLines is what the load generator saw on the wire.
func clientLines(out *replay.Outcome) []string {
	at := func(q float64) time.Duration {
		return time.Duration(out.Latency.ValueAtPercentile(q)).Round(time.Microsecond)
	}
	notes := []string{
		fmt.Sprintf("client: %d sent, %d answered over %d connections in %v; answers by status: %s",
			out.Sent, out.Answered,
			out.Connections, out.Took.Round(100*time.Millisecond), counts(out.Statuses)),
		fmt.Sprintf("client: answered within %v / %v / %v (p50 / p99 / max)", at(50), at(99),
			at(100)),
	}
	if out.Retried+out.Rerouted > 0 {
		notes = append(notes,
			fmt.Sprintf("client: %d requests sent again after their connection died unanswered, %d connections refused and made to another edge",
				out.Retried, out.Rerouted))
	}
	if out.Untaken > 0 || len(out.Ended) > 0 {
		notes = append(notes,
			fmt.Sprintf("client: %d requests sent again that an edge had not taken; connections ended by an edge for what was done on them: %s",
				out.Untaken, orNone(counts(out.Ended))))
	}
	if out.ClientErrors() > 0 {
		notes = append(notes, "client: "+out.Trouble())
	}
	return notes
}

// ClientErrors says how many there were.
func ClientErrors(out *replay.Outcome) string {
	if n := out.ClientErrors(); n > 0 {
		return page.Plural(n, "client error")
	}
	return "no client errors"
}

// Meter shows how far a replay is: a bar on a terminal, else a line every few seconds.
type Meter struct {
	bar  *cli.Bar // nil: standard error is no terminal
	said time.Duration
}

// NewMeter is one of so many requests.
func NewMeter(what string, total int) *Meter {
	return &Meter{bar: cli.Progress(total, what)}
}

// Show shows how far it is by now.
func (m *Meter) Show(p replay.Progress) {
	if m.bar != nil {
		m.bar.Describe(fmt.Sprintf("%v of %v, %d refused, %d failed", p.Elapsed.Round(time.Second),
			p.Total.Round(time.Second), p.Refused, p.Failed))
		m.bar.Set(p.Sent)
		return
	}
	if p.Elapsed-m.said < 5*time.Second {
		return
	}
	m.said = p.Elapsed
	fmt.Fprintf(os.Stderr, "%v of %v: %d of %d sent, %d answered, %d refused, %d failed\n",
		p.Elapsed.Round(time.Second),
		p.Total.Round(time.Second), p.Sent, p.Requests, p.Answered, p.Refused, p.Failed)
}

// Done ends it.
func (m *Meter) Done() {
	m.bar.Finish()
}

// counts writes how many there are of each.
func counts[K cmp.Ordered](of map[K]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		out = append(out, fmt.Sprintf("%v: %d", k, of[k]))
	}
	return strings.Join(out, ", ")
}

func orNone(s string) string { return cmp.Or(s, "none") }
