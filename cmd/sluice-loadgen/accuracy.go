package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice-loadgen/internal/virtual"
	"sluice/loadgen/judge"
	"sluice/loadgen/report"
	"sluice/loadgen/trace"
	"sluice/loadgen/workload"
)

// accuracySuite is what the accuracy command measures: traffic, and how much of it.
type accuracySuite struct {
	traces      []*trace.Trace
	limits      []uint
	window      time.Duration
	adversaries []string
	duration    time.Duration // of an adversary; 0: what suits it
	limit       uint          // that it plays against
	scale       int           // of the published stream: one part in so many
	seed        uint64
}

// adversaries are the workloads that are made against limiters.
func adversaries() []string {
	return []string{"constant", "ramp", "onoff", "edge-burst", "just-above", "parallel", "rotate-64", "rotate-24", "below", "nat", "flash-crowd", "stuffing"}
}

// cmdAccuracy runs everything by which the limiter's accuracy is judged, and writes one summary.
func cmdAccuracy(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("accuracy", pflag.ContinueOnError)
	logs := flags.String("logs", "", "`DIR` with access logs (.log, .jsonl, .csv, or .gz of one); none: made traffic alone")
	short := flags.Bool("short", false, "small workloads alone, and the published stream at a hundredth: seconds, not minutes")
	seed := flags.Uint64("seed", 1, "of workloads, and of where in its second a one-second stamp lies")
	file := flags.String("json", "", "write all reports to this `FILE` as JSON, too")
	if err := parse(flags, args, false); err != nil {
		return err
	}
	s := accuracySuite{
		limits: []uint{20, 60, 120}, window: time.Minute, adversaries: adversaries(), limit: 100, scale: 1, seed: *seed,
	}
	if *short {
		s.limits, s.window, s.duration, s.limit, s.scale = []uint{20}, 10*time.Second, time.Minute, 20, 100
	}
	if err := s.load(*logs); err != nil {
		return err
	}
	began := time.Now()
	reports, err := s.run(ctx, os.Stdout)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d runs in %v\n", len(reports), time.Since(began).Round(time.Second))
	if err := toFile(*file, func(w io.Writer) error { return report.WriteJSON(w, reports...) }); err != nil {
		return err
	}
	return promises(reports)
}

