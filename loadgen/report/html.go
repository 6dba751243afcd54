package report

import (
	"fmt"
	"io"

	"sluice/loadgen/judge"
	"sluice/loadgen/page"
)

// WriteHTML writes reports as one page, the answer first.
func WriteHTML(w io.Writer, reports ...*Report) error {
	var out []page.Document
	for _, r := range reports {
		d := r.document()
		d.Figures = r.plots()
		out = append(out, d)
	}
	return page.WriteHTML(w, "Sluice: how accurate it was", out...)
}

// plots draws what there is to draw.
func (r *Report) plots() (out []page.Figure) {
	if len(r.Rivals) > 0 { // they would be of the first alone
		return nil
	}
	add := func(c *page.Chart, format string, args ...any) {
		out = append(out, page.Figure{Plot: c.SVG(), Keys: c.Keys, Caption: fmt.Sprintf(format,
			args...)})
	}
	f, base := &r.Figures, &judge.Figures{}
	if r.Baseline != nil {
		base = r.Baseline
	}
	if t := f.Timeline; t != nil && len(t.Admitted) > 1 {
		marks := ""
		if len(r.Run.Faults) > 0 {
			marks = " Upright marks: the faults."
		}
		add(TimelineChart(t, r.Run.Faults), "What became of the requests, in steps of %s.%s",
			page.Duration(t.Step.Seconds()), marks)
	}
	if !f.ErrorDistribution.IsZero() {
		add(binsChart("(estimate − exact) / exact, %", "% of requests", false, f.ErrorDistribution,
			base.ErrorDistribution),
			"How far estimates were from the truth; the last step on either side holds all beyond.")
	}
	if !f.WrongByCount.IsZero() || !base.WrongByCount.IsZero() {
		add(binsChart("exact count above the limit, %", "wrong decisions", true, f.WrongByCount,
			base.WrongByCount),
			"Where decisions were wrong: by how far the exact count was from the limit.")
	}
	if t := f.TimeToBlock; t != nil && t.FirstEdge.N > 0 && t.FirstEdgeTimes != nil {
		add(blockChart(t),
			"From crossing the limit to the verdict in force: 99 of 100 within %s on the first edge, within %s on every edge.",
			page.Duration(t.FirstEdge.P99), page.Duration(t.EveryEdge.P99))
	}
	for i := range f.Series {
		s := &f.Series[i]
		name := fmt.Sprintf("source %d", s.Source)
		if int(s.Source) < len(r.Names) {
			name = r.Names[s.Source]
		}
		add(seriesChart(s, r.Run.Limit), "%s: estimate and truth around its widest gap.", name)
	}
	return out
}
