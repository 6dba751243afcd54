//go:build system

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// products is an origin with a page that says which cookies it got. let counts the requests that it
// gets for products.
func products(t *testing.T) (url string, let *atomic.Int64) {
	let = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/search") {
			let.Add(1)
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!doctype html><p>the products, with %q", r.Header.Get("Cookie"))
	}))
	t.Cleanup(server.Close)
	return server.URL, let
}

// startBusy starts two edges of a PoP, with a rule that challenges who is over the limit of a path.
// let counts the requests that its origin gets.
func startBusy(t *testing.T, more string) (edges [2]*process, let *atomic.Int64) {
	origin, let := products(t)
	config := write(t, fmt.Sprintf(`
pop: {name: fra1, memcached: [%q], secret_file: %s}
source: {trust: [127.0.0.0/8]}
origins: [{servers: [%q]}]
rules:
  - name: page
    match: {path: "/search/*"}
    key: path
    limit: 1
    window: 1h
    mitigation_timeout: 1h
    action: challenge
    challenge: {%s}
`, startMemcached(t), write(t, strings.Repeat("secret of the pop ", 3)), origin, more))
	for i := range edges {
		edges[i] = start(t, "", "--config", config)
	}
	return edges, let
}

// busy has the path over its limit on every edge.
func busy(edges [2]*process, path string) {
	for range 2 {
		edges[0].request("GET", edges[0].front, path, "")
	}
	for _, p := range edges {
		p.until("challenged", func() bool {
			resp, _ := p.request("GET", p.front, path, "")
			return resp.StatusCode == http.StatusTooManyRequests
		})
	}
}

// says is what a page has in its body.
func (b *tab) says() string { b.t.Helper(); return eval[string](b, `document.body.innerText`) }

// seesProducts reports whether the browser shows the origin's page.
func (b *tab) seesProducts() bool {
	// While the page loads anew there is none to ask
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText`))
	return err == nil && strings.Contains(text, "the products")
}

// A visitor's browser answers, loads what it wanted once, and shows the pass on every edge.
func TestChromiumGetsAPass(t *testing.T) {
	edges, let := startBusy(t, "pass_limit: 30")
	busy(edges, "/search/a")
	before := let.Load()
	b := browse(t)
	b.open("http://" + edges[0].front + "/search/a?q=1")
	edges[0].until("letting the browser in", b.seesProducts)
	if got := b.says(); got != `the products, with ""` {
		t.Errorf("the origin's page: %q", got)
	}
	b.open("http://" + edges[1].front + "/search/a?q=2") // the cookie is of the host, whatever port
	if got := b.says(); got != `the products, with ""` {
		t.Errorf("on another edge: %q", got)
	}
	if n := let.Load() - before; n != 2 {
		t.Errorf("the origin got %d requests, want 2", n)
	}
	if text := edges[0].metric(`sluice_challenges_total{result="solved",rule="page"}`); text != "1" {
		t.Errorf("%s answers made a pass, want 1", text)
	}
	if wrong := b.errors(); len(wrong) > 0 {
		t.Errorf("the browser says %q", wrong)
	}
}

// A browser that takes no cookies is told so, and loads nothing again.
func TestChromiumWithoutCookies(t *testing.T) {
	edges, _ := startBusy(t, "contact: Write to web@shop.example.")
	busy(edges, "/search/a")
	folder := t.TempDir()
	must(t, os.Mkdir(filepath.Join(folder, "Default"), 0o700))
	must(t, os.WriteFile(filepath.Join(folder, "Default", "Preferences"),
		[]byte(`{"profile":{"default_content_setting_values":{"cookies":2}}}`), 0o600))
	b := browse(t, chromedp.UserDataDir(folder))
	shown := `sluice_challenges_total{result="shown",rule="page"}`
	before := edges[0].metric(shown)
	b.open("http://" + edges[0].front + "/search/a")
	b.until(`document.body.innerText.includes("refuses the cookie")`)
	if got := b.says(); !strings.Contains(got, "Try again") ||
		!strings.Contains(got, "web@shop.example") {
		t.Errorf("the page: %q", got)
	}
	// What would load again does so at once: other pages have come and gone meanwhile
	for range 5 {
		eval[bool](b, `fetch("/").then(r => r.ok)`)
	}
	var n, of int
	fmt.Sscan(before, &of)
	if fmt.Sscan(edges[0].metric(shown), &n); n != of+1 {
		t.Errorf("the page was shown %d times, want once", n-of)
	}
}

// Without JavaScript the page says so in words, in the language of its reader, and has no line that
// speaks of a calculation under way.
func TestChromiumWithoutScript(t *testing.T) {
	edges, _ := startBusy(t, "difficulty: 20")
	busy(edges, "/search/a")
	b := browse(t)
	_, err := chromedp.Call(b.ctx, network.Enable, network.EnableParams{})
	must(t, err)
	_, err = chromedp.Call(b.ctx, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{
		Headers: network.Headers{"Accept-Language": "fr-FR, en;q=0.5"}})
	must(t, err)
	_, err = chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	must(t, err)
	b.open("http://" + edges[0].front + "/search/a")
	if got := b.says(); !strings.Contains(got, "JavaScript, qui est désactivé") ||
		strings.Contains(got, "court calcul, puis") || strings.Contains(got, "Réessayer") {
		t.Errorf("the page: %q", got)
	}
	b.fits(t)
}

// The page is readable in light and dark, and fits a narrow window. It cannot send its answer, so it
// stays, and says so.
func TestChromiumSeesThePage(t *testing.T) {
	edges, _ := startBusy(t, "difficulty: 1")
	busy(edges, "/search/a")
	b := browse(t)
	_, err := chromedp.Call(b.ctx, network.Enable, network.EnableParams{})
	must(t, err)
	_, err = chromedp.Call(b.ctx, network.SetBlockedURLs, network.SetBlockedURLsParams{
		URLPatterns: []*network.BlockPattern{{URLPattern: "*://*:*/.well-known/*", Block: true}}})
	must(t, err)
	for _, look := range []struct {
		width  int64
		scheme string
		dark   bool
	}{{1280, "light", false}, {1280, "dark", true}, {320, "light", false}, {320, "dark", true}} {
		must(t, chromedp.Do(b.ctx, chromedp.EmulateViewport(look.width, 700)))
		_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}}})
		must(t, err)
		b.open("http://" + edges[0].front + "/search/a")
		b.until(`document.body.innerText.includes("could not be finished")`)
		b.fits(t)
		// Canvas and CanvasText, as the browser has them
		sum := eval[int](b, `(() => {
			const e = document.body.appendChild(document.createElement("i"))
			e.style.color = "Canvas"
			return getComputedStyle(e).color.match(/\d+/g).slice(0, 3).reduce((n, c) => n + +c, 0)
		})()`)
		if dark := sum < 3*128; dark != look.dark {
			t.Errorf("%d wide, %s: the background is %d of 765", look.width, look.scheme, sum)
		}
	}
}

// fits reports what is wider than the window.
func (b *tab) fits(t *testing.T) {
	t.Helper()
	if over := eval[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		t.Errorf("the page is %d pixels wider than the window", over)
	}
}
