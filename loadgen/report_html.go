package loadgen

import (
	"bytes"
	"fmt"
	"html/template"
	"io"

	"sluice/loadgen/judge"
)

// figure is a plot with its caption.
type figure struct {
	Plot    template.HTML
	Keys    []chartKey
	Caption string
}

// page is what the template shows of one report.
type page struct {
	Number         int
	Title          string
	Lines          []string
	Table          [][]string
	Split, Designs [][]string
	Legend         []string    // of Designs
	Abouts         [][2]string // of the designs
	Plots          []figure
}

// WriteHTML writes reports as one page that needs nothing else: no network, no script, light or dark as its reader has it, fit to
// print.
func WriteHTML(w io.Writer, reports ...*Report) error {
	var pages []page
	for i, r := range reports {
		lines := r.Run.lines()
		p := page{Number: i + 1, Title: lines[0], Lines: lines[1:], Table: r.table()}
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
func (r *Report) plots() ([]figure, error) {
	var out []figure
	var failed error
	add := func(c *chart, err error) func(format string, args ...any) {
		return func(format string, args ...any) {
			if err != nil {
				failed = err
				return
			}
			drawn, err := c.svg()
			if err != nil {
				failed = err
			}
			out = append(out, figure{drawn, c.Keys, fmt.Sprintf(format, args...)})
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
		add(timelineChart(t, r.Run.Faults))("What became of the requests, in steps of %s.%s", duration(t.Step.Seconds()), marks)
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
			duration(t.FirstEdge.P99), duration(t.EveryEdge.P99))
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
` + pageStyle + `<h1>Sluice: how accurate it was</h1>
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
edge, not rounded, on the same stream. Cloudflare 2017: as published, of 400 million requests.</p>
</html>
` + pageTable

// pageStyle is how all pages look.
const pageStyle = `<style>
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2430; --soft: #5b6675; --faint: #dfe4ea; --ours: #0b6bcb; --theirs: #d9730d; --alarm: #c62f3b; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14181d; --ink: #e4e9ef; --soft: #9aa6b4; --faint: #2e363f; --ours: #5cb0ff; --theirs: #f2a154; --alarm: #ff7680; }
}
@media print {
  :root { --paper: #fff; --ink: #000; --soft: #444; --faint: #ccc; --ours: #0b6bcb; --theirs: #d9730d; --alarm: #c62f3b; }
  section, figure, table { break-inside: avoid; }
  nav { display: none; }
}
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 0.3rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 0.3rem; }
.about { color: var(--soft); margin: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.9rem; border-bottom: 1px solid var(--faint); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: pre; }
th { font-weight: 600; }
td:nth-child(2) { font-weight: 600; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1.5rem; }
figure { margin: 0; }
figcaption { color: var(--soft); font-size: 0.9rem; }
.keys { margin: 0; font-size: 0.85rem; color: var(--soft); display: flex; flex-wrap: wrap; gap: 0 1rem; }
.keys i { display: inline-block; width: 1.2em; height: 0.2em; margin-right: 0.4em; vertical-align: middle; print-color-adjust: exact; }
.key--ink { background: var(--ink); } .key--ours { background: var(--ours); } .key--theirs { background: var(--theirs); } .key--alarm { background: var(--alarm); }
svg { width: 100%; height: auto; fill: var(--ink); font-family: system-ui, sans-serif; }
a { color: var(--ours); }
</style>
`

// pageTable is the template of a table: the first row is its head.
const pageTable = `{{define "table"}}
<div class="wide"><table>
{{- range $i, $row := .}}
<tr>{{range .}}{{if $i}}<td>{{.}}</td>{{else}}<th>{{.}}</th>{{end}}{{end}}</tr>
{{- end}}
</table></div>
{{end}}`
