package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/virtual"
	"sluice/loadgen/design"
	"sluice/loadgen/judge"
	"sluice/loadgen/report"
	"sluice/loadgen/trace"
	"sluice/mitigation"
)

// cmdCompare runs every design over one stream and writes one table.
func cmdCompare(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("compare", pflag.ContinueOnError)
	trace, rule, out := cli.AddTrace(flags), cli.AddRule(flags), cli.AddOutput(flags)
	size := new(cli.PoP)
	flags.IntVar(&size.Edges, "edges", 8, "edges that count together")
	flags.IntVar(&size.Nodes, "memcached", 0,
		"memcached nodes of Sluice; 0: one for every two edges")
	flags.DurationVar(&size.RTT, "rtt", time.Millisecond,
		"`TIME` from an edge to the store and back")
	flags.IntVar(&size.PerConnection, "per-connection", 20,
		"requests of a connection, after which a source may meet another edge")
	sync := flags.Duration("sync", time.Second,
		"how `OFTEN` the design that syncs periodically does")
	lease := flags.Uint32("lease", 0,
		"requests that the design with reservations reserves at once; 0: a tenth of the limit")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if err := size.Check(); err != nil {
		return err
	}
	if *sync <= 0 {
		return cli.Usagef("--sync %v: must be positive", *sync)
	}
	mode, rules, err := rule.Rules()
	if err != nil {
		return err
	}
	if *lease > rules[0].Counter.Limit {
		return cli.Usagef("--lease %d: want at most the limit, %d", *lease, rules[0].Counter.Limit)
	}
	var reports []*report.Report
	for len(rules) > 0 { // limit by limit: those of one limit differ in their estimate
		same := rules[:len(rule.Estimates)]
		rules = rules[len(same):]
		t, err := trace.Load(same[0].Counter.Limit, same[0].Counter.Window, size.Edges)
		if err != nil {
			return err
		}
		report, err := compare(ctx, t, mode, same, size, design.Options{SyncEvery: *sync,
			Lease: *lease})
		if err != nil {
			return err
		}
		reports = append(reports, report)
	}
	return out.Write(os.Stdout, reports...)
}

// compare runs the designs of others, and Sluice under each of the rules, which differ in their
// estimate alone.
func compare(ctx context.Context, t *trace.Trace, mode judge.Mode, rules []mitigation.Rule,
	size *cli.PoP, d design.Options) (*report.Report, error) {
	began := time.Now()
	if mode == judge.Estimator { // no source is blocked, by no edge and not by the PoP
		rules = slices.Clone(rules)
		for i := range rules {
			rules[i].Timeout = 0
		}
	}
	rule := rules[0]
	d.Mode, d.Limit, d.Window, d.Timeout = mode, rule.Counter.Limit, rule.Counter.Window,
		rule.Timeout
	d.LoseAt = t.Duration() / 2
	d.Start, d.Edges, d.RoundTrip, d.SubWindows = t.Start, size.Edges, size.RTT,
		rule.Counter.SubWindows
	o := judge.Options{Limit: d.Limit, Window: d.Window, Timeout: d.Timeout,
		Ideal: virtual.IdealOf(t, rule), Truth: virtual.TruthOf(t, rule.Counter)}

	r := &report.Report{}
	r.Run.Command = "compare"
	r.Run.Describe(t)
	r.Run.Mode, r.Run.Limit, r.Run.Window = mode.String(), d.Limit, report.Seconds(d.Window)
	r.Run.SubWindows, r.Run.Estimate = d.SubWindows, rule.Counter.Estimate.String()
	r.Run.MitigationTimeout = report.Seconds(d.Timeout)
	r.Run.Edges, r.Run.Nodes, r.Run.RoundTrip = size.Edges, size.Nodes, report.Seconds(size.RTT)
	r.Run.PerConnection = size.PerConnection
	r.SetNames(t)

	var worst []int32
	if o.Truth.IsLog() {
		var base judge.Figures
		base, worst = judge.Baseline(t, mode, o)
		r.Baseline = &base
	} else {
		r.Run.Algorithm = rule.Counter.Algorithm()
		r.Run.Notes = append(r.Run.Notes,
			"every design is judged by the exact form of this algorithm; those of others count as they are described")
		if o.Truth.Queue > 0 {
			r.Run.Notes = append(r.Run.Notes,
				"simulate shows which requests wait for their turn, and how long")
		}
	}
	entries, err := allDesigns(t, mode, rules, size, d)
	if err != nil {
		return nil, err
	}
	left := 0
	bar := cli.Progress(len(entries)*len(t.Requests), fmt.Sprintf("limit %d", d.Limit))
	defer bar.Finish()
	for i, c := range entries {
		if mode == judge.Estimator && c.Uncounted {
			left++
			continue
		}
		bar.Describe(fmt.Sprintf("limit %d, %s", d.Limit, c.Name))
		v := judge.VirtualOptions{Edges: size.Edges, PerConnection: size.PerConnection,
			Seed: t.Seed, Progress: func(done int) { bar.Set(i*len(t.Requests) + done) }}
		known := o
		main := c.Name == ours(rule, size.Edges)
		if main {
			known.Watch = worst
		}
		found, err := c.Run(ctx, t, mode, known, v)
		if err != nil {
			return nil, err
		}
		r.Designs = append(r.Designs, found)
		switch {
		case main:
			r.Figures = found.Figures
		case c.Name == design.FloorName && o.Truth.IsLog() && mode == judge.Deployed &&
			size.Edges > 1:
			r.Floor = &found.Figures
		}
	}
	if left > 0 {
		r.Run.Notes = append(r.Run.Notes,
			fmt.Sprintf("%d designs have no estimate of the requests in a window and are left out; --mode deployed has them", left))
	}
	r.Run.Took = report.Seconds(time.Since(began))
	return r, nil
}

