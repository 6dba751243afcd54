package whatif

import (
	"fmt"
	"io"

	"sluice/loadgen/page"
	"sluice/loadgen/report"
)

// WriteHTML writes a report as one page, the answer first.
func WriteHTML(w io.Writer, r *Report) error {
	d := r.document()
	add := func(c *page.Chart, caption string) {
		d.Figures = append(d.Figures, page.Figure{Plot: c.SVG(), Keys: c.Keys, Caption: caption})
	}
	if len(r.timeline.Admitted) > 1 {
		add(report.TimelineChart(&r.timeline, nil),
			fmt.Sprintf("What would have become of the requests, in steps of %s.",
				report.Seconds(r.timeline.Step).Round()))
	}
	for i := range r.Curves {
		curve := &r.Curves[i]
		d.Tables = append(d.Tables, page.Table{Rows: curve.table(false), Right: true})
		if len(curve.Points) < 2 {
			continue
		}
		add(curve.chart(),
			"Share of requests and of sources refused by "+curve.Rule+" alone, by its limit.")
	}
	return page.WriteHTML(w, "Sluice: what rules would have done", d)
}
