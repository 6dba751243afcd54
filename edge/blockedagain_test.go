package edge_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/edge/edgetest"
	"sluice/edge/modules/accesslog/accesslogtest"
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

// Clients whose connection a proxy shares: those that are blocked are answered byte for byte as the first time, and fasthttp is not shown what they
// ask; those between them are passed on; and a malformed head ends the connection as ever. All that is received is logged.
func TestBlockedOfSeveral(t *testing.T) {
	e, files, end := accesslogtest.Start(t, "combined", "source: {trust: [127.0.0.0/8]}\nrules: [{name: r, limit: 3, window: 1h, mitigation_timeout: 1h}]\n")
	var shown atomic.Int64
	server := e.HTTP()
	handler := server.Handler
	server.Handler = func(ctx *fasthttp.RequestCtx) { shown.Add(1); handler(ctx) }
	const abuser = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"
	other := func(n int) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.%d\r\nContent-Length: 3\r\n\r\nabc", n)
	}
	e.Raw(strings.Repeat(abuser, 3) + strings.TrimSuffix(abuser, "\r\n") + "Connection: close\r\n\r\n")
	shown.Store(0)
	var b strings.Builder
	for n := range 10 {
		b.WriteString(abuser)
		b.WriteString(other(n))
		b.WriteString(strings.Replace(strings.TrimSuffix(abuser, "\r\n"), "GET", "POST", 1) + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
	}
	all := e.Raw(b.String() + strings.TrimSuffix(abuser, "\r\n") + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n" + abuser)
	answers := strings.SplitAfter(instants.ReplaceAllString(all, "$1"), "HTTP/1.1 ")[1:]
	if len(answers) != 31 {
		t.Fatalf("%d answers, want 31, of which the last is that to the malformed head: %q", len(answers), answers)
	}
	for i, a := range answers[:30] {
		if i%3 != 1 && a != answers[0] || i%3 == 1 && !strings.HasPrefix(a, "200") {
			t.Errorf("answer %d is %q, the first %q", i, a, answers[0])
		}
	}
	if n := shown.Load(); n != 1+10+1 {
		t.Errorf("fasthttp was shown %d requests, want the first refusal, ten that pass and the malformed head", n)
	}
	end()
	logged := bytes.Count(files.Text[0].Bytes(), []byte("\n"))
	if m := e.Rest(); m["sluice_received_total"] != 35 || m["sluice_aborted_total"] != 0 || logged != 35 {
		t.Errorf("%v received, %v aborted, %d logged; want 35, none and 35", m["sluice_received_total"], m["sluice_aborted_total"], logged)
	}
}
