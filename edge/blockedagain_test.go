package edge_test

import (
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/edge/edgetest"
)

// instants are what answers say of the time, but for its length.
var instants = regexp.MustCompile(`(Date: |t=|Reset: |Retry-After: |again in |retry_after":)[^\r;}]+`)

// A client that goes on asking while it is blocked is answered byte for byte as the first time, and fasthttp is not shown what it asks. Once the
// block is lifted it is.
func TestBlockedAgain(t *testing.T) {
	const rules = "rules: [{name: r, limit: 1, window: 1h, mitigation_timeout: 1h%s}]\n"
	for _, test := range []struct {
		name, rule, request string
		last                bool // the first refusal ends the connection
	}{
		{"a page", "", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false},
		{"HEAD", "", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", false},
		{"a body", "", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", false},
		{"a body in chunks", "", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", false},
		{"HTTP/1.0, kept", "", "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", false},
		{"a text of its own", ", response: {status: 503, body: 'away', content_type: text/plain}", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false},
		{"elsewhere", ", action: redirect, response: {location: 'https://example.org/'}", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false},
		{"the end of the connection", ", action: close", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			e := edgetest.Start(t, o.URL(), strings.Replace(rules, "%s", test.rule, 1))
			var shown atomic.Int64
			server := e.HTTP()
			handler := server.Handler
			server.Handler = func(ctx *fasthttp.RequestCtx) { shown.Add(1); handler(ctx) }
			e.Get("/") // the next is one too many
			e.Get("/") // and begins the block
			shown.Store(0)
			all := e.Raw(test.request + test.request + test.request + "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			answers := strings.SplitAfter(instants.ReplaceAllString(all, "$1"), "HTTP/1.1 ")[1:]
			if test.last {
				if len(answers) != 1 || shown.Load() != 1 {
					t.Errorf("%d answers, fasthttp was shown %d requests, want one: %q", len(answers), shown.Load(), answers)
				}
				return
			}
			if len(answers) != 4 || answers[0] != answers[1] || answers[1] != answers[2] {
				t.Errorf("%d answers, want 4, of which 3 are equal: %q", len(answers), answers)
			}
			if shown.Load() != 1 {
				t.Errorf("fasthttp was shown %d requests, want the first of the connection", shown.Load())
			}
			if m := e.Rest(); m["sluice_received_total"] != 6 || m["sluice_aborted_total"] != 0 {
				t.Errorf("%v received, %v aborted, want 6 and none", m["sluice_received_total"], m["sluice_aborted_total"])
			}
		})
	}
}

// A client whose block is lifted is passed on, on the same connection.
func TestBlockedNoLonger(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 1, window: 1h, mitigation_timeout: 1h}]\n")
	c := e.Talk()
	ask := func(want int) {
		t.Helper()
		if resp, body := c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != want {
			t.Errorf("%d %s, want %d", resp.StatusCode, body, want)
		}
	}
	ask(200)
	ask(429)
	ask(429)
	for key := range e.Limiter().Blocks.Remembered(time.Now()) {
		e.Limiter().Blocks.Lift(key, time.Now())
		e.Limiter().Counters.Forget(e.RuleSet().Rules[0].Counter, key.Source)
	}
	ask(200)
	ask(429)
	if n := len(o.Requests()); n != 2 {
		t.Errorf("%d requests came to the origin, want 2", n)
	}
}
