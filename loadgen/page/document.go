package page

import (
	"bytes"
	"html/template"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Document is one answer and what it rests on, in the order in which people read: the answer in a
// sentence, tables, pictures, how it was come by. WriteText and WriteHTML keep that order, so a
// text and a page say the same.
type Document struct {
	Title   string // distinguishes it from others beside it
	Answer  string // empty: the tables speak for themselves
	Warning bool   // the answer is that there is none
	Tables  []Table
	Figures []Figure // on a page alone
	How     []string
	Details *Details
}

// Table is a table and what it takes to read it. The first row is its head; a row of one cell is a
// heading for those below it, and a name that begins with blanks belongs to the one above.
type Table struct {
	Rows  [][]string
	Notes []string    // below it
	Terms [][2]string // names in it, and what they mean
	Right bool        // the first column holds numbers, too
	Words bool        // no column holds numbers
}

// Details is what few readers need: text shows its line, and a page folds the others away below it.
type Details struct {
	Line  string   `json:"line"`
	Lines []string `json:"lines"`
	Open  bool     `json:"-"` // they are worth reading, or were asked for
}

// WriteText writes documents as text.
func WriteText(w io.Writer, documents ...Document) error {
	var b strings.Builder
	for i := range documents {
		d := &documents[i]
		if i > 0 {
			b.WriteByte('\n')
		}
		if len(documents) > 1 {
			b.WriteString(d.Title + "\n\n")
		}
		if d.Answer != "" {
			b.WriteString(wrap(d.Answer, 100) + "\n\n")
		}
		for i := range d.Tables {
			d.Tables[i].text(&b)
			b.WriteByte('\n')
		}
		b.WriteString(howTitle + "\n")
		for _, line := range d.How {
			b.WriteString("  " + line + "\n")
		}
		if d.Details != nil {
			b.WriteString("  " + d.Details.Line + "\n")
			if d.Details.Open {
				for _, line := range d.Details.Lines {
					b.WriteString("    " + line + "\n")
				}
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const howTitle = "How the run was made"

// wrap breaks a text into lines of at most so many characters, where words allow.
func wrap(s string, width int) string {
	var b strings.Builder
	at := 0
	for _, word := range strings.Split(keepUnits(s), " ") {
		word = strings.ReplaceAll(word, noBreak, " ")
		n := utf8.RuneCountInString(word)
		switch {
		case at == 0:
		case at+1+n > width:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

const noBreak = "\u00a0"

var unit = regexp.MustCompile(` (%|(s|ms|µs)\b)`)

// keepUnits has numbers and their units stay on one line.
func keepUnits(s string) string {
	return unit.ReplaceAllStringFunc(s, func(u string) string { return noBreak + u[1:] })
}

// WriteHTML writes documents as one page that needs nothing else: no network, no script, light or
// dark as its reader has it, for a phone as for paper.
func WriteHTML(w io.Writer, title string, documents ...Document) error {
	t, err := template.New("page").Funcs(template.FuncMap{"keepUnits": keepUnits, "label": label,
		"sub": sub}).Parse(htmlPage)
	if err != nil {
		return err
	}
	var b bytes.Buffer // nothing is written if the page cannot be made
	if err := t.Execute(&b, struct {
		Title, How string
		Documents  []Document
	}{title, howTitle, documents}); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

// label is the name of a column.
func label(rows [][]string, column int) string {
	if column < len(rows[0]) {
		return rows[0][column]
	}
	return ""
}

// sub reports whether a row belongs to the one above it.
func sub(name string) bool { return strings.HasPrefix(name, " ") }

const htmlPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
` + style + `<h1>{{.Title}}</h1>
{{- $several := gt (len .Documents) 1}}
{{- if $several}}
<nav><ol>{{range $i, $d := .Documents}}<li><a href="#run{{$i}}">{{.Title}}</a></li>{{end}}</ol></nav>
{{- end}}
{{- range $i, $d := .Documents}}
<article id="run{{$i}}">
{{- if $several}}
<h2>{{.Title}}</h2>
{{- end}}
{{- with .Answer}}
<p class="answer{{if $d.Warning}} warning{{end}}">{{keepUnits .}}</p>
{{- end}}
{{- range .Tables}}
{{template "table" .}}
{{- end}}
{{- with .Figures}}
<div class="plots">
{{- range .}}
<figure><figcaption>{{.Caption}}</figcaption><p class="keys">{{range .Keys}}<span><i class="key{{.Shade}}"></i>{{.Name}}</span>{{end}}</p>
{{.Plot}}</figure>
{{- end}}
</div>
{{- end}}
<section class="how"><h3>{{$.How}}</h3>
<ul>{{range .How}}<li>{{.}}</li>{{end}}</ul>
{{- with .Details}}
<details{{if .Open}} open{{end}}><summary>{{.Line}}</summary><ul>{{range .Lines}}<li>{{.}}</li>{{end}}</ul></details>
{{- end}}
</section>
</article>
{{- end}}
</html>
{{define "table"}}
{{- $rows := .Rows}}
<div class="wide"><table class="{{if gt (len (index $rows 0)) 5}}many{{end}}{{if .Right}} right{{end}}{{if .Words}} words{{end}}">
{{- range $i, $row := $rows}}
{{- if eq $i 0}}
<thead><tr>{{range .}}<th scope="col">{{.}}</th>{{end}}</tr></thead><tbody>
{{- else if eq (len .) 1}}
<tr class="group"><th scope="rowgroup" colspan="{{len (index $rows 0)}}">{{index . 0}}</th></tr>
{{- else}}
<tr>{{range $j, $c := .}}{{if eq $j 0}}<th scope="row" data-label="{{label $rows 0}}"{{if sub $c}} class="sub"{{end}}>{{$c}}</th>{{else}}<td data-label="{{label $rows $j}}">{{keepUnits $c}}</td>{{end}}{{end}}</tr>
{{- end}}
{{- end}}
</tbody></table></div>
{{- range .Notes}}
<p class="note">{{.}}</p>
{{- end}}
{{- with .Terms}}
<dl>{{range .}}<dt>{{index . 0}}</dt><dd>{{index . 1}}</dd>{{end}}</dl>
{{- end}}
{{end}}`
