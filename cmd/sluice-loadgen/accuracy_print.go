package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"sluice/loadgen/report"
)

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
