package http2_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	frames "golang.org/x/net/http2"

	"sluice/edge/edgetest"
	"sluice/edge/modules/accesslog/accesslogtest"
)

// Answers of every kind arrive as the origin gave them: without a body, of known and unknown length, long ones, with trailers, with interim answers before
// them; and one that breaks off is not taken for whole.
func TestHTTP2Answers(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	answers := map[string]string{
		"/none":    "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
		"/known":   "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nKeep-Alive: timeout=5\r\nConnection: x-hop\r\nX-Hop: a\r\n\r\nhello",
		"/chunks":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
		"/trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n",
		"/close":   "HTTP/1.1 200 OK\r\n\r\nhello\x00",
		"/long":    fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(long), long),
		"/early":   "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"/broken":  "HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\nhello\x00",
	}
	o := edgetest.StartRecorder(t, func(_ int, request string) string {
		_, rest, _ := strings.Cut(request, " ")
		path, _, _ := strings.Cut(rest, " ")
		answer := answers[path]
		if strings.HasPrefix(request, "HEAD") {
			answer = answer[:strings.Index(answer, "\r\n\r\n")+4]
		}
		return answer
	})
	e := edgetest.Start(t, o.URL(), "")
	base := "https://" + e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	tr := edgetest.OverHTTP2(t)
	for _, c := range []struct {
		method, path, body string
		length             int64
	}{
		{"GET", "/none", "", 0}, {"GET", "/known", "hello", 5}, {"HEAD", "/known", "", 5}, {"GET", "/chunks", "hello world", -1}, {"GET", "/close", "hello", -1},
		{"GET", "/long", string(long), int64(len(long))}, {"GET", "/trailer", "hello", -1},
	} {
		resp, body := edgetest.Ask2(t, tr, c.method, base+c.path, nil, func(r *http.Request) { r.Header.Set("TE", "trailers") })
		if body != c.body || resp.ContentLength != c.length || resp.Header.Get("Keep-Alive")+resp.Header.Get("X-Hop")+resp.Header.Get("Connection") != "" {
			t.Errorf("%s %s: %d bytes, length %d, %v", c.method, c.path, len(body), resp.ContentLength, resp.Header)
		}
		if sum := resp.Trailer.Get("X-Sum"); (sum == "7") != (c.path == "/trailer") {
			t.Errorf("%s: trailer %q", c.path, sum)
		}
	}
	var early atomic.Int64
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if code == 103 && h.Get("Link") == "<a>" {
			early.Add(1)
		}
		return nil
	}}
	resp, body := edgetest.Ask2(t, tr, "GET", base+"/early", nil, func(r *http.Request) { *r = *r.WithContext(httptrace.WithClientTrace(r.Context(), trace)) })
	if body != "hello" || resp.StatusCode != 200 || early.Load() != 1 {
		t.Errorf("%v %q, %d interim answers", resp, body, early.Load())
	}
	r, err := http.NewRequest("GET", base+"/broken", nil)
	edgetest.Must(t, err)
	resp, err = tr.RoundTrip(r)
	edgetest.Must(t, err)
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a part is taken for the whole: %q", text)
	}
	if resp, body := edgetest.Ask2(t, tr, "GET", base+"/known", nil); resp.StatusCode != 200 || body != "hello" {
		t.Errorf("after it: %v %q", resp, body)
	}
	if n := e.Metrics()["sluice_http2_connections"]; n != 1 {
		t.Errorf("%v connections", n)
	}
}

