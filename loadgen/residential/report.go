package residential

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"sluice/loadgen/page"
	"sluice/loadgen/workload"
)

// A Report is a table: what each rule does to each scraper.
type Report struct {
	Workload          workload.ResidentialOptions `json:"workload"`
	Edges             int                         `json:"edges"`
	Window            float64                     `json:"window"` // seconds
	MitigationTimeout float64                     `json:"mitigation_timeout"`
	PassLimit         uint32                      `json:"pass_limit"` // in a window
	Cells             []Cell                      `json:"cells"`      // column by column
}

// A Cell is a rule beside a scraper.
type Cell struct {
	Row
	TLS     workload.TLS `json:"tls"`
	Rate    float64      `json:"rate"` // of the scraper, requests a second
	Figures Figures      `json:"figures"`
}

// WriteJSON writes the report with every figure.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes a table for each scraper.
func (r *Report) WriteText(w io.Writer) error {
	o := &r.Workload
	fmt.Fprintf(w, "residential: seed %d, %v, %g visitors an hour, %s of them with JavaScript; a "+
		"scraper from %v on, %s of its addresses solve\nedges %d, window %gs, blocks of %gs, "+
		"passes of %d a window\n", o.Seed, o.Duration, o.Visitors, page.Percent(o.Script),
		o.ScraperFrom, page.Percent(o.Solvers), r.Edges, r.Window, r.MitigationTimeout, r.PassLimit)
	for i := range r.Cells {
		c := &r.Cells[i]
		if i == 0 || c.TLS != r.Cells[i-1].TLS || c.Rate != r.Cells[i-1].Rate {
			library := "a TLS library of its own"
			if c.TLS == workload.CommonTLS {
				library = "the commonest browser's TLS"
			}
			fmt.Fprintf(w, "\nscraper at %g/s, with %s\n", c.Rate, library)
			if err := r.writeTable(w, c.TLS, c.Rate); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Report) writeTable(w io.Writer, tls workload.TLS, rate float64) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "rule\tlimit\tscraper let in\tbeside solvers\theavy refused\t"+
		"with JavaScript\tchallenged\tlocked out\twith JavaScript\teverywhere p99\t")
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.TLS != tls || c.Rate != rate {
			continue
		}
		f := &c.Figures
		everywhere := "-"
		if f.TimeToBlock != nil && f.TimeToBlock.EveryEdge.N > 0 {
			everywhere = page.Duration(f.TimeToBlock.EveryEdge.P99)
		}
		fmt.Fprintf(t, "%s by %s\t%d\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\t\n", c.Answer, c.Key, c.Limit,
			percent(f.LetInRatio()), percent(f.BesideSolvers()), percent(f.RefusedRatio()), f.RefusedWith,
			percent(f.ChallengedRatio()), percent(f.LockedOutRatio()), f.LockedOutWith, everywhere)
	}
	return t.Flush()
}

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
