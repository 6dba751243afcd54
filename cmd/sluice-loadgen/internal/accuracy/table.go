package accuracy

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"sluice/loadgen/page"
	"sluice/loadgen/report"
)

// tableRow is runs that differ in the seed alone.
type tableRow struct {
	setup, estimate, limit string
	seeds                  []tableLine
}

// tableLine is what came of a run, or of several, summed up.
type tableLine struct {
	requests, decisions, wrong, limited, followed, blocks uint64

	theirs, floor uint64 // wrong decisions
	// Wrong decisions of two counters and of the floor, and the refusals that followed
	theirAnswers, floorAnswers uint64
	// Seconds until blocks were in force everywhere, p99, by either clock
	everyEdge, byExact                   float64
	commands                             float64 // that the tier had
	floored                              bool    // there is a floor
	gap, theirGap                        float64
	falsePositives, falseNegatives, over int
	excess                               uint32
	margin                               float64
}

func (l *tableLine) add(r *report.Report) {
	f := &r.Figures
	one := tableLine{
		requests: f.Requests, decisions: f.Decisions, wrong: f.Wrong, limited: f.WronglyLimited,
		followed: f.WronglyMitigated, blocks: f.Blocks,
		theirs: r.Baseline.Wrong, gap: f.MeanGap, theirGap: r.Baseline.MeanGap,
		falsePositives: f.FalsePositiveSources, falseNegatives: f.FalseNegativeSources,
		over:   f.BeyondBound,
		excess: f.WorstExcess, margin: f.FalseNegativeMargin,
	}
	one.theirAnswers = r.Baseline.Wrong + r.Baseline.WronglyMitigated
	if f.TimeToBlock != nil && f.TimeToBlockExact != nil {
		one.everyEdge, one.byExact = f.TimeToBlock.EveryEdge.P99, f.TimeToBlockExact.EveryEdge.P99
	}
	if f.TierOpsPer1000 != nil {
		one.commands = *f.TierOpsPer1000 / 1000 * float64(f.Requests)
	}
	if r.Floor != nil {
		one.floor, one.floored = r.Floor.Wrong, true
		one.floorAnswers = r.Floor.Wrong + r.Floor.WronglyMitigated
	}
	l.merge(&one)
}

func (l *tableLine) merge(o *tableLine) {
	l.requests += o.requests
	l.decisions += o.decisions
	l.wrong += o.wrong
	l.limited += o.limited
	l.followed += o.followed
	l.blocks += o.blocks
	l.theirs += o.theirs
	l.theirAnswers += o.theirAnswers
	l.floorAnswers += o.floorAnswers
	l.everyEdge, l.byExact = max(l.everyEdge, o.everyEdge), max(l.byExact, o.byExact)
	l.commands += o.commands
	l.floor += o.floor
	l.floored = l.floored || o.floored
	l.gap, l.theirGap = max(l.gap, o.gap), max(l.theirGap, o.theirGap)
	l.falsePositives += o.falsePositives
	l.falseNegatives += o.falseNegatives
	l.over += o.over
	l.excess = max(l.excess, o.excess)
	l.margin = max(l.margin, o.margin)
}

// addRows sums rows up over limits and logs, seed by seed. A log of which the stamps are whole is
// the same with every seed.
func addRows(totals, rows []*tableRow) []*tableRow {
	for _, row := range rows {
		at := slices.IndexFunc(totals, func(t *tableRow) bool {
			return t.setup == row.setup && t.estimate == row.estimate
		})
		if at < 0 {
			at = len(totals)
			totals = append(totals, &tableRow{setup: row.setup, estimate: row.estimate,
				limit: "all", seeds: make([]tableLine, 1)})
		}
		total := totals[at]
		for len(total.seeds) < len(row.seeds) {
			total.seeds = append(total.seeds, total.seeds[0])
		}
		for i := range total.seeds {
			total.seeds[i].merge(&row.seeds[min(i, len(row.seeds)-1)])
		}
	}
	return totals
}

// overSeeds is the least and the most of a figure over the seeds, or the one that there is.
func (r *tableRow) overSeeds(of func(*tableLine) float64, write func(float64) string) string {
	least, most := of(&r.seeds[0]), of(&r.seeds[0])
	for i := range r.seeds {
		v := of(&r.seeds[i])
		least, most = min(least, v), max(most, v)
	}
	if a, b := write(least), write(most); a != b {
		return a + "-" + b
	}
	return write(least)
}

