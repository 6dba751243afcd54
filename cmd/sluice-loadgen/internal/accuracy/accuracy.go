// Package accuracy runs everything by which the limiter's accuracy is judged: on access logs, or
// made traffic in their place, by itself and over eight edges; against adversaries; and on the
// calibrated streams of the published size. Of each it writes a table.
package accuracy

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
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/virtual"
	"sluice/cmd/sluice-loadgen/internal/simulate"
	"sluice/loadgen/judge"
	"sluice/loadgen/page"
	"sluice/loadgen/promise"
	"sluice/loadgen/report"
	"sluice/loadgen/trace"
	"sluice/loadgen/workload"
)

// suite is what the accuracy command measures: traffic, and how much of it.
type suite struct {
	files       []string // access logs; none: made traffic
	limits      []uint
	window      time.Duration
	adversaries []string
	duration    time.Duration // of an adversary; 0: what suits it
	limit       uint          // that it plays against
	published   bool          // the stream of the published size as well
	scale       int           // of that: one part in so many
	seed        uint64
	seeds       int // of where in its second a one-second stamp lies
	headline    bool
}

// adversaries are the workloads that are made against limiters.
func adversaries() []string {
	return []string{"constant", "ramp", "onoff", "edge-burst", "just-above", "parallel",
		"rotate-64", "rotate-24", "below", "nat", "flash-crowd", "stuffing"}
}

// Command is the subcommand accuracy: it runs everything by which the limiter's accuracy is judged,
// and writes a table for each log and a summary.
func Command(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("accuracy", pflag.ContinueOnError)
	logs := flags.String("logs", "",
		"`DIR` with access logs (.log, .jsonl, .csv, or .gz of one); none: made traffic alone")
	short := flags.Bool("short", false,
		"small workloads alone, and the published stream at a hundredth: seconds, not minutes")
	sizes := flags.Bool("sizes", false,
		"judge every workload over 1, 8, 24, 48 and 64 edges, and nothing else")
	headline := flags.Bool("headline", false,
		"judge the logs over eight edges that block, by the default estimate, and nothing else")
	innocents := flags.Bool("innocents", false,
		"judge sources that keep within their limit, at six limits over 1 to 64 edges, and nothing else: none may be refused")
	published := flags.Bool("published", true,
		"judge the streams of the published size as well; without them it takes half the time")
	seed := flags.Uint64("seed", 1,
		"of workloads, and of where in its second a one-second stamp lies")
	seeds := flags.Int("seeds", 4,
		"so many seeds from --seed on, of where in its second a one-second stamp lies and of made traffic;\nfigures are given as min-max over them")
	file := flags.String("json", "", "write all reports to this `FILE` as JSON, too")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if *seeds < 1 {
		return cli.Usagef("--seeds %d: want at least 1", *seeds)
	}
	s := suite{
		limits: []uint{20, 60, 120}, window: time.Minute, adversaries: adversaries(), limit: 100,
		published: *published, scale: 1, seed: *seed, seeds: *seeds, headline: *headline,
	}
	if *short {
		s.limits, s.window, s.duration, s.limit, s.scale = []uint{20}, 10*time.Second, time.Minute,
			20, 100
		// No adversary: --innocents judges it whole
		s.adversaries = append(s.adversaries, "innocents")
	}
	if err := s.find(*logs); err != nil {
		return err
	}
	if *innocents {
		return s.runInnocents(ctx, os.Stdout)
	}
	began := time.Now()
	run := s.run
	if *sizes {
		run = s.runSizes
	}
	reports, err := run(ctx, os.Stdout)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d runs in %v\n", len(reports), time.Since(began).Round(time.Second))
	found, err := promise.Check(reports)
	if err != nil {
		return err
	}
	if err := promise.Write(os.Stdout, found); err != nil {
		return err
	}
	if err := cli.ToFile(*file, func(w io.Writer) error {
		return report.WriteJSON(w, reports...)
	}); err != nil {
		return err
	}
	return promise.Err(found)
}

// find names the logs of a directory.
func (s *suite) find(dir string) error {
	if dir == "" {
		return nil
	}
	for _, kind := range []string{"*.log", "*.log.gz", "*.jsonl", "*.jsonl.gz", "*.csv",
		"*.csv.gz"} {
		found, err := filepath.Glob(filepath.Join(dir, kind))
		if err != nil {
			return cli.Usagef("--logs %s: %v", dir, err)
		}
		s.files = append(s.files, found...)
	}
	if len(s.files) == 0 {
		return cli.Usagef("--logs %s: no .log, .jsonl or .csv there, nor .gz of one", dir)
	}
	slices.Sort(s.files)
	return nil
}

