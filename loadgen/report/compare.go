package report

import (
	"fmt"

	"sluice/loadgen/design"
	"sluice/loadgen/judge"
	"sluice/loadgen/page"
)

// compareCommand is the Run.Command of a report whose subject is its designs.
const compareCommand = "compare"

// designs is the table of what others would have done, under a heading for each kind of design.
func (r *Report) designs() [][]string {
	deployed := r.Run.Mode != judge.Estimator.String()
	out := [][]string{{"design", "wrong", "allowed", "limited", "innocents", "mean gap"}}
	if deployed {
		out[0] = append(out[0], "overshoot")
	}
	out[0] = append(out[0], "store/req", "trips", "bytes")
	add := func(name string, f *judge.Figures, uncounted bool) {
		gap := page.Percent(f.MeanGap)
		if uncounted {
			gap = "–"
		}
		cells := []string{name, page.Percent(f.WrongRatio), page.Thousands(f.WronglyAllowed),
			page.Thousands(f.WronglyLimited), page.Thousands(uint64(f.FalsePositiveSources)), gap}
		if deployed {
			cells = append(cells, quantiles(&f.Overshoot, page.Significant))
		}
		of := func(v *float64, per float64) string {
			if v == nil {
				return ""
			}
			return page.Significant(*v / per)
		}
		cells = append(cells, of(f.TierOpsPer1000, 1000), of(f.AddedRoundTrips, 1), "")
		if f.BytesPerSource > 0 {
			cells[len(cells)-1] = page.Significant(f.BytesPerSource)
		}
		out = append(out, cells)
	}
	indent := ""
	if r.Run.Command != compareCommand { // there, it is one of the designs
		add("this run", &r.Figures, false)
	}
	var kind design.Kind
	for i := range r.Designs {
		d := &r.Designs[i]
		if d.Kind != kind {
			kind, indent = d.Kind, "  "
			out = append(out, []string{heading(kind, &r.Run)})
		}
		add(indent+d.Name, &d.Figures, d.Uncounted)
	}
	return out
}

func heading(k design.Kind, r *Run) string {
	if k == design.Algorithm {
		return "counted in one place"
	}
	return "counted on " + page.Plural(r.Edges, "edge")
}

// legend says what the columns of designs mean.
func (r *Report) legend() []string {
	costs := []string{
		"store/req: commands to the store that edges share, or to the owner of a key, per request; trips: there and back, that a request waits for",
		"bytes: counters of a source, in the store and on all edges",
	}
	if r.Run.Mode == judge.Estimator.String() {
		return append([]string{
			"wrong: estimate and exact count are not on the same side of the limit; allowed: the estimate is not above it; limited: it is",
			"innocents: sources found over that never were; mean gap: between estimate and exact count",
		}, costs...)
	}
	return append([]string{
		"wrong: requests let pass above the limit (allowed) and refused under it (limited; of a block, only its start)",
		"innocents: sources refused that were never over; mean gap: between estimate and exact count",
		"overshoot: requests let pass above the limit, per block: p50 / p99 / max",
	}, costs...)
}

// abouts says what each design is.
func (r *Report) abouts() (out [][2]string) {
	for _, d := range r.Designs {
		if d.About != "" {
			out = append(out, [2]string{d.Name, d.About + owners(d.Owners)})
		}
	}
	return out
}

// owners says what came of sources having owners.
func owners(o *design.Owners) string {
	if o == nil {
		return ""
	}
	s := fmt.Sprintf("; the busiest decided about %s of all requests", page.Percent(o.Hottest))
	if o.LostSources+o.LostBlocks > 0 || o.Unanswered > 0 {
		s += fmt.Sprintf("; lost: %s of %s, %s; %s passed unanswered", plural(o.LostRequests,
			"request"), page.Plural(o.LostSources, "source"),
			page.Plural(o.LostBlocks, "block"), page.Thousands(o.Unanswered))
	}
	return s
}