// printRows writes a line for each row: counts and shares, least and most over the seeds; and how
// many times as many wrong decisions as the floor makes are ours and those of two counters, and of
// ours those of two counters, summed up over the seeds, because single ones may be 0.
func printRows(w io.Writer, title string, rows []*tableRow) {
	fmt.Fprintln(w, title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t,
		"  mode\testimate\tlimit\twrong\tlimited\t% of requests\t% of decisions\t% wrong answers\tblocks\tper block\tfloor\tof it\ttwo counters\tof the floor\tof ours"+
			"\t% gap\ttheirs\tnever over, refused\tover, never refused\tworst window\tbeyond bound"+
			"\t% wrong answers of theirs\tevery edge p99 ms\tby the exact log p99 ms\tcommands a request\t% wrong answers of the floor\t")
	whole := func(v float64) string { return fmt.Sprint(int64(v)) }
	ratio := func(a, b uint64) float64 {
		if b == 0 {
			return 0
		}
		return float64(a) / float64(b)
	}
	for _, r := range rows {
		count := func(of func(*tableLine) uint64) string {
			return r.overSeeds(func(l *tableLine) float64 { return float64(of(l)) }, whole)
		}
		share := func(a, b func(*tableLine) uint64, times float64) string {
			return r.overSeeds(func(l *tableLine) float64 { return times * ratio(a(l), b(l)) },
				page.Significant)
		}
		wrong := func(l *tableLine) uint64 { return l.wrong }
		requests := func(l *tableLine) uint64 { return l.requests }
		blocks := func(l *tableLine) uint64 { return l.blocks }
		theirs := func(l *tableLine) uint64 { return l.theirs }
		floor := func(l *tableLine) uint64 { return l.floor }
		cells := []string{
			r.setup, r.estimate, r.limit, count(wrong),
			count(func(l *tableLine) uint64 { return l.limited }),
			share(wrong, requests, 100), share(wrong,
				func(l *tableLine) uint64 { return l.decisions }, 100),
			share(func(l *tableLine) uint64 { return l.wrong + l.followed }, requests, 100),
		}
		first := &r.seeds[0]
		sum := func(of func(*tableLine) uint64) (n uint64) {
			for i := range r.seeds {
				n += of(&r.seeds[i])
			}
			return n
		}
		times := func(a, b func(*tableLine) uint64) string {
			if sum(b) == 0 {
				return "-"
			}
			return page.Significant(ratio(sum(a), sum(b)))
		}
		if first.blocks > 0 {
			cells = append(cells, count(blocks), share(wrong, blocks, 1))
		} else {
			cells = append(cells, "-", "-")
		}
		if first.floored {
			cells = append(cells, count(floor), times(wrong, floor), count(theirs),
				times(theirs, floor))
		} else {
			cells = append(cells, "-", "-", count(theirs), "-")
		}
		cells = append(cells, times(theirs, wrong))
		missed := count(func(l *tableLine) uint64 { return uint64(l.falseNegatives) })
		if missed != "0" {
			missed += ", by " + r.overSeeds(func(l *tableLine) float64 { return 100 * l.margin },
				page.Significant) + " %"
		}
		cells = append(cells, r.overSeeds(func(l *tableLine) float64 { return 100 * l.gap },
			page.Significant),
			r.overSeeds(func(l *tableLine) float64 { return 100 * l.theirGap }, page.Significant),
			count(func(l *tableLine) uint64 { return uint64(l.falsePositives) }), missed,
			"+"+count(func(l *tableLine) uint64 { return uint64(l.excess) }),
			count(func(l *tableLine) uint64 { return uint64(l.over) }),
			share(func(l *tableLine) uint64 { return l.theirAnswers }, requests, 100))
		if first.blocks > 0 {
			ms := func(of func(*tableLine) float64) string {
				return r.overSeeds(func(l *tableLine) float64 { return 1000 * of(l) },
					page.Significant)
			}
			cells = append(cells, ms(func(l *tableLine) float64 { return l.everyEdge }),
				ms(func(l *tableLine) float64 { return l.byExact }))
		} else {
			cells = append(cells, "-", "-")
		}
		cells = append(cells, r.overSeeds(func(l *tableLine) float64 {
			return l.commands / float64(max(l.requests, 1))
		}, page.Significant))
		if first.floored {
			cells = append(cells,
				share(func(l *tableLine) uint64 { return l.floorAnswers }, requests, 100))
		} else {
			cells = append(cells, "-")
		}
		for _, c := range cells {
			fmt.Fprintf(t, "  %s\t", c)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	fmt.Fprintln(w)
}
