package loadgen

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
)

// whatIfPage is what the template shows.
type whatIfPage struct {
	Title, Sentence, Answers string
	Lines                    []string
	Rules, Refused, Good     [][]string
	More                     int
	Timeline                 *figure
	Curves                   []whatIfCurve
}

type whatIfCurve struct {
	Rule  string
	Plot  figure
	Table [][]string
}

// WriteWhatIfHTML writes a report as one page that needs nothing else, in the manner of WriteHTML.
func WriteWhatIfHTML(w io.Writer, r *WhatIf) error {
	lines := r.lines()
	p := whatIfPage{
		Title: lines[0], Lines: lines[1:], Sentence: r.sentence(), Answers: r.answers(),
		Rules: r.rulesTable(), Good: r.goodTable(), More: len(r.Refused) - r.top,
	}
	if rows := r.refusedTable(); len(rows) > 1 {
		p.Refused = rows
	}
	if len(r.timeline.Admitted) > 1 {
		c, err := timelineChart(&r.timeline, nil)
		if err != nil {
			return err
		}
		drawn, err := c.svg()
		if err != nil {
			return err
		}
		p.Timeline = &figure{drawn, c.Keys, fmt.Sprintf("What would have become of the requests, in steps of %s.", duration(r.timeline.Step.Seconds()))}
	}
	for i := range r.Curves {
		curve := &r.Curves[i]
		if len(curve.Points) < 2 {
			continue
		}
		c, err := curve.chart()
		if err != nil {
			return err
		}
		drawn, err := c.svg()
		if err != nil {
			return err
		}
		p.Curves = append(p.Curves, whatIfCurve{
			Rule: curve.Rule, Plot: figure{drawn, c.Keys, "Share of requests and of sources refused by " + curve.Rule + " alone, by its limit."},
			Table: curve.table(false),
		})
	}
	t, err := template.New("what-if").Parse(htmlWhatIf)
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

const htmlWhatIf = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sluice: what rules would have done</title>
` + pageStyle + `<h1>Sluice: what rules would have done</h1>
<section>
<h2>{{.Title}}</h2>
{{- range .Lines}}
<p class="about">{{.}}</p>
{{- end}}
<p>{{.Sentence}}{{with .Answers}} {{.}}{{end}}</p>
{{template "table" .Rules}}
<h3>Good traffic caught</h3>
{{template "table" .Good}}
</section>
{{- with .Timeline}}
<figure><p class="keys">{{range .Keys}}<span><i class="key{{.Shade}}"></i>{{.Name}}</span>{{end}}</p>
{{.Plot}}<figcaption>{{.Caption}}</figcaption></figure>
{{- end}}
{{- range .Curves}}
<section>
<h3>Other limits of {{.Rule}}</h3>
<figure><p class="keys">{{range .Plot.Keys}}<span><i class="key{{.Shade}}"></i>{{.Name}}</span>{{end}}</p>
{{.Plot.Plot}}<figcaption>{{.Plot.Caption}}</figcaption></figure>
{{template "table" .Table}}
</section>
{{- end}}
{{- with .Refused}}
<section>
<h3>Who would have been refused</h3>
{{template "table" .}}
{{- if gt $.More 0}}
<p class="about">And {{$.More}} more, in the JSON.</p>
{{- end}}
</section>
{{- end}}
<p class="about">Most in a window, over it, never over: by an exact log of all that was sent, as if nobody had been refused. Nobody knows what
clients would have done on being refused.</p>
</html>
` + pageTable
