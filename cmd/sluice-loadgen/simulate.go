package main

import (
	"context"
	"os"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/sluice-loadgen/internal/simulate"
	"sluice/loadgen/judge"
	"sluice/loadgen/report"
	"sluice/loadgen/workload"
)

func cmdSimulate(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("simulate", pflag.ContinueOnError)
	trace, rule, size, out := cli.AddTrace(flags), cli.AddRule(flags), cli.AddPoP(flags),
		cli.AddOutput(flags)
	scale := flags.Int("scale", 1,
		"of --workload published-bursty and published-poisson (400 million requests of 270,000 sources,\ncalibrated so that two counters give the published figures):\none part in so many")
	inOrder := flags.Bool("in-order", false,
		"of these workloads: all sources in one table, in the order of time, on one core; it suits a --scale from 10 on")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if err := size.Check(); err != nil {
		return err
	}
	mode, rules, err := rule.Rules()
	if err != nil {
		return err
	}
	if trace.Workload == workload.PublishedBursty || trace.Workload == workload.PublishedPoisson {
		if len(rule.Limits) != 1 || size.Edges != 1 || size.Nodes != 0 || mode != judge.Estimator ||
			*scale < 1 || len(trace.Files) > 0 {
			return cli.Usagef("--workload %s is for --mode estimator, one --limit, one edge, no --trace and a --scale of at least 1", trace.Workload)
		}
		judged := simulate.Published
		if *inOrder {
			judged = simulate.InOrder
		}
		reports, err := judged(ctx, trace.Workload, *scale, trace.Seed, rules)
		if err != nil {
			return err
		}
		return out.Write(os.Stdout, reports...)
	}
	if *inOrder {
		return cli.Usagef("--in-order is for --workload %s and %s", workload.PublishedBursty,
			workload.PublishedPoisson)
	}
	var reports []*report.Report
	for _, r := range rules {
		t, err := trace.Load(r.Counter.Limit, r.Counter.Window, size.Edges)
		if err != nil {
			return err
		}
		report, err := simulate.Run(ctx, t, mode, r, size)
		if err != nil {
			return err
		}
		reports = append(reports, report)
	}
	return out.Write(os.Stdout, reports...)
}