// load reads the logs of a directory, or makes traffic in their place.
func (s *accuracySuite) load(dir string) error {
	if dir == "" {
		for _, name := range []string{"mixed", "burst"} {
			t, err := workload.Generate(name, workload.Options{Seed: s.seed, Limit: uint32(s.limits[0]), Window: s.window, Duration: 6 * s.window})
			if err != nil {
				return err
			}
			s.traces = append(s.traces, t)
		}
		return nil
	}
	var files []string
	for _, kind := range []string{"*.log", "*.log.gz", "*.jsonl", "*.jsonl.gz", "*.csv", "*.csv.gz"} {
		found, err := filepath.Glob(filepath.Join(dir, kind))
		if err != nil {
			return usagef("--logs %s: %v", dir, err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return usagef("--logs %s: no .log, .jsonl or .csv there, nor .gz of one", dir)
	}
	slices.Sort(files)
	for _, file := range files {
		t, err := trace.Read(trace.ReadOptions{Seed: s.seed}, file)
		if err != nil {
			return err
		}
		s.traces = append(s.traces, t)
	}
	return nil
}

// section is runs that are summed up together.
type section struct {
	title string
	runs  []accuracyRun
	print func(w io.Writer, title string, reports []*report.Report)
}

type accuracyRun struct {
	trace    func() (*trace.Trace, error)
	mode     judge.Mode
	limit    uint
	estimate string
	edges    int
}

func (s *accuracySuite) sections() []section {
	kept := func(t *trace.Trace) func() (*trace.Trace, error) {
		return func() (*trace.Trace, error) { return t, nil }
	}
	overTraces := func(mode judge.Mode, edges int) (runs []accuracyRun) {
		for _, estimate := range []string{"nearest", "lower"} {
			for _, t := range s.traces {
				for _, limit := range s.limits {
					runs = append(runs, accuracyRun{kept(t), mode, limit, estimate, edges})
				}
			}
		}
		return runs
	}
	var attacks []accuracyRun
	for _, estimate := range []string{"nearest", "lower"} {
		for _, name := range s.adversaries {
			o := workload.Options{Seed: s.seed, Limit: uint32(s.limit), Window: s.window, Duration: s.duration}
			if s.scale > 1 && name == "below" {
				o.Rate = 1000
			}
			attacks = append(attacks, accuracyRun{func() (*trace.Trace, error) { return workload.Generate(name, o) }, judge.Deployed, s.limit, estimate, 8})
		}
	}
	return []section{
		{"estimator mode, one edge", overTraces(judge.Estimator, 1), printTotals},
		{"deployed mode, one edge", overTraces(judge.Deployed, 1), printTotals},
		{"deployed mode, 8 edges, 4 nodes, 1 ms", overTraces(judge.Deployed, 8), printTotals},
		{"adversaries, deployed mode, 8 edges, 4 nodes, 1 ms", attacks, printAttacks},
	}
}

// run makes all runs, as many at once as there are processors, and prints each section when it is complete.
func (s *accuracySuite) run(ctx context.Context, w io.Writer) (all []*report.Report, err error) {
	for _, sec := range s.sections() {
		reports, err := s.runSection(ctx, sec)
		if err != nil {
			return nil, err
		}
		sec.print(w, sec.title, reports)
		all = append(all, reports...)
	}
	for _, name := range []string{workload.PublishedBursty, workload.PublishedPoisson} {
		f := &ruleFlags{limits: []uint{100}, window: time.Minute, subWindows: 12, estimates: []string{"nearest", "lower"}, mode: judge.Estimator.String()}
		_, rules, err := f.rules()
		if err != nil {
			return nil, err
		}
		reports, err := simulatePublished(ctx, name, s.scale, s.seed, rules)
		if err != nil {
			return nil, err
		}
		printTotals(w, fmt.Sprintf("%s, one part in %d, estimator mode", name, s.scale), reports)
		all = append(all, reports...)
	}
	return all, nil
}

func (s *accuracySuite) runSection(ctx context.Context, sec section) ([]*report.Report, error) {
	reports, errs := make([]*report.Report, len(sec.runs)), make([]error, len(sec.runs))
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(sec.runs) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				reports[i], errs[i] = s.one(ctx, sec.runs[i])
				fmt.Fprintf(os.Stderr, "\r%s: %d of %d ", sec.title, done.Add(1), len(sec.runs))
			}
		})
	}
	wg.Wait()
	fmt.Fprintln(os.Stderr)
	return reports, errors.Join(append(errs, ctx.Err())...)
}

func (s *accuracySuite) one(ctx context.Context, r accuracyRun) (*report.Report, error) {
	t, err := r.trace()
	if err != nil {
		return nil, err
	}
	f := &ruleFlags{limits: []uint{r.limit}, window: s.window, timeout: s.window, subWindows: 12, estimates: []string{r.estimate}, mode: r.mode.String()}
	mode, rules, err := f.rules()
	if err != nil {
		return nil, err
	}
	size := &popFlags{Size: virtual.Size{Edges: r.edges, RTT: time.Millisecond}, perConnection: 20, quiet: true}
	if err := size.check(); err != nil {
		return nil, err
	}
	return simulate(ctx, t, mode, rules[0], size)
}

// promises names what was promised without an if, and not kept.
func promises(reports []*report.Report) (err error) {
	for _, r := range reports {
		if f := &r.Figures; f.BeyondBound > 0 {
			err = errors.Join(err, fmt.Errorf("%s%s, limit %d: %d sources were admitted more than the design allows", r.Run.Trace, r.Run.Workload, r.Run.Limit, f.BeyondBound))
		}
		if f := &r.Figures; r.Run.Estimate == "lower" && f.FalsePositiveSources+int(f.WronglyLimited) > 0 {
			err = errors.Join(err, fmt.Errorf("%s%s, limit %d: lower limited %d requests wrongly, and %d sources that never were over", r.Run.Trace, r.Run.Workload, r.Run.Limit,
				f.WronglyLimited, f.FalsePositiveSources))
		}
	}
	return err
}

