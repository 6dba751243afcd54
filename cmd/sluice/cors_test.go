//go:build system

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A page of another origin, in a real browser, reads why it is refused and how long it has to wait, although its requests need
// preflights; without cors the browser hides the answer.
func TestCORSInABrowser(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<title>page</title>") }))
	t.Cleanup(page.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", page.URL)
		h.Set("Access-Control-Allow-Headers", "x-own")
		h.Set("Access-Control-Allow-Methods", "PUT")
	}))
	t.Cleanup(server.Close)
	const rules = "rules: [{name: r, limit: 2, window: 1h, mitigation_timeout: 1h, response: {headers: {X-Why: \"{{origin}} waits {{retry_after}}\"}}}]\n"
	config := "origins: [{servers: [\"" + server.URL + "\"]}]\n" + rules
	with := start(t, "", "--config", write(t, "cors: {origins: [\""+page.URL+"\"], expose: [Retry-After, RateLimit, X-Why]}\n"+config))
	without := start(t, "", "--config", write(t, config))
	b := browse(t)
	b.open(page.URL)
	ask := func(p *process) string {
		return eval[string](b, `fetch("http://`+p.front+`/x", {method: "PUT", headers: {"X-Own": "1"}})
			.then(r => r.status + " " + (r.headers.get("Retry-After") > 0) + " " + !!r.headers.get("RateLimit") + " " + (r.headers.get("X-Why") || "").startsWith(location.origin + " waits "))
			.catch(e => "hidden")`)
	}
	for i, want := range []string{"200 false false false", "200 false false false", "429 true true true", "429 true true true"} {
		if got := ask(with); got != want {
			t.Errorf("request %d: %q, want %q", i+1, got, want)
		}
	}
	got := ""
	for range 4 { // two of which are preflights that count
		got = ask(without)
	}
	if got != "hidden" {
		t.Errorf("without cors: %q", got)
	}
}