// ours is how the limiter is called in the table.
func ours(r mitigation.Rule, edges int) string {
	how := r.Counter.Estimate.String()
	if !r.Counter.Sliding() {
		how = r.Counter.Algorithm()
	}
	if edges == 1 {
		return "Sluice, " + how
	}
	return fmt.Sprintf("Sluice, %s, %d edges", how, edges)
}

// allDesigns is all designs: of each kind, those of others and then ours.
func allDesigns(t *trace.Trace, mode judge.Mode, rules []mitigation.Rule, size *cli.PoP,
	d design.Options) ([]design.Design, error) {
	var alone, together []design.Design
	for _, rule := range rules {
		alone = append(alone, design.Design{
			Name: ours(rule, 1), Kind: design.Algorithm,
			About: "the limiter itself; its bytes are those of its tables, with the names of sources",
			Start: func() (judge.Limiter, func() design.Cost) {
				s := virtual.NewOracle(t, mode, rule)
				return s.Limiter(), func() design.Cost {
					return design.Cost{Bytes: counterBytes * s.Counters()}
				}
			},
		})
		if size.Edges == 1 {
			continue
		}
		if _, err := virtual.NewSite(t, mode, rule, &size.Size, true); err != nil {
			return nil, err
		}
		together = append(together, design.Design{
			Name: ours(rule, size.Edges), Kind: design.Coordination,
			About: "edges decide from memory; what gathers in a round trip is the next report, its answer the total of all edges",
			Start: func() (judge.Limiter, func() design.Cost) {
				s, err := virtual.NewSite(t, mode, rule, &size.Size, true)
				if err != nil {
					panic(err) // it could be made a moment ago
				}
				return s.Limiter(), func() design.Cost {
					commands, _ := s.Cost()
					return design.Cost{Commands: commands,
						Bytes: groupBytes(rule)*uint64(len(t.Sources)) + counterBytes*s.Counters()}
				}
			},
		})
	}
	var all []design.Design
	for _, c := range design.All(d) {
		if c.Kind == design.Coordination && len(alone) > 0 {
			all, alone = append(all, alone...), nil
		}
		all = append(all, c)
	}
	return append(append(all, alone...), together...), nil
}

// counterBytes is a counter in a table: 64 bytes, 8 for its index, and its part of the histograms
// that one in 64 may have.
const counterBytes = 64 + 8 + 8

// groupBytes is what the tier holds of a source at most: as many 64-bit numbers as a window and its
// oldest sub-window touch.
func groupBytes(r mitigation.Rule) uint64 {
	lanes := 4
	if r.Counter.Wide() {
		lanes = 2
	}
	return 8 * uint64((r.Counter.SubWindows+lanes-1)/lanes+1)
}
