package front_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/edge/edgetest"
)

// An origin's work for a client that has reset its connection ends at once, whatever the request was.
func TestResetEndsARequest(t *testing.T) {
	o := edgetest.StartSlowOrigin(t, 200)
	e := o.Edge(t, "")
	body := strings.Repeat("x", 200_000)
	for query, rest := range map[string]string{
		"get":        "\r\n",
		"piped":      "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", // bytes of the next request are there
		"body":       "Content-Length: 3\r\n\r\nabc",
		"long+body":  fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
		"chunked":    "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"with+close": "Connection: close\r\n\r\n",
	} {
		c := e.Dial()
		_, _ = io.WriteString(c, "PUT /slow?"+query+" HTTP/1.1\r\nHost: a\r\n"+rest)
		edgetest.Receive(t, query+" at the origin", o.Arrived)
		edgetest.Reset(c)
		if got := edgetest.Receive(t, query+" is given up", o.Given); got != query {
			t.Errorf("%s instead of %s", got, query)
		}
	}
	edgetest.Until(t, "all are closed", func() bool { return e.Connections() == 0 })
	if m := e.Rest(); m["sluice_aborted_total"] == 0 {
		t.Errorf("metrics: %v", m)
	}
	if !e.Served(edgetest.Local(2)) {
		t.Error("the origin was taken to be at fault")
	}
}

// The same over TLS, where the end of the connection says nothing to TLS itself.
func TestResetEndsARequestOverTLS(t *testing.T) {
	certificates := edgetest.CertificatesIn(t, t.TempDir())
	o := edgetest.StartSlowOrigin(t, 200)
	e := o.Edge(t, "")
	ln := edgetest.ListenHere(t)
	var serving sync.WaitGroup
	serving.Go(func() { _ = e.ServeTLS(ln, certificates) })
	t.Cleanup(func() { ln.Close(); serving.Wait() })
	raw, err := net.Dial("tcp", ln.Addr().String())
	edgetest.Must(t, err)
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"})
	o.Keep(c)
	edgetest.Reset(raw)
	edgetest.Receive(t, "given up", o.Given)
}

// A client that has closed its connection may have closed one direction only: it gets its answer, however long that takes.
// It counts against no cap for a while, so others are served, of its own source as well, and then counts again.
func TestHalfClosedClients(t *testing.T) {
	o := edgetest.StartSlowOrigin(t, 200)
	const caps = "limits: {connections: 5, connections_per_source: 5}"
	closed := func(e *edgetest.Edge) (list []*edgetest.Talk) {
		for range 4 {
			c := e.Talk()
			o.Keep(c)
			_ = c.Conn.(*net.TCPConn).CloseWrite()
			list = append(list, c)
		}
		return list
	}
	again := o.Edge(t, caps, edgetest.HalfClosed(0))
	counted := closed(again)
	gone := again.Dial()
	o.Keep(gone)
	edgetest.Reset(gone)
	edgetest.Receive(t, "given up", o.Given) // by then the others have been looked at as well
	e := o.Edge(t, caps, edgetest.HalfClosed(time.Hour))
	stream := e.Talk() // its answer has begun, and goes on however long it takes
	_, _ = io.WriteString(stream, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
	_ = stream.Conn.(*net.TCPConn).CloseWrite()
	list := closed(e)
	edgetest.Until(t, "another source is served", func() bool { return e.Served(edgetest.Local(2)) })
	edgetest.Until(t, "the same source is served", func() bool { return e.Served(edgetest.Local(1)) })
	o.Release()
	if _, body := stream.Hear("GET"); body != "begun and done" {
		t.Errorf("streamed: %q", body)
	}
	for _, c := range append(list, counted...) {
		if resp, body := c.Hear("GET"); resp.StatusCode != 200 || body != "done" {
			t.Errorf("half closed: %d %q", resp.StatusCode, body)
		}
	}
	e.Rest()
	again.Rest()
}

// What a client sends while its origin is at work is its next request, and nothing of it is lost. The connection goes on.
func TestRequestsSentDuringAnother(t *testing.T) {
	o := edgetest.StartSlowOrigin(t, 200)
	e := o.Edge(t, "")
	c, other := e.Talk(), e.Dial()
	watched := func() { // as long as it takes to see another client go that came later
		o.Keep(other)
		edgetest.Reset(other)
		edgetest.Receive(t, "given up", o.Given)
		other = e.Dial()
	}
	o.Keep(c)
	watched()
	for _, part := range []string{"POST /a HTTP/1.1\r\nHo", "st: a\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost:"} {
		_, _ = io.WriteString(c, part)
		watched()
	}
	o.Release()
	for _, method := range []string{"GET", "POST"} {
		if resp, body := c.Hear(method); resp.StatusCode != 200 || body != "done" {
			t.Errorf("%s: %d %q", method, resp.StatusCode, body)
		}
	}
	for _, rest := range []string{" a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
		if resp, body := c.Say("" + rest); resp.StatusCode != 200 || body != "done" {
			t.Errorf("%q: %d %q", rest, resp.StatusCode, body)
		}
	}
}

// Where the answer's status counts, hanging up is no way not to be counted: the request goes on, and its client counts against
// no cap.
func TestHangingUpIsCountedByStatus(t *testing.T) {
	o := edgetest.StartSlowOrigin(t, 401)
	e := o.Edge(t, "limits: {connections_per_source: 1}\nrules: [{name: login, limit: 1, window: 1h, count: {statuses: [401]}}]")
	c := e.Dial()
	o.Keep(c)
	edgetest.Reset(c)
	status := func() int {
		k := e.Talk()
		defer k.Close()
		_, _ = io.WriteString(k, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(k.R, nil)
		if err != nil {
			return 0 // it is one too many
		}
		return resp.StatusCode
	}
	edgetest.Until(t, "it counts against no cap", func() bool { return status() == 429 })
	o.Release()
	edgetest.Until(t, "it is answered", func() bool { return e.Metrics()["sluice_aborted_total"] == 1 })
	if got := status(); got != 429 || len(o.Arrived) > 0 {
		t.Errorf("the next attempt: %d, %d more at the origin", got, len(o.Arrived))
	}
}

// A client that speaks TLS to a plain port gets at once the answer that the port speaks none, and the connection ends.
func TestTLSOnAPlainPort(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "limits: {header_timeout: 30s}")
	const hello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and what else a client says"
	for _, sends := range []string{hello, "\r\n" + hello, hello[:1]} {
		c := e.Dial() // has ten seconds
		_, _ = io.WriteString(c, sends)
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 400 ") || !strings.Contains(string(got), `"code":"tls"`) {
			t.Errorf("%q: %q, %v", sends, got, err)
		}
	}
	if m := e.Rest(); m["sluice_answers_total{code=400,from=edge}"] != 3 {
		t.Errorf("metrics: %v", m)
	}
}
