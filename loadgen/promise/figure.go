package promise

import (
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/report"
)

// figures are what promises are about: of some runs, the number of cases and the figure, which may
// be the same. Of a time, cases are the blocks that took longer than is promised.
var figures = map[string]func(runs []*report.Report, promised float64) (cases, figure float64){
	"wrong_per_decision": func(runs []*report.Report, _ float64) (float64, float64) {
		return ratio(runs, aboveFloor,
			func(f *judge.Figures) float64 { return float64(f.Decisions) })
	},
	"wrong_per_block": func(runs []*report.Report, _ float64) (float64, float64) {
		return ratio(runs, aboveFloor, blocks)
	},
	"innocents_per_block": func(runs []*report.Report, _ float64) (float64, float64) {
		return ratio(runs,
			func(r *report.Report) float64 { return float64(r.Figures.FalsePositiveSources) },
			blocks)
	},
	"ends_per_block": func(runs []*report.Report, _ float64) (float64, float64) {
		return ratio(runs, func(r *report.Report) float64 {
			if e := r.Figures.Ends; e != nil {
				return float64(e.Early + e.Late)
			}
			return 0
		}, blocks)
	},
	"innocents": most(func(r *report.Report) float64 {
		return float64(r.Figures.FalsePositiveSources) + float64(r.Figures.WronglyLimited)
	}),
	"every_edge_p99": func(runs []*report.Report, promised float64) (late, p99 float64) {
		for _, r := range runs {
			if t := r.Figures.TimeToBlock; t != nil {
				late, p99 = late+lateBlocks(t, promised), max(p99, t.EveryEdge.P99)
			}
		}
		return late, p99
	},
	"overshoot_p99": most(func(r *report.Report) float64 {
		over := r.Figures.Overshoot.P99
		if r.Floor != nil {
			over -= r.Floor.Overshoot.P99
		}
		return over
	}),
	"beyond_bound": most(func(r *report.Report) float64 { return float64(r.Figures.BeyondBound) }),
	"failed":       most(func(r *report.Report) float64 { return float64(r.Figures.Failed) }),
}

// aboveFloor is the wrong decisions that an exact log would not have made that is one round trip
// late.
func aboveFloor(r *report.Report) float64 {
	n := float64(r.Figures.Wrong)
	if r.Floor != nil {
		n -= float64(r.Floor.Wrong)
	}
	return max(n, 0)
}

func blocks(f *judge.Figures) float64 { return float64(f.Blocks) }

// ratio is a sum over runs, and its ratio to another: of nothing there is none, so the sum itself.
func ratio(runs []*report.Report, of func(*report.Report) float64,
	by func(*judge.Figures) float64) (n, share float64) {
	all := 0.0
	for _, r := range runs {
		n += of(r)
		all += by(&r.Figures)
	}
	return n, n / max(all, 1)
}

// most is the largest of runs.
// lateBlocks is how many blocks took longer on every edge.
func lateBlocks(t *judge.TimeToBlock, promised float64) (n float64) {
	if t.EveryEdgeTimes == nil { // it was read from a file: at least those that p99 does not cover
		if t.EveryEdge.P99 > promised {
			n = float64(t.EveryEdge.N/100 + 1)
		}
		return n
	}
	for _, bar := range t.EveryEdgeTimes.Distribution() {
		if float64(bar.To) > promised*float64(time.Second) {
			n += float64(bar.Count)
		}
	}
	return n
}

func most(of func(*report.Report) float64) func([]*report.Report, float64) (float64, float64) {
	return func(runs []*report.Report, _ float64) (n, largest float64) {
		for _, r := range runs {
			largest = max(largest, of(r))
		}
		return largest, largest
	}
}