// Bodies go on as they come, of known and unknown length, with trailers; a client is invited to send one; and one that is refused is not read.
func TestHTTP2Bodies(t *testing.T) {
	var got sync.Map
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got.Store(r.URL.Path, fmt.Sprintf("%d %v %v %d", len(body), err, r.Trailer.Get("X-Sum"), r.ContentLength))
	})
	e := edgetest.Start(t, origin, "limits: {body_bytes: 2MiB}")
	base := "https://" + e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	tr := edgetest.OverHTTP2(t)
	big := make([]byte, 1<<20)
	for i, c := range []struct {
		body   io.Reader
		change func(*http.Request)
		want   string
		status int
	}{
		{bytes.NewReader(big), nil, "1048576 <nil>  1048576", 200},
		{bytes.NewReader(big[:100]), nil, "100 <nil>  100", 200},
		{io.MultiReader(bytes.NewReader(big)), nil, "1048576 <nil>  -1", 200},
		{io.MultiReader(bytes.NewReader(big)), func(r *http.Request) {
			r.Trailer = http.Header{"X-Sum": {"7"}}
		}, "1048576 <nil> 7 -1", 200},
		{bytes.NewReader(big), func(r *http.Request) { r.Header.Set("Expect", "100-continue") }, "1048576 <nil>  1048576", 200},
		{bytes.NewReader(make([]byte, 3<<20)), nil, "", 413},
		{io.MultiReader(bytes.NewReader(make([]byte, 3<<20))), nil, "", 413},
	} {
		path := fmt.Sprint("/", i)
		resp, _ := edgetest.Ask2(t, tr, "POST", base+path, c.body, func(r *http.Request) {
			if c.change != nil {
				c.change(r)
			}
		})
		if resp.StatusCode != c.status {
			t.Errorf("%d: %s", i, resp.Status)
		}
		if text, _ := got.Load(path); c.status == 200 && text != c.want {
			t.Errorf("%d: the origin got %v, want %s", i, text, c.want)
		}
	}
}

// An edge that leaves loses no stream that a client has opened before it knew.
func TestHTTP2Drain(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var under atomic.Int64
	origin := edgetest.NetOrigin(t, func(http.ResponseWriter, *http.Request) { under.Add(1); <-release })
	s := edgetest.NewServer(t, edgetest.Parse(t, `origins: [{servers: ["`+origin+`"]}]`))
	ln := edgetest.ListenHere(t)
	certificates := edgetest.CertificatesIn(t, t.TempDir())
	done := make(chan error, 1)
	go func() { done <- s.ServeTLS(ln, certificates) }()
	f := dialFrames(t, ln.Addr().String())
	idle := dialFrames(t, ln.Addr().String())
	for i := range uint32(10) {
		f.Get(2*i + 1)
	}
	edgetest.Until(t, "all are under way", func() bool { return under.Load() == 10 })
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(context.Background(), 0) }()
	for f.goAway == nil && f.read() {
	}
	f.Get(21) // it knows, but not yet which is the last
	edgetest.Until(t, "it is under way", func() bool { return under.Load() == 11 })
	close(release)
	for i := range uint32(11) {
		if a := f.Answer(2*i + 1); a.status != "200" || !a.whole {
			t.Errorf("stream %d: %v", 2*i+1, a)
		}
	}
	idle.End()
	f.End()
	if err := <-drained; err != nil || *f.goAway != frames.ErrCodeNo || idle.goAway == nil {
		t.Errorf("%v, GOAWAY %v", err, f.goAway)
	}
	edgetest.Must(t, <-done)
}

// Where a rule or shed has connections closed, the one of a refused client takes no more requests, finishes those that are under way, and ends.
func TestHTTP2Close(t *testing.T) {
	for _, yaml := range []string{
		"rules: [{name: r, limit: 2, window: 1h, action: close}]",
		"shed: connection\nrules: [{name: r, limit: 2, window: 1h, mitigation_timeout: 1h}]",
	} {
		release := make(chan struct{})
		var got atomic.Int64
		e := edgetest.Start(t, edgetest.NetOrigin(t, func(http.ResponseWriter, *http.Request) { got.Add(1); <-release }), yaml)
		f := dialFrames(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())))
		f.Get(1)
		f.Get(3)
		edgetest.Until(t, "two are under way", func() bool { return got.Load() == 2 })
		f.Get(5)
		if a := f.Answer(5); a.status != "429" {
			t.Errorf("%s: %v", yaml, a)
		}
		f.Get(7)
		close(release)
		f.End()
		if f.Answer(1).status != "200" || f.Answer(3).status != "200" || f.Answer(7).status != "none" || f.goAway == nil {
			t.Errorf("%s: %v, %v, %v, GOAWAY %v", yaml, f.Answer(1), f.Answer(3), f.Answer(7), f.goAway)
		}
	}
}

