package report

import (
	"bytes"
	"fmt"
	"html/template"
	"io"

	"sluice/loadgen/judge"
	"sluice/loadgen/page"
)

// reportPage is what the template shows of one report.
type reportPage struct {
	Number         int
	Title          string
	Lines          []string
	Table          [][]string
	Floor          []string
	Split, Designs [][]string
	Legend         []string    // of Designs
	Abouts         [][2]string // of the designs
	Plots          []page.Figure
}

// WriteHTML writes reports as one page that needs nothing else: no network, no script, light or dark as its reader has it, fit to
// print.
func WriteHTML(w io.Writer, reports ...*Report) error {
	var pages []reportPage
	for i, r := range reports {
		lines := r.Run.lines()
		p := reportPage{Number: i + 1, Title: lines[0], Lines: lines[1:], Table: r.table(), Floor: r.floorLines()}
		if r.Split != nil {
			p.Split = splitTable(r.Split)
		}
		if len(r.Designs) > 0 {
			p.Designs, p.Legend, p.Abouts = r.designs(), r.legend(), r.abouts()
		}
		var err error
		if p.Plots, err = r.plots(); err != nil {
			return err
		}
		pages = append(pages, p)
	}
	var b bytes.Buffer // nothing is written if the page cannot be made
	t, err := template.New("report").Parse(htmlReport)
	if err != nil {
		return err
	}
	if err := t.Execute(&b, pages); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

// plots draws what there is to draw.
func (r *Report) plots() ([]page.Figure, error) {
	var out []page.Figure
	var failed error
	add := func(c *page.Chart, err error) func(format string, args ...any) {
		return func(format string, args ...any) {
			if err != nil {
				failed = err
				return
			}
			drawn, err := c.SVG()
			if err != nil {
				failed = err
			}
			out = append(out, page.Figure{Plot: drawn, Keys: c.Keys, Caption: fmt.Sprintf(format, args...)})
		}
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
		add(TimelineChart(t, r.Run.Faults))("What became of the requests, in steps of %s.%s", page.Duration(t.Step.Seconds()), marks)
	}
	if !f.ErrorDistribution.IsZero() {
		add(binsChart("(estimate − exact) / exact, %", "% of requests", false, f.ErrorDistribution, base.ErrorDistribution))(
			"How far estimates were from the truth; the last step on either side holds all beyond.")
	}
	if !f.WrongByCount.IsZero() || !base.WrongByCount.IsZero() {
		add(binsChart("exact count above the limit, %", "wrong decisions", true, f.WrongByCount, base.WrongByCount))(
			"Where decisions were wrong: by how far the exact count was from the limit.")
	}
	if t := f.TimeToBlock; t != nil && t.FirstEdge.N > 0 && t.FirstEdgeTimes != nil {
		add(blockChart(t))("From crossing the limit to the verdict in force: p99 %s on the first edge, %s on every edge.",
			page.Duration(t.FirstEdge.P99), page.Duration(t.EveryEdge.P99))
	}
	for i := range f.Series {
		s := &f.Series[i]
		name := fmt.Sprintf("source %d", s.Source)
		if int(s.Source) < len(r.Names) {
			name = r.Names[s.Source]
		}
		add(seriesChart(s, r.Run.Limit))("%s: estimate and truth around its widest gap.", name)
	}
	return out, failed
}

const htmlReport = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sluice: how accurate it was</title>
` + page.Style + `<h1>Sluice: how accurate it was</h1>
{{- if gt (len .) 1}}
<nav><ol>{{range .}}<li><a href="#run{{.Number}}">{{.Title}}</a></li>{{end}}</ol></nav>
{{- end}}
{{- range .}}
<section id="run{{.Number}}">
<h2>{{.Title}}</h2>
{{- range .Lines}}
<p class="about">{{.}}</p>
{{- end}}
{{template "table" .Table}}
{{- range .Floor}}
<p class="about">{{.}}</p>
{{- end}}
{{- with .Split}}
<h3>Where wrong decisions come from</h3>
{{template "table" .}}
{{- end}}
{{- with .Designs}}
<h3>Other designs on the same stream</h3>
{{template "table" .}}
{{- end}}
{{- range .Legend}}
<p class="about">{{.}}.</p>
{{- end}}
{{- with .Abouts}}
<p></p>
{{- end}}
{{- range .Abouts}}
<p class="about"><b>{{index . 0}}</b>: {{index . 1}}</p>
{{- end}}
</section>
<div class="plots">
{{- range .Plots}}
<figure><p class="keys">{{range .Keys}}<span><i class="key{{.Shade}}"></i>{{.Name}}</span>{{end}}</p>
{{.Plot}}<figcaption>{{.Caption}}</figcaption></figure>
{{- end}}
</div>
{{- end}}
<p class="about">Where a cell has three numbers, they are the median, the 99th percentile and the largest. Two counters: two plain counters per source on one
edge, not rounded, on the same stream. Exact, one trip late: an exact log of each source, to which hits and blocks of other edges come one round trip
late. Cloudflare 2017, beside what estimates alone: as published, of 400 million requests.</p>
</html>
` + page.TableTemplate
