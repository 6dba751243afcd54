package http2_test

import (
	"bytes"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	frames "golang.org/x/net/http2"

	"sluice/edge/edgetest"
)

// What a client of HTTP/2 asks, the origin gets in HTTP/1.1: method, target, host, lines, body and trailers, and back.
func TestHTTP2(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 3, window: 1m}]")
	addr := e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	tr := edgetest.OverHTTP2(t)
	resp, text := edgetest.Ask2(t, tr, "GET", "https://"+addr+"/a?b=c", nil, func(r *http.Request) {
		r.Host = "A.example"
		r.Header.Set("X-Own", "v")
		r.AddCookie(&http.Cookie{Name: "a", Value: "1"})
		r.AddCookie(&http.Cookie{Name: "b", Value: "2"})
	})
	if resp.StatusCode != 200 || resp.Proto != "HTTP/2.0" || text == "" || resp.Header.Get("RateLimit") == "" || resp.Header.Get("Date") == "" {
		t.Errorf("%v %q", resp, text)
	}
	got := o.LastRequest()
	for _, want := range []string{"GET /a?b=c HTTP/1.1\r\nHost: A.example\r\n", "\r\nx-own: v\r\n", "\r\ncookie: a=1; b=2\r\n", "\r\nVia: 2.0 sluice\r\n", "\r\nX-Forwarded-Proto: https\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the origin got %q, without %q", got, want)
		}
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	resp, _ = edgetest.Ask2(t, tr, "POST", "https://"+addr+"/up", bytes.NewReader(big))
	if resp.StatusCode != 200 || !strings.HasSuffix(o.LastRequest(), string(big)) {
		t.Errorf("%d, and the origin got %d bytes", resp.StatusCode, len(o.LastRequest()))
	}
	_, _ = edgetest.Ask2(t, tr, "GET", "https://"+addr+"/", nil)
	resp, text = edgetest.Ask2(t, tr, "GET", "https://"+addr+"/", nil)
	if resp.StatusCode != 429 || !strings.Contains(text, "rate_limited") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%v %q", resp, text)
	}
	if answer := e.Raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 429") {
		t.Errorf("over HTTP/1.1: %q", answer)
	}
}

// Streams are requests: so many as a rule allows are admitted, on how many connections and over which protocol they come, also those that
// their client resets at once; and then it is blocked.
func TestHTTP2Counts(t *testing.T) {
	for _, resets := range []bool{false, true} {
		var got atomic.Int64
		origin := edgetest.NetOrigin(t, func(http.ResponseWriter, *http.Request) { got.Add(1) })
		e := edgetest.Start(t, origin, "rules: [{name: r, limit: 20, window: 1h, mitigation_timeout: 1h}]")
		addr := e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
		f, g := dialFrames(t, addr), dialFrames(t, addr)
		for i := range uint32(15) {
			f.Get(2*i + 1)
			if resets {
				edgetest.Must(t, f.WriteRSTStream(2*i+1, frames.ErrCodeCancel))
			}
		}
		edgetest.Must(t, f.WritePing(false, [8]byte{}))
		for f.acks == 0 && f.read() {
		}
		passed := 15
		for i := range uint32(10) {
			g.Get(2*i + 1)
			switch a := g.Answer(2*i + 1); {
			case a.status == "200":
				passed++
			case a.status != "429" || a.fields["retry-after"] == "" || !strings.Contains(string(a.body), "rate_limited"):
				t.Errorf("%v %v %q", a, a.fields, a.body)
			}
		}
		if passed != 20 {
			t.Errorf("resets %v: %d were admitted", resets, passed)
		}
		if answer := e.Raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 429") {
			t.Errorf("over HTTP/1.1: %q", answer)
		}
		edgetest.Until(t, "all are over", func() bool { return e.Metrics()["sluice_http2_streams"] == 0 })
		if n := got.Load(); !resets && n != 20 || n > 20 {
			t.Errorf("the origin got %d", n)
		}
		f.c.Close()
		g.c.Close()
		e.Rest()
	}
}