// printTotals writes a line for each estimate and trace over all limits, and the totals beside those of two plain counters.
func printTotals(w io.Writer, title string, reports []*report.Report) {
	fmt.Fprintf(w, "%s\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "  estimate\ttrace\trequests\twrong\tlimited\tblocks\tper block\ttwo counters\tratio\tmean gap\tnever over, refused\tover, never refused\tworst window\tbeyond bound\t")
	var total, line accuracyLine
	for i, r := range reports {
		line.add(r)
		total.add(r)
		last := i == len(reports)-1
		if last || name(reports[i+1]) != name(r) || reports[i+1].Run.Estimate != r.Run.Estimate {
			line.write(t, r.Run.Estimate, name(r))
			line = accuracyLine{}
		}
		if last || reports[i+1].Run.Estimate != r.Run.Estimate {
			if total.runs > 1 {
				total.write(t, r.Run.Estimate, "total")
			}
			total = accuracyLine{}
		}
	}
	t.Flush()
	fmt.Fprintln(w)
}

func name(r *report.Report) string { return r.Run.Trace + r.Run.Workload }

// accuracyLine sums up runs.
type accuracyLine struct {
	runs                                     int
	requests, wrong, limited, blocks, theirs uint64
	gap                                      float64 // the widest
	falsePositives, falseNegatives, beyond   int
	excess                                   uint32
	margin                                   float64
}

func (l *accuracyLine) add(r *report.Report) {
	f := &r.Figures
	l.runs++
	l.requests += f.Requests
	l.wrong += f.Wrong
	l.limited += f.WronglyLimited
	l.blocks += f.Blocks
	l.theirs += r.Baseline.Wrong
	l.gap = math.Max(l.gap, f.MeanGap)
	l.falsePositives += f.FalsePositiveSources
	l.falseNegatives += f.FalseNegativeSources
	l.margin = math.Max(l.margin, f.FalseNegativeMargin)
	l.beyond += f.BeyondBound
	l.excess = max(l.excess, f.WorstExcess)
}

func (l *accuracyLine) write(w io.Writer, estimate, trace string) {
	ratio, perBlock, missed := "-", "-", fmt.Sprint(l.falseNegatives)
	if l.wrong > 0 {
		ratio = fmt.Sprintf("1/%.1f", float64(l.theirs)/float64(l.wrong))
	}
	if l.blocks > 0 {
		perBlock = fmt.Sprintf("%.4f", float64(l.wrong)/float64(l.blocks))
	}
	if l.falseNegatives > 0 {
		missed += fmt.Sprintf(", by %.1f %%", 100*l.margin)
	}
	fmt.Fprintf(w, "  %s\t%s\t%d\t%d\t%d\t%d\t%s\t%d\t%s\t%.3f %%\t%d\t%s\t+%d\t%d\t\n", estimate, trace, l.requests, l.wrong, l.limited, l.blocks,
		perBlock, l.theirs, ratio, 100*l.gap, l.falsePositives, missed, l.excess, l.beyond)
}

// printAttacks writes a line for each attack.
func printAttacks(w io.Writer, title string, reports []*report.Report) {
	fmt.Fprintf(w, "%s\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "  estimate\tattack\tlimit\tworst window\tallowed\tbeyond\twrong\ttwo counters\tblocks\tgood refused\tsharing an abuser's source\tfirst edge p99\tevery edge p99\t")
	for _, r := range reports {
		f := &r.Figures
		fmt.Fprintf(t, "  %s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f ms\t%.1f ms\t\n", r.Run.Estimate, name(r), r.Run.Limit, f.WorstWindow, f.Bound, f.BeyondBound,
			f.Wrong, r.Baseline.Wrong, f.Blocks, f.RefusedGood, f.Collateral, 1000*f.TimeToBlock.FirstEdge.P99, 1000*f.TimeToBlock.EveryEdge.P99)
	}
	t.Flush()
	fmt.Fprintln(w)
}