// oneLog is a log, or made traffic in place of one.
type oneLog struct {
	title  string
	digest string
	traces []*trace.Trace // with each seed; of whole stamps and of workloads there is one
}

// load reads a log, with each seed if it has stamps of whole seconds.
func (s *suite) load(file string) (*oneLog, error) {
	digest, err := trace.Digest(file)
	if err != nil {
		return nil, err
	}
	log := &oneLog{digest: digest}
	for i := range s.seeds {
		t, err := trace.Read(trace.ReadOptions{Seed: s.seed + uint64(i)}, file)
		if err != nil {
			return nil, err
		}
		if log.traces = append(log.traces, t); !t.Coarse {
			break
		}
	}
	t := log.traces[0]
	log.title = fmt.Sprintf("%s: %s requests of %s sources, SHA-256 %s… (uncompressed)", t.Name,
		page.Thousands(uint64(len(t.Requests))), page.Thousands(uint64(len(t.Sources))),
		digest[:12])
	if n := len(log.traces); n > 1 {
		log.title += fmt.Sprintf("\n  seeds %d to %d of where in its second a stamp lies, as min-max, multiples of sums", s.seed, s.seed+uint64(n)-1)
	}
	return log, nil
}

// make is made traffic in a log's place.
func (s *suite) make(name string) (*oneLog, error) {
	t, err := workload.Generate(name, workload.Options{Seed: s.seed, Limit: uint32(s.limits[0]),
		Window: s.window, Duration: 6 * s.window})
	if err != nil {
		return nil, err
	}
	title := fmt.Sprintf("%s (made, seed %d): %s requests of %s sources", name, s.seed,
		page.Thousands(uint64(len(t.Requests))), page.Thousands(uint64(len(t.Sources))))
	return &oneLog{title: title, traces: []*trace.Trace{t}}, nil
}

type oneRun struct {
	trace    func() (*trace.Trace, error)
	digest   string
	mode     judge.Mode
	limit    uint
	estimate string
	edges    int
	nodes    int // 0: one for every two edges
}

// setups are what each log is judged in: the mode, and the number of edges; and by which estimates.
func (s *suite) setups() (modes []oneRun, estimates []string) {
	deployed := oneRun{mode: judge.Deployed, edges: 8}
	if s.headline {
		return []oneRun{deployed}, []string{"nearest"}
	}
	return []oneRun{{mode: judge.Estimator, edges: 1}, {mode: judge.Deployed, edges: 1},
		deployed}, []string{"nearest", "lower"}
}

func (r *oneRun) setup() string {
	if r.edges == 1 {
		return fmt.Sprintf("%v, 1 edge", r.mode)
	}
	return fmt.Sprintf("%v, %d edges", r.mode, r.edges)
}

// run makes all runs, as many at once as there are processors, and prints each table when it is
// complete.
func (s *suite) run(ctx context.Context, w io.Writer) (all []*report.Report, err error) {
	names, open := s.files, s.load
	if len(names) == 0 {
		names, open = []string{"mixed", "burst"}, s.make
	}
	var totals []*tableRow
	for _, name := range names {
		log, err := open(name)
		if err != nil {
			return nil, err
		}
		rows, reports, err := s.judgeLog(ctx, log)
		if err != nil {
			return nil, err
		}
		printRows(w, log.title, rows)
		totals = addRows(totals, rows)
		all = append(all, reports...)
	}
	if len(names) > 1 {
		printRows(w, fmt.Sprintf("all %d, every limit, summed up; gaps are the widest", len(names)),
			totals)
	}
	if s.headline {
		return all, nil
	}
	attacks, err := s.judgeAttacks(ctx)
	if err != nil {
		return nil, err
	}
	printAttacks(w,
		fmt.Sprintf("adversaries, deployed mode, 8 edges, 4 nodes, 1 ms, seeds %d to %d as min-max",
			s.seed, s.seed+uint64(s.seeds)-1), attacks, s.seeds)
	all = append(all, attacks...)
	if !s.published {
		return all, nil
	}
	published, err := s.judgePublished(ctx, w)
	return append(all, published...), err
}

