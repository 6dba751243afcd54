//go:build system

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// What a visitor sees in a browser whose request is over the limit: the page, and not JSON.
func TestBrowserSeesPage(t *testing.T) {
	t.Parallel()
	folder, err := filepath.Abs("../../examples/pages")
	must(t, err)
	p := start(t, origin(t), "--config", write(t, "pages: [{status: [429], type: text/html, file: "+folder+"/429.html}]\nrules: [{name: r, limit: 1, window: 1h}]\n"))
	p.get()
	b := browse(t)
	b.open("http://" + p.front + "/")
	if title, text := eval[string](b, "document.title"), eval[string](b, "document.body.innerText"); title != "Too many requests" || !strings.Contains(text, "Please come back in ") || strings.Contains(text, "{{") {
		t.Errorf("%s: %s", title, text)
	}
	if wrong := b.errors(); len(wrong) > 0 {
		t.Errorf("%q", wrong)
	}
}
