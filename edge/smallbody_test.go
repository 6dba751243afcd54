package edge

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// received waits until so many requests have been.
func (e *edgeUnderTest) received(n int) {
	e.t.Helper()
	until(e.t, fmt.Sprintf("%d requests have been received", n), func() bool { return e.metrics()["sluice_received_total"] >= float64(n) })
}

// Clients that send small bodies slowly hold nothing of the origin's: others are served meanwhile, and they themselves when they have
// done.
func TestSlowSmallBodiesTakeNoConnection(t *testing.T) {
	const most = 4
	o := startRecorder(t, hello)
	e := startEdge(t, "", fmt.Sprintf("origins: [{servers: [%q], max_requests: %d}]", o.url(), most))
	var slow [most]*talk
	for i := range slow {
		slow[i] = e.talk()
		_, _ = io.WriteString(slow[i], "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16384\r\n\r\nx")
	}
	e.received(most)
	for range 20 {
		if resp, body := e.get("/"); resp.StatusCode != 200 {
			t.Fatalf("another client: %d %s", resp.StatusCode, body)
		}
	}
	if n := o.connections(); n != 1 {
		t.Errorf("%d connections to the origin", n)
	}
	for _, c := range slow {
		if resp, body := c.say(strings.Repeat("y", 16383)); resp.StatusCode != 200 || body != "hello" {
			t.Errorf("a slow client: %d %s", resp.StatusCode, body)
		}
	}
	for _, got := range o.requests()[20:] {
		if !strings.HasSuffix(got, "Content-Length: 16384\r\n\r\nx"+strings.Repeat("y", 16383)) {
			t.Errorf("the origin got %.200q", got)
		}
	}
	e.rest()
}

// A small body that its client does not finish is no matter of the origin's.
func TestUnfinishedSmallBodyNeverReachesTheOrigin(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "limits: {header_timeout: 200ms}")
	for name, test := range map[string]struct {
		end    func(c *net.TCPConn) error
		status string // "": nobody is there to hear it
	}{
		"slow":        {func(*net.TCPConn) error { return nil }, "HTTP/1.1 408 "},
		"half closed": {(*net.TCPConn).CloseWrite, "HTTP/1.1 400 "},
		"gone":        {(*net.TCPConn).Close, ""},
		"reset": {func(c *net.TCPConn) error {
			_ = c.SetLinger(0)
			return c.Close()
		}, ""},
	} {
		before := int(e.metrics()["sluice_received_total"])
		c := e.dial().(*net.TCPConn)
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
		e.received(before + 1)
		must(t, test.end(c))
		if got, _ := io.ReadAll(c); !strings.HasPrefix(string(got), test.status) {
			t.Errorf("%s: %q", name, got)
		}
		e.rest()
	}
	if n, m := o.connections(), e.metrics(); n != 0 || m["sluice_origin_attempts_total{origin="+o.url()+"}"] != 0 {
		t.Errorf("%d connections to the origin, %v", n, m)
	}
}

// What follows a held body on its connection is the next request.
func TestRequestsBehindSmallBodies(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "")
	c := e.talk()
	const n = 20
	go func() {
		_, _ = io.WriteString(c, strings.Repeat("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\n"+smuggled, n))
	}()
	for range n {
		if resp, body := c.hear("POST"); resp.StatusCode != 200 || body != "hello" {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	for _, got := range o.requests() {
		if !strings.HasPrefix(got, "POST / ") || !strings.HasSuffix(got, "\r\n\r\n"+smuggled) {
			t.Errorf("the origin got %q", got)
		}
	}
	if len(o.requests()) != n {
		t.Errorf("%d requests", len(o.requests()))
	}
}