// judgeLog makes the runs of a log: a row for each setup, estimate and limit.
func (s *suite) judgeLog(ctx context.Context,
	log *oneLog) (rows []*tableRow, reports []*report.Report, err error) {
	var runs []oneRun
	modes, estimates := s.setups()
	for _, setup := range modes {
		for _, estimate := range estimates {
			for _, limit := range s.limits {
				for _, t := range log.traces {
					setup.trace, setup.digest = func() (*trace.Trace, error) {
						return t, nil
					}, log.digest
					setup.limit, setup.estimate = limit, estimate
					runs = append(runs, setup)
				}
				rows = append(rows, &tableRow{setup: setup.setup(), estimate: estimate,
					limit: fmt.Sprint(limit), seeds: make([]tableLine, len(log.traces))})
			}
		}
	}
	if reports, err = s.runAll(ctx, log.traces[0].Name, runs); err != nil {
		return nil, nil, err
	}
	next := 0
	for _, row := range rows {
		for i := range row.seeds {
			row.seeds[i].add(reports[next])
			next++
		}
	}
	return rows, reports, nil
}

func (s *suite) judgeAttacks(ctx context.Context) ([]*report.Report, error) {
	var runs []oneRun
	for _, estimate := range []string{"nearest", "lower"} {
		for _, name := range s.adversaries {
			for seed := range s.seeds {
				o := workload.Options{Seed: s.seed + uint64(seed), Limit: uint32(s.limit),
					Window: s.window, Duration: s.duration}
				if s.scale > 1 && name == "below" {
					o.Rate = 1000
				}
				runs = append(runs, oneRun{
					trace: func() (*trace.Trace, error) { return workload.Generate(name, o) },
					mode:  judge.Deployed, limit: s.limit, estimate: estimate, edges: 8,
				})
			}
		}
	}
	return s.runAll(ctx, "adversaries", runs)
}

// judgePublished judges the calibrated streams of the published size, source by source, and of a
// tenth of it in the order of time.
func (s *suite) judgePublished(ctx context.Context, w io.Writer) (all []*report.Report, err error) {
	f := &cli.RuleFlags{Limits: []uint{100}, Window: time.Minute, SubWindows: 12,
		Estimates: []string{"nearest", "lower"}, Mode: judge.Estimator.String()}
	_, rules, err := f.Rules()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{workload.PublishedBursty, workload.PublishedPoisson} {
		for _, inOrder := range []bool{false, true} {
			judged, scale, how := simulate.Published, s.scale, "source by source"
			if inOrder {
				judged, scale, how = simulate.InOrder, 10*s.scale,
					"all sources in one table, in the order of time"
			}
			reports, err := judged(ctx, name, scale, s.seed, rules)
			if err != nil {
				return nil, err
			}
			var rows []*tableRow
			for _, r := range reports {
				row := &tableRow{setup: "estimator, 1 edge", estimate: r.Run.Estimate,
					limit: fmt.Sprint(r.Run.Limit), seeds: make([]tableLine, 1)}
				row.seeds[0].add(r)
				rows = append(rows, row)
			}
			printRows(w, fmt.Sprintf("%s, one part in %d, %s, in %v\n  %s", name, scale, how,
				time.Duration(reports[0].Run.Took).Round(time.Second), workload.Calibrated), rows)
			all = append(all, reports...)
		}
	}
	return all, nil
}

func (s *suite) runAll(ctx context.Context, title string, runs []oneRun) ([]*report.Report, error) {
	reports, errs := make([]*report.Report, len(runs)), make([]error, len(runs))
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(runs) &&
				ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				reports[i], errs[i] = s.one(ctx, runs[i])
				fmt.Fprintf(os.Stderr, "\r%s: %d of %d ", title, done.Add(1), len(runs))
			}
		})
	}
	wg.Wait()
	fmt.Fprintln(os.Stderr)
	return reports, errors.Join(append(errs, ctx.Err())...)
}

