// Package page is what reports are made of: numbers as people read them, tables, charts, and
// documents of these as text or as a page of HTML that needs nothing else. It knows nothing of what
// they say.
package page

import "html/template"

// Figure is a plot with its caption.
type Figure struct {
	Plot    template.HTML
	Keys    []Key
	Caption string
}

// style is the style sheet of all pages. On a phone the cells of a table may break, but no number
// leaves its unit; a table of many columns becomes a list, each cell behind the name of its column.
const style = `<style>
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2430; --soft: #5b6675; --faint: #dfe4ea; --ours: #0b6bcb; --theirs: #d9730d; --alarm: #c62f3b; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14181d; --ink: #e4e9ef; --soft: #9aa6b4; --faint: #2e363f; --ours: #5cb0ff; --theirs: #f2a154; --alarm: #ff7680; }
}
@media print {
  :root { --paper: #fff; --ink: #000; --soft: #444; --faint: #ccc; --ours: #0b6bcb; --theirs: #d9730d; --alarm: #c62f3b; }
  figure, tr { break-inside: avoid; }
  nav { display: none; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1rem; font-weight: 600; color: var(--soft); margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 0.8rem; }
h3 { font-size: 1rem; margin: 2rem 0 0.3rem; }
.answer { font-size: 1.3rem; line-height: 1.4; margin: 0 0 1.5rem; max-width: 52rem; }
.warning { border-left: 0.3rem solid var(--alarm); padding-left: 0.8rem; }
.note, dd, .how { color: var(--soft); margin: 0; font-size: 0.9rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1.5rem; margin: 1rem 0; font-size: 0.9rem; }
.how h3 { color: var(--ink); }
.how ul { margin: 0.3rem 0; padding-left: 1.2rem; }
summary { cursor: pointer; }
.wide { overflow-x: auto; margin: 1rem 0 0.5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0 0.2rem 1.5rem; border-bottom: 1px solid var(--faint); text-align: right; vertical-align: bottom; }
th { font-weight: 400; }
thead th { font-weight: 600; }
td { white-space: nowrap; }
td:nth-child(2) { font-weight: 600; }
.many th, .many td { padding-left: 1rem; white-space: normal; }
.many td:nth-child(2) { font-weight: 400; }
tr > :first-child { text-align: left; padding-left: 0 !important; }
.right tr > :first-child { text-align: right; }
.words th, .words td { text-align: left; white-space: normal; vertical-align: top; }
.words td:nth-child(2) { font-weight: 400; overflow-wrap: anywhere; }
tr > th.sub { padding-left: 1rem !important; color: var(--soft); }
.group th { font-weight: 600; padding-top: 0.8rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); gap: 2rem; margin-top: 2rem; }
figure { margin: 0; }
figcaption { font-size: 0.9rem; }
.keys { margin: 0.2rem 0; font-size: 0.85rem; color: var(--soft); display: flex; flex-wrap: wrap; gap: 0 1rem; }
.keys i { display: inline-block; width: 1.2em; height: 0.2em; margin-right: 0.4em; vertical-align: middle; print-color-adjust: exact; }
.key--ink { background: var(--ink); } .key--ours { background: var(--ours); } .key--theirs { background: var(--theirs); } .key--alarm { background: var(--alarm); }
svg { display: block; width: 100%; height: auto; fill: var(--ink); font-family: system-ui, sans-serif; }
a { color: var(--ours); }
@media (max-width: 72rem) {
  .many { font-size: 0.8rem; }
  .many th, .many td { padding-left: 0.7rem; }
}
@media (max-width: 60rem) {
  .many, .many tbody, .many tr, .many th { display: block; }
  .many thead { display: none; }
  .many tr { border-bottom: 1px solid var(--faint); padding: 0.4rem 0; display: flex; flex-wrap: wrap; gap: 0 1.2rem; }
  .many tr > :first-child { flex: 1 0 100%; text-align: left; font-weight: 600; color: var(--ink); padding-left: 0 !important; }
  .many.right tr > :first-child::before { content: attr(data-label) " "; font-weight: 400; }
  .many th, .many td { border: 0; padding: 0; }
  .many td { display: flex; flex: 1 0 9.5rem; justify-content: space-between; gap: 0.6rem; white-space: nowrap; }
  .many td:empty { display: none; }
  .many td::before { content: attr(data-label); color: var(--soft); text-align: left; }
}
@media (max-width: 40rem) {
  body { padding: 1rem; }
  .answer { font-size: 1.1rem; }
  dl { display: block; }
  dt { margin-top: 0.4rem; }
  table { width: 100%; font-size: 0.8rem; }
  th, td { padding-left: 0.5rem; }
  td { white-space: normal; }
  tr > :first-child { min-width: 6rem; }
}
</style>
`
