package config

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/pages"
)

// page reads one of pages, and its file.
func (r *reader) page(n ast.Node, c *Config) {
	var p pages.Config
	before := len(r.errs)
	seen := r.mapping(n, "pages", fields{
		"status": func(n ast.Node) {
			r.list(n, "pages.status", func(n ast.Node) {
				status := 0
				if integer(r, "pages.status", 400, 599, &status)(n); status == 0 {
					return
				}
				if slices.Contains(p.Statuses, status) {
					r.fail(n, "pages.status: %d is there twice: remove one", status)
				}
				p.Statuses = append(p.Statuses, status)
			})
		},
		"type": r.text("pages.type", func(n ast.Node, text string) {
			if p.Type = text; pages.Kind(text) == "" {
				r.fail(n,
					"pages.type: %q is not a media type: want one such as text/html or application/json", text)
			}
		}),
		"file": r.text("pages.file", func(n ast.Node, text string) {
			var err error
			if p.Text, err = r.tree.Content(n, text, pages.MaxBytes); err != nil {
				r.fail(n, "pages.file: %v", err)
			}
			p.File = text
		}),
	})
	switch {
	case seen == nil || len(r.errs) > before:
		return
	case len(p.Statuses) == 0 || p.Type == "" || p.File == "":
		r.fail(n,
			"pages: want a status, a type and a file in each of them, such as {status: [429], type: text/html, file: pages/429.html}")
	case len(c.Pages) == pages.MaxPages:
		r.fail(n, "pages: more than %d: leave out some", pages.MaxPages)
	}
	for _, other := range c.Pages {
		for _, status := range p.Statuses {
			if pages.Kind(other.Type) == pages.Kind(p.Type) && slices.Contains(other.Statuses,
				status) {
				r.fail(n, "pages: there are two of %s for %d: remove one", p.Type, status)
			}
		}
	}
	c.Pages = append(c.Pages, p)
}

// shownPages shows of what the files say a digest alone, by which a change is seen.
func shownPages(list []pages.Config) []any {
	shown := []any{}
	for _, p := range list {
		sum := sha256.Sum256(p.Text)
		shown = append(shown, map[string]any{"status": p.Statuses, "type": p.Type, "file": p.File,
			"digest": hex.EncodeToString(sum[:6])})
	}
	return shown
}
