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
	add := func(c *page.Chart, err error, caption string) error {
		if err != nil {
			return err
		}
		drawn, err := c.SVG()
		d.Figures = append(d.Figures, page.Figure{Plot: drawn, Keys: c.Keys, Caption: caption})
		return err
	}
	if len(r.timeline.Admitted) > 1 {
		c, err := report.TimelineChart(&r.timeline, nil)
		if err := add(c, err, fmt.Sprintf("What would have become of the requests, in steps of %s.", report.Seconds(r.timeline.Step).Round())); err != nil {
			return err
		}
	}
	for i := range r.Curves {
		curve := &r.Curves[i]
		d.Tables = append(d.Tables, page.Table{Rows: curve.table(false), Right: true})
		if len(curve.Points) < 2 {
			continue
		}
		c, err := curve.chart()
		if err := add(c, err, "Share of requests and of sources refused by "+curve.Rule+" alone, by its limit."); err != nil {
			return err
		}
	}
	return page.WriteHTML(w, "Sluice: what rules would have done", d)
}
