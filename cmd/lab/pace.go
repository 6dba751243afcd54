package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/lab/bench"
)

// cmdPace measures how many requests a second the load generator itself sends on one core.
func cmdPace(ctx context.Context, args []string) error {
	p := bench.Pace{Say: cli.Logf}
	t := newTrial("pace", "")
	t.Float64SliceVar(&p.Rates, "rate", []float64{25_000, 50_000, 75_000, 100_000},
		"requests a second, a run each")
	t.DurationVar(&p.For, "time", 4*time.Second, "of a run")
	t.IntVar(&p.Sources, "sources", 1000, "that take turns")
	t.StringVar(&t.json, "json", "", "write the figures to this `FILE` as JSON, too")
	if err := t.parse(args); err != nil {
		return err
	}
	for _, rate := range p.Rates {
		if n := rate * p.For.Seconds(); !(rate >= 1 && n >= 1 && n <= 50_000_000) {
			return cli.Usagef("--rate %v, --time %v: that is %.0f requests; want 1 to 50,000,000",
				rate, p.For, n)
		}
	}
	if p.Sources < 1 || p.Sources > 1<<16 {
		return cli.Usagef("--sources %d: want 1 to %d", p.Sources, 1<<16)
	}
	p.Self = t.self
	figures, err := p.Run(ctx)
	if err != nil {
		return err
	}
	return t.report(map[string]any{"pace": figures}, func(w io.Writer) error {
		return writePace(w, figures)
	})
}

func writePace(w io.Writer, figures []bench.PaceFigures) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t,
		"asked/s\tsent/s\tµs of CPU each\tper CPU second\tsent late by p50\tp99\tmax\tanswered after p50\tp99\tconnections\tfailed\t")
	for _, f := range figures {
		d := func(seconds float64) string {
			return time.Duration(seconds * 1e9).Round(100 * time.Nanosecond).String()
		}
		fmt.Fprintf(t, "%.0f\t%.0f\t%.2f\t%.0f\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t\n", f.Asked, f.Sent,
			f.CPU*1e6, f.PerCPU,
			d(f.SendError.P50), d(f.SendError.P99), d(f.SendError.Max), d(f.Latency.P50),
			d(f.Latency.P99), f.Conns, f.Failed)
	}
	return t.Flush()
}
