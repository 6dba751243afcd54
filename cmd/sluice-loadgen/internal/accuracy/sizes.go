package accuracy

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"sluice/loadgen/judge"
	"sluice/loadgen/report"
	"sluice/loadgen/trace"
	"sluice/loadgen/workload"
)

// sizes are the numbers of edges at which a promise is measured.
func sizes() []int { return []int{1, 8, 24, 48, 64} }

// mostNodes is how many memcached nodes a PoP of these has at most: more would make its runs
// longer, and say nothing else.
const mostNodes = 8

// runSizes judges every workload, good ones as well, at every size, with each seed.
func (s *suite) runSizes(ctx context.Context, w io.Writer) ([]*report.Report, error) {
	names := append([]string{"steady", "burst", "mixed", "distributed"}, adversaries()...)
	if s.scale > 1 {
		names = []string{"burst", "constant", "edge-burst", "just-above"}
	}
	var runs []oneRun
	for _, name := range names {
		for _, edges := range sizes() {
			for seed := range s.seeds {
				o := workload.Options{Seed: s.seed + uint64(seed), Limit: uint32(s.limit),
					Window: s.window, Duration: s.duration}
				// There are many sources in these
				if name == "mixed" || name == "below" || name == "distributed" {
					o.Duration = 2 * s.window
				}
				runs = append(runs, oneRun{
					trace: func() (*trace.Trace, error) { return workload.Generate(name, o) },
					mode:  judge.Deployed, limit: s.limit, estimate: "nearest", edges: edges,
					nodes: min(edges/2, mostNodes),
				})
			}
		}
	}
	reports, err := s.runAll(ctx, "sizes", runs)
	if err != nil {
		return nil, err
	}
	printSizes(w,
		fmt.Sprintf("every workload at every size: limit %d in %v, deployed mode, nearest, 1 ms, seeds %d to %d as min-max", s.limit, s.window, s.seed, s.seed+uint64(s.seeds)-1), reports, s.seeds)
	return reports, nil
}

// printSizes writes a line for each workload and size, of runs that differ in the seed alone.
func printSizes(w io.Writer, title string, reports []*report.Report, seeds int) {
	fmt.Fprintln(w, title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t,
		"  workload\tedges\trequests\tblocks\twrong\tfloor\tper block above it\ton every edge p50 ms\tp99 ms\tby the exact log p99 ms\tover, never refused\t% wrong answers\tmean gap %\tcommands a request\tbytes\t")
	for ; len(reports) > 0; reports = reports[seeds:] {
		rows := reports[:seeds]
		of := func(format string, f func(*report.Report) float64) string {
			return overRuns(rows, format, f)
		}
		edges := max(rows[0].Run.Edges, 1)
		fmt.Fprintf(t, "  %s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n",
			name(rows[0]), edges,
			of("%.0f", func(r *report.Report) float64 { return float64(r.Figures.Requests) }),
			of("%.0f", func(r *report.Report) float64 { return float64(r.Figures.Blocks) }),
			of("%.0f", func(r *report.Report) float64 { return float64(r.Figures.Wrong) }),
			of("%.0f", floorOf), of("%.2f", func(r *report.Report) float64 {
				return max(float64(r.Figures.Wrong)-floorOf(r), 0) / float64(max(r.Figures.Blocks,
					1))
			}), of("%.0f",
				func(r *report.Report) float64 { return 1000 * r.Figures.TimeToBlock.EveryEdge.P50 }),
			of("%.0f",
				func(r *report.Report) float64 { return 1000 * r.Figures.TimeToBlock.EveryEdge.P99 }),
			of("%.0f",
				func(r *report.Report) float64 { return 1000 * r.Figures.TimeToBlockExact.EveryEdge.P99 }),
			of("%.0f",
				func(r *report.Report) float64 { return float64(r.Figures.FalseNegativeSources) }),
			of("%.2g", func(r *report.Report) float64 { return 100 * r.Figures.WrongAnswersRatio }),
			of("%.1f", func(r *report.Report) float64 { return 100 * r.Figures.MeanGap }),
			of("%.2f", func(r *report.Report) float64 {
				if r.Figures.TierOpsPer1000 == nil {
					return 0
				}
				return *r.Figures.TierOpsPer1000 / 1000
			}),
			of("%.0f", func(r *report.Report) float64 { return r.Figures.TierBytesPer1000 / 1000 }))
	}
	t.Flush()
	fmt.Fprintln(w)
}
