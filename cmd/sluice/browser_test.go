//go:build system

package main

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A tab is a page in a real Chromium.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	wrong []string // what the browser found wrong with the page
}

// browse opens an empty page.
func browse(t *testing.T, options ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	program := ""
	for _, name := range []string{"google-chrome", "chromium-browser", "chromium"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
		}
	}
	if program == "" {
		t.Fatal("this test needs a Chromium on the PATH: install it (.ci/needs chromium, or apt-get install chromium)")
	}
	limit, done := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(done)
	options = append(options, chromedp.ExecPath(program), chromedp.WindowSize(1280, 900),
		chromedp.Flag("no-sandbox", os.Getuid() == 0), chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(time.Minute))
	all, stop := chromedp.NewExecAllocator(limit, append(chromedp.DefaultExecAllocatorOptions[:], options...)...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(all)
	t.Cleanup(closeTab)
	b := &tab{t: t, ctx: ctx}
	err := chromedp.Listen(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.wrong = append(b.wrong, e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if e.Entry.Source != "network" { // the API's refusals are part of the test
				b.wrong = append(b.wrong, e.Entry.Text)
			}
		}
	})
	if err != nil {
		t.Fatalf("%s does not start: %v", program, err)
	}
	return b
}

// fatal ends the test with what the page shows.
func (b *tab) fatal(what string, err error) {
	b.t.Helper()
	at, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText.slice(0, 3000)`))
	b.t.Fatalf("%s: %v; the browser says %q; the page:\n%s", what, err, b.errors(), at)
}

// errors is what the browser has found wrong with the page.
func (b *tab) errors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wrong
}

// open loads a page.
func (b *tab) open(url string) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, chromedp.Navigate(url)); err != nil {
		b.fatal(url, err)
	}
}

// until waits for an expression to be true, as long as the browser may live: a page that is answered late asks less often. A page that goes to another
// meanwhile is asked no more, and the other is.
func (b *tab) until(js string) {
	b.t.Helper()
	for {
		_, err := chromedp.Run(b.ctx, chromedp.Poll[bool]("!!("+js+")", chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(0)))
		if err == nil {
			return
		}
		if b.ctx.Err() != nil || !strings.Contains(err.Error(), "Cannot find context") && !strings.Contains(err.Error(), "context was destroyed") {
			b.fatal(js, err)
		}
	}
}

// eval is the value of an expression, which may be a promise.
func eval[T any](b *tab, js string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		b.fatal(js, err)
	}
	return v
}

// keys types texts and presses keys.
func (b *tab) keys(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		if err := chromedp.Do(b.ctx, chromedp.KeyEvent(k)); err != nil {
			b.fatal("typing "+k, err)
		}
	}
}

// press presses a key that types nothing, because the page takes it.
func (b *tab) press(key string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: key}); err != nil {
		b.fatal("pressing "+key, err)
	}
}

// set puts a value into a field, as typing does.
func (b *tab) set(field, value string) {
	b.t.Helper()
	eval[bool](b, `(e => { e.value = `+strconv.Quote(value)+`; return e.dispatchEvent(new Event("input", {bubbles: true})); })(document.querySelector(`+strconv.Quote(field)+`))`)
}

// focus goes to an element as Tab does, until it is there; so it must be reachable by keyboard, and show that it has the focus.
func (b *tab) focus(what string) {
	b.t.Helper()
	for range 200 {
		b.keys(kb.Tab)
		if eval[bool](b, `document.activeElement?.matches(`+strconv.Quote(what)+`) === true`) {
			if eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`) == "none" {
				b.t.Errorf("%s has the focus, and does not show it", what)
			}
			return
		}
	}
	b.fatal("Tab does not reach "+what, nil)
}
