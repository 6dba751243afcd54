// Package simulate runs the limiter in virtual time and reports how well it decides: over a trace,
// on one edge or on whole PoPs (Run), and over the calibrated streams of the published size
// (Published, InOrder).
package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/virtual"
	"sluice/loadgen/design"
	"sluice/loadgen/judge"
	"sluice/loadgen/report"
	"sluice/loadgen/trace"
	"sluice/mitigation"
)

// Run judges one rule over a trace: the two-counter baseline, the formula with perfect knowledge,
// and, where there is more than one edge or a fault, the PoP and its floor.
func Run(ctx context.Context, t *trace.Trace, mode judge.Mode, rule mitigation.Rule,
	size *cli.PoP) (*report.Report, error) {
	o := judge.Options{Limit: rule.Counter.Limit, Window: rule.Counter.Window,
		Timeout: rule.Timeout, Ideal: virtual.IdealOf(t, rule), Truth: virtual.TruthOf(t,
			rule.Counter), Clocks: size.Skew, Grain: virtual.Grain(rule.Counter)}
	began := time.Now()
	v := judge.VirtualOptions{Edges: size.Edges, PerConnection: size.PerConnection, Seed: t.Seed}

	r := new(report.Report)
	if o.Truth.IsLog() { // two counters are no bucket
		base, worst := judge.Baseline(t, mode, o)
		r.Baseline, o.Watch = &base, worst
	}
	r.Run.Describe(t)
	r.SetNames(t)
	r.Run.Command = "simulate"
	r.Run.Limit, r.Run.Window = rule.Counter.Limit, report.Seconds(rule.Counter.Window)
	r.Run.SubWindows, r.Run.Estimate = rule.Counter.SubWindows, rule.Counter.Estimate.String()
	if !rule.Counter.Sliding() {
		r.Run.Algorithm = rule.Counter.Algorithm()
	}
	r.Run.MitigationTimeout = report.Seconds(rule.Timeout)
	r.Run.Mode = mode.String()
	r.Run.Edges, r.Run.Nodes = size.Edges, size.Nodes
	r.Run.RoundTrip, r.Run.Skew = report.Seconds(size.RTT), report.Seconds(size.Skew)
	r.Run.PerConnection = size.PerConnection
	r.Run.Faults = append(slices.Clone(size.FaultTexts), cli.FlapLines(size.Flaps)...)
	if size.PoPs > 1 {
		r.Run.PoPs = size.PoPs
	}
	if size.Peers {
		r.Run.Faults = append(r.Run.Faults,
			"PoPs send each other their blocks, and counts near the limit")
	}

	if !size.Quiet {
		bar := cli.Progress(len(t.Requests), fmt.Sprintf("limit %d, %s", rule.Counter.Limit,
			rule.Counter.Estimate))
		defer bar.Finish()
		v.Progress = func(done int) { bar.Set(done) }
	}

	o.Bound = virtual.BoundOf(t, rule, &virtual.Size{Edges: 1})
	alone := v
	alone.Edges = 1
	started := time.Now()
	formula, err := judge.Simulate(ctx, t, mode, o, alone, virtual.NewOracle(t, mode, rule).
		Limiter())
	if err != nil {
		return nil, err
	}
	formula.DecisionsASecond = float64(len(t.Requests)) / time.Since(started).Seconds()
	r.Figures = formula
	if size.Nodes > 0 {
		o.Bound = virtual.BoundOf(t, rule, &size.Size)
		pop := func(undisturbed bool) (*judge.Figures, error) {
			site, err := virtual.NewSite(t, mode, rule, &size.Size, undisturbed)
			if err != nil {
				return nil, err
			}
			started := time.Now()
			f, err := judge.Simulate(ctx, t, mode, o, site.Options(v), site.Limiter())
			if err = cmp.Or(err, site.Err); err != nil {
				return nil, err
			}
			f.DecisionsASecond = float64(len(t.Requests)) / time.Since(started).Seconds()
			commands, bytes := site.Cost()
			f.SetTierOps(commands)
			f.TierBytesPer1000 = 1000 * judge.Ratio(float64(bytes), f.Requests)
			return &f, nil
		}
		delay, err := pop(true)
		if err != nil {
			return nil, err
		}
		if r.Floor, err = floorOf(ctx, t, mode, o, v, &size.Size); err != nil {
			return nil, err
		}
		var faults *judge.Figures
		r.Figures = *delay
		if len(size.Faults)+len(size.Routes) > 0 {
			if faults, err = pop(false); err != nil {
				return nil, err
			}
			r.Figures = *faults
		}
		split := judge.NewSplit(&formula, delay, faults)
		r.Split = &split
	}
	r.Run.Took = report.Seconds(time.Since(began))
	return r, nil
}

// floorOf is what an exact log that is one round trip late would have done on the edges of an
// undisturbed site, where there are several and they block.
func floorOf(ctx context.Context, t *trace.Trace, mode judge.Mode, o judge.Options,
	v judge.VirtualOptions, size *virtual.Size) (*judge.Figures, error) {
	if mode != judge.Deployed || size.PoPs*size.Edges == 1 || !o.Truth.IsLog() {
		return nil, nil
	}
	v, err := size.Undisturbed(t, v)
	if err != nil {
		return nil, err
	}
	o.Watch, o.Bound = nil, nil
	d := design.Floor(design.Options{
		Mode: mode, Limit: o.Limit, Window: o.Window, Timeout: o.Timeout, Edges: v.Edges,
		RoundTrip: size.RTT,
	})
	found, err := d.Run(ctx, t, mode, o, v)
	if err != nil {
		return nil, err
	}
	return &found.Figures, nil
}
