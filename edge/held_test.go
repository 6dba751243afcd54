package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/edge/upstream"
)

// received waits until so many requests have been.
func (e *edgeUnderTest) received(n int) {
	e.t.Helper()
	until(e.t, fmt.Sprintf("%d requests have been received", n), func() bool { return e.metrics()["sluice_received_total"] >= float64(n) })
}

// Clients that send small bodies slowly hold nothing of the origin's: others are served meanwhile, and they themselves when they have
// done.
func TestSlowBodiesHoldNoPlaces(t *testing.T) {
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
func TestBrokenSmallBody(t *testing.T) {
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
func TestRequestsBehindHeldBodies(t *testing.T) {
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

// An origin closes a kept connection while a client still sends its body: the client does not notice.
func TestLinkClosedDuringSlowBody(t *testing.T) {
	end, closed := make(chan struct{}), make(chan struct{})
	e := startEdge(t, "http://"+script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(c, hello(0, ""))
		<-end
		c.Close()
		close(closed)
	}), "")
	e.get("/")
	c := e.talk()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc")
	e.received(2)
	close(end)
	<-closed
	if resp, body := c.say("def"); resp.StatusCode != 200 || body != "hello" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// On a kept connection that takes nothing of a request the origin has seen nothing of it: whatever it is, it goes to a new one.
func TestUnsentRequests(t *testing.T) {
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n"} {
		for _, takes := range []int{0, 10} {
			o := startRecorder(t, hello)
			e := startConfig(t, withoutRules(t, o.url()))
			server := e.snap.Load().origins.All[0]
			server.Idle = append(server.Idle, &upstream.Link{Conn: &hasty{takes: takes}, Origin: server, Until: time.Now().Add(time.Hour)})
			want, hits := 200, 1
			if takes > 0 && request[0] != 'G' {
				want, hits = 502, 0
			}
			if resp, _ := e.talk().say(request); resp.StatusCode != want || len(o.requests()) != hits || server.Failures.Load() != 0 {
				t.Errorf("%.4s, %d bytes taken: %d, %d hits, %d failures", request, takes, resp.StatusCode, len(o.requests()), server.Failures.Load())
			}
			e.rest()
		}
	}
}

// Kept connections that end just when they are used again say nothing about their servers.
func TestStaleLinksAreNoFailures(t *testing.T) {
	const links = 8 // to each of two servers
	var warm sync.WaitGroup
	warm.Add(2 * links)
	answer := func(n int, request string) string {
		if strings.HasPrefix(request, "POST ") {
			return "\x00"
		}
		warm.Done()
		warm.Wait()
		return hello(n, "")
	}
	a, b := startRecorder(t, answer), startRecorder(t, answer)
	e := startEdge(t, "", fmt.Sprintf("origins: [{servers: [%q, %q]}]", a.url(), b.url()))
	var all sync.WaitGroup
	for range 2 * links {
		all.Go(func() { e.get("/") })
	}
	all.Wait()
	for range links {
		if resp, _ := e.talk().say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"); resp.StatusCode != 502 {
			t.Errorf("%d", resp.StatusCode)
		}
	}
	m := e.rest()
	for _, o := range []*recorder{a, b} {
		if m["sluice_origin_up{origin="+o.url()+"}"] != 1 || len(o.requests()) != links+links/2 {
			t.Errorf("%d requests; up: %v", len(o.requests()), m["sluice_origin_up{origin="+o.url()+"}"])
		}
	}
}