func (s *suite) one(ctx context.Context, r oneRun) (*report.Report, error) {
	t, err := r.trace()
	if err != nil {
		return nil, err
	}
	f := &cli.RuleFlags{Limits: []uint{r.limit}, Window: s.window, Timeout: s.window,
		SubWindows: 12, Estimates: []string{r.estimate}, Mode: r.mode.String()}
	mode, rules, err := f.Rules()
	if err != nil {
		return nil, err
	}
	size := &cli.PoP{Size: virtual.Size{Edges: r.edges, Nodes: r.nodes, RTT: time.Millisecond},
		PerConnection: 20, Quiet: true}
	if err := size.Check(); err != nil {
		return nil, err
	}
	found, err := simulate.Run(ctx, t, mode, rules[0], size)
	if err == nil {
		found.Run.Digest = r.digest
	}
	return found, err
}

func name(r *report.Report) string { return r.Run.Trace + r.Run.Workload }

// overRuns is the least and the most of a figure over runs that differ in the seed alone, or the
// one that there is.
func overRuns(rows []*report.Report, format string, of func(*report.Report) float64) string {
	least, most := math.Inf(1), math.Inf(-1)
	for _, r := range rows {
		least, most = min(least, of(r)), max(most, of(r))
	}
	from, to := fmt.Sprintf(format, least), fmt.Sprintf(format, most)
	if from == to {
		return from
	}
	return from + "-" + to
}

// floorOf is how many wrong decisions the floor makes: none on one edge, which knows at once.
func floorOf(r *report.Report) float64 {
	if r.Floor == nil {
		return 0
	}
	return float64(r.Floor.Wrong)
}

// printAttacks writes a line for each attack, of runs that differ in the seed alone.
func printAttacks(w io.Writer, title string, reports []*report.Report, seeds int) {
	fmt.Fprintf(w, "%s\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t,
		"  estimate\tattack\tlimit\tworst window\tallowed\tbeyond\twrong\tfloor\t% wrong answers\ttwo counters\t% wrong answers of theirs\tblocks\tover, never refused\tgood refused\tsharing an abuser's source"+
			"\tfirst edge p99 ms\tevery edge p99 ms\tby the exact log p99 ms\t")
	var easier []string
	for ; len(reports) > 0; reports = reports[seeds:] {
		rows, r := reports[:seeds], reports[0]
		if r.Floor.Wrong > r.Baseline.Wrong && !slices.Contains(easier, name(r)) {
			easier = append(easier, name(r))
		}
		count := func(of func(*judge.Figures) float64) string {
			return overRuns(rows, "%.0f", func(r *report.Report) float64 { return of(&r.Figures) })
		}
		ms := func(of func(*judge.Figures) float64) string {
			return overRuns(rows, "%.1f",
				func(r *report.Report) float64 { return 1000 * of(&r.Figures) })
		}
		cells := []string{
			r.Run.Estimate, name(r), fmt.Sprint(r.Run.Limit),
			count(func(f *judge.Figures) float64 { return float64(f.WorstWindow) }),
			count(func(f *judge.Figures) float64 { return float64(f.Bound) }),
			count(func(f *judge.Figures) float64 { return float64(f.BeyondBound) }),
			count(func(f *judge.Figures) float64 { return float64(f.Wrong) }),
			overRuns(rows, "%.0f", floorOf),
			overRuns(rows, "%.2g",
				func(r *report.Report) float64 { return 100 * r.Figures.WrongAnswersRatio }),
			overRuns(rows, "%.0f",
				func(r *report.Report) float64 { return float64(r.Baseline.Wrong) }),
			overRuns(rows, "%.2g",
				func(r *report.Report) float64 { return 100 * r.Baseline.WrongAnswersRatio }),
			count(func(f *judge.Figures) float64 { return float64(f.Blocks) }),
			count(func(f *judge.Figures) float64 { return float64(f.FalseNegativeSources) }),
			count(func(f *judge.Figures) float64 { return float64(f.RefusedGood) }),
			count(func(f *judge.Figures) float64 { return float64(f.Collateral) }),
			ms(func(f *judge.Figures) float64 { return f.TimeToBlock.FirstEdge.P99 }),
			ms(func(f *judge.Figures) float64 { return f.TimeToBlock.EveryEdge.P99 }),
			ms(func(f *judge.Figures) float64 { return f.TimeToBlockExact.EveryEdge.P99 }),
		}
		fmt.Fprintf(t, "  %s\t\n", strings.Join(cells, "\t"))
	}
	t.Flush()
	if len(easier) > 0 {
		fmt.Fprintf(w, "  %s: %s\n", strings.Join(easier, ", "), report.OneEdge)
	}
	fmt.Fprintln(w)
}
