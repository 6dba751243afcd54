package whatif

import (
	"bytes"
	"fmt"
	"html/template"
	"io"

	"sluice/loadgen/page"
	"sluice/loadgen/report"
)

// reportPage is what the template shows.
type reportPage struct {
	Title, Sentence, Answers string
	Lines                    []string
	Rules, Refused, Good     [][]string
	More                     int
	Plots                    []page.Figure
	Curves                   [][][]string
}

// WriteHTML writes a report as one page that needs nothing else, in the manner of WriteHTML.
func WriteHTML(w io.Writer, r *Report) error {
	lines := r.lines()
	p := reportPage{
		Title: lines[0], Lines: lines[1:], Sentence: r.sentence(), Answers: r.answers(),
		Rules: r.rulesTable(), Good: r.goodTable(), More: len(r.Refused) - r.top,
	}
	if rows := r.refusedTable(); len(rows) > 1 {
		p.Refused = rows
	}
	add := func(c *page.Chart, err error, caption string) error {
		if err != nil {
			return err
		}
		drawn, err := c.SVG()
		p.Plots = append(p.Plots, page.Figure{Plot: drawn, Keys: c.Keys, Caption: caption})
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
		p.Curves = append(p.Curves, curve.table(false))
		if len(curve.Points) < 2 {
			continue
		}
		c, err := curve.chart()
		if err := add(c, err, "Share of requests and of sources refused by "+curve.Rule+" alone, by its limit."); err != nil {
			return err
		}
	}
	t, err := template.New("what-if").Parse(htmlReport)
	if err != nil {
		return err
	}
	var b bytes.Buffer // nothing is written if the page cannot be made
	if err := t.Execute(&b, p); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

const htmlReport = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sluice: what rules would have done</title>
` + page.Style + `<h1>Sluice: what rules would have done</h1>
<section>
<h2>{{.Title}}</h2>
{{- range .Lines}}
<p class="about">{{.}}</p>
{{- end}}
<p>{{.Sentence}}{{with .Answers}} {{.}}{{end}}</p>
{{template "table" .Rules}}
{{template "table" .Good}}
</section>
<div class="plots">
{{- range .Plots}}
<figure><p class="keys">{{range .Keys}}<span><i class="key{{.Shade}}"></i>{{.Name}}</span>{{end}}</p>
{{.Plot}}<figcaption>{{.Caption}}</figcaption></figure>
{{- end}}
</div>
{{- range .Curves}}
<section>
{{template "table" .}}
</section>
{{- end}}
{{- with .Refused}}
<section>
{{template "table" .}}
{{- if gt $.More 0}}
<p class="about">And {{$.More}} more, in the JSON.</p>
{{- end}}
</section>
{{- end}}
<p class="about">Most in a window, over it, never over: by an exact log of all that was sent, as if nobody had been refused. Nobody knows what
clients would have done on being refused.</p>
</html>
` + page.TableTemplate