// Without TLS HTTP/2 is for trusted proxies that know it; others get what they always got. The client is the one that the proxy names, on each stream.
func TestHTTP2Cleartext(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	const rules = "rules: [{name: r, limit: 2, window: 1h}]\n"
	trusted := edgetest.Start(t, o.URL(), rules+"http2: {cleartext: true}\nsource: {trust: [127.0.0.1]}")
	f := speakFrames(t, trusted.Dial())
	for i := range uint32(6) {
		f.Get(2*i+1, "x-forwarded-for", fmt.Sprint("192.0.2.", i%2))
		want := "200"
		if i >= 4 {
			want = "429"
		}
		if a := f.Answer(2*i + 1); a.status != want {
			t.Errorf("request %d: %v", i, a)
		}
	}
	if got := o.LastRequest(); !strings.Contains(got, "X-Forwarded-For: 192.0.2.1, 127.0.0.1\r\n") || !strings.Contains(got, "X-Forwarded-Proto: http\r\n") {
		t.Errorf("%q", got)
	}
	for _, yaml := range []string{"source: {trust: [127.0.0.1]}", "http2: {cleartext: true}\nsource: {trust: [192.0.2.1]}"} {
		e := edgetest.Start(t, o.URL(), yaml)
		if answer := e.Raw(frames.ClientPreface); !strings.HasPrefix(answer, "HTTP/1.1 505") {
			t.Errorf("%s: %q", yaml, answer)
		}
	}
	proxied := edgetest.Start(t, o.URL(), rules+"http2: {cleartext: true}\nsource: {trust: [127.0.0.1], proxy_protocol: true}")
	nc := proxied.Dial()
	_, err := io.WriteString(nc, "PROXY TCP4 192.0.2.7 192.0.2.1 1 2\r\n")
	edgetest.Must(t, err)
	f = speakFrames(t, nc)
	f.Get(1, "x-forwarded-for", "192.0.2.9")
	if a := f.Answer(1); a.status != "200" || !strings.Contains(o.LastRequest(), "X-Forwarded-For: 192.0.2.7\r\n") {
		t.Errorf("behind PROXY: %v %q", a, o.LastRequest())
	}
}

// Where it is off a client that would rather speak HTTP/2 speaks HTTP/1.1.
func TestHTTP2Off(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "http2: {enabled: false}")
	c, err := tls.Dial("tcp", e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	edgetest.Must(t, err)
	defer c.Close()
	if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
		t.Errorf("%q", p)
	}
}

// Requests that may have to wait for their verdict hold up no others of their connection.
func TestHTTP2Waits(t *testing.T) {
	t.Parallel()
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
rules:
  - {name: slow, match: {path: /slow}, algorithm: leaky_bucket, limit: 1, window: 2s, burst: 10}
  - {name: all, limit: 100, window: 1h}`)
	f := dialFrames(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())))
	var order []uint32
	for i := range uint32(3) {
		f.Ask(2*i+1, true, ":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/slow")
	}
	f.Get(7)
	for len(order) < 4 && f.read() {
		for id, a := range f.Answers {
			if a.over() && !slices.Contains(order, id) && id != 0 {
				order = append(order, id)
			}
		}
	}
	if len(order) != 4 || !slices.Contains(order[:2], 7) {
		t.Errorf("answered in the order %v", order)
	}
}

// The log has every request once, with its protocol.
func TestHTTP2Log(t *testing.T) {
	e, log, stop := accesslogtest.Start(t, "combined", "rules: [{name: r, limit: 1, window: 1h}]")
	f := dialFrames(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())))
	f.Get(1)
	f.Answer(1)
	f.Get(3)
	f.Answer(3)
	f.Ask(5, true, ":method", "get", ":scheme", "https", ":authority", "a", ":path", "/")
	f.Answer(5)
	f.c.Close()
	stop()
	var got []string
	for _, m := range regexp.MustCompile(`"(\S+) \S+ (\S+)" (\d+) `).FindAllStringSubmatch(log.Text[0].String(), -1) {
		got = append(got, strings.Join(m[1:], " "))
	}
	if got := strings.Join(got, ", "); got != "GET HTTP/2.0 200, GET HTTP/2.0 429, get HTTP/2.0 429" {
		t.Error(got)
	}
}
