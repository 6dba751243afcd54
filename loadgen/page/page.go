// Package page is what reports are made of: numbers as people read them, tables, charts, and the style of a page of HTML that needs
// nothing else. It knows nothing of what they say.
package page

import "html/template"

// Figure is a plot with its caption.
type Figure struct {
	Plot    template.HTML
	Keys    []Key
	Caption string
}

// Style is the style sheet of all pages.
const Style = `<style>
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

// TableTemplate is the template of a table: the first row is its head.
const TableTemplate = `{{define "table"}}
<div class="wide"><table>
{{- range $i, $row := .}}
<tr>{{range .}}{{if $i}}<td>{{.}}</td>{{else}}<th>{{.}}</th>{{end}}{{end}}</tr>
{{- end}}
</table></div>
{{end}}`
