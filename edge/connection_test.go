package edge

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/counter"
)

// A fault in a handler is that request's alone.
func TestPanicStaysWithItsRequest(t *testing.T) {
	c := parse(t, "rules: [{name: r, limit: 5, on_store_failure: closed}]")
	c.Origins = withoutRules(t, startRecorder(t, hello).url()).Origins
	e := serveTest(t, newServer(t, c, func(o *Options) { o.Tier.Up = func(counter.Source) bool { panic("a bug") } }))
	for range 2 {
		resp, _ := e.get("/")
		if resp.StatusCode != 500 || !resp.Close {
			t.Fatalf("%d", resp.StatusCode)
		}
	}
	e.talk().say("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	if m := e.rest(); m["sluice_panics_total"] != 3 || m["sluice_answers_total{code=500,from=edge}"] != 3 {
		t.Errorf("metrics: %v", m)
	}
}

// Slow bodies are cut, whole downloads are not.
func TestSlowBodyIsCut(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "limits: {header_timeout: 200ms}")
	resp, _ := e.talk().say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
	if resp.StatusCode != 408 || !resp.Close {
		t.Errorf("%d", resp.StatusCode)
	}
	e.rest()
}

// A client that does not read its answer is cut, and the origin's connection is not kept; one that reads goes on as long as
// it likes, however short the timeout.
func TestSlowReaders(t *testing.T) {
	part := strings.Repeat("x", 1<<20)
	origin := netOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		for range 64 {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
	})
	e := startEdge(t, origin, "limits: {idle_timeout: 3s}")
	idle := e.dial()
	_, _ = io.WriteString(idle, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	for e.metrics()["sluice_aborted_total"] == 0 { // until the test's own time is up
		if resp, body := e.talk().say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 || len(body) != 64<<20 {
			t.Fatalf("%d, %d bytes", resp.StatusCode, len(body))
		}
	}
	if m := e.rest(); m["sluice_aborted_total"] != 1 {
		t.Errorf("metrics: %v", m)
	}
}

// One source cannot take all connections; others are served.
func TestConnectionsPerSource(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "limits: {connections_per_source: 3}")
	for range 3 {
		if resp, _ := e.talk().say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 {
			t.Fatal(resp.StatusCode)
		}
	}
	if got := e.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); got != "" {
		t.Errorf("a fourth connection got %q", got)
	}
	other, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).Dial("tcp", e.addr)
	must(t, err)
	defer other.Close()
	_, _ = io.WriteString(other, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(other), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("another source: %v", err)
	}
	if m := e.metrics(); m["sluice_connections_refused_total{cap=source}"] == 0 {
		t.Errorf("metrics: %v", m)
	}
}

// crowded is what a connection above the cap is told.
const crowded = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"

// A connection above the cap on all is told so; far above it, there is none.
func TestConnectionsInAll(t *testing.T) {
	o := startSlowOrigin(t, 200)
	e := o.edge(t, "limits: {connections: 2}")
	first := e.talk()
	for _, c := range []*talk{first, e.talk()} { // with requests under way: nobody may go to make room
		o.keep(c)
	}
	if got := e.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); got != crowded {
		t.Errorf("a third connection got %q", got)
	}
	reset(first.Conn)
	until(t, "there is room again", func() bool { return e.Connections() == 1 })
	if resp, _ := e.get("/"); resp.StatusCode != 200 {
		t.Error(resp.StatusCode)
	}
	o.release()
	if m := e.rest(); m["sluice_connections_refused_total{cap=total}"] != 1 {
		t.Errorf("metrics: %v", m)
	}
}

// The limit on bodies holds for streamed ones, and without a Content-Length.
func TestBodyLimit(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "limits: {body_bytes: 100}")
	for request, want := range map[string]int{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("x", 100):                                200,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n" + strings.Repeat("x", 101):                                413,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + strings.Repeat("x", 101) + "\r\n0\r\n\r\n": 413,
	} {
		if resp, _ := e.talk().say(request); resp.StatusCode != want {
			t.Errorf("%d bytes: %d, want %d", len(request), resp.StatusCode, want)
		}
	}
	e.rest()
}

// A refused source is not invited to send its body; an admitted one is, once it is admitted.
func TestExpectContinue(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), fmt.Sprintf(oneRule, 1))
	const head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
	c := e.dial()
	r := bufio.NewReader(c)
	_, _ = io.WriteString(c, head)
	if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	_, _ = r.ReadString('\n')
	_, _ = io.WriteString(c, "abc")
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 200 || resp.Header.Get("RateLimit") == "" {
		t.Fatalf("%v", err)
	}
	if got := o.requests(); len(got) != 1 || strings.Count(got[0], "\r\nExpect: 100-continue\r\n") != 1 || !strings.HasSuffix(got[0], "abc") {
		t.Fatalf("the origin got %q", got)
	}
	got := e.raw(head)
	if !strings.HasPrefix(got, "HTTP/1.1 429 ") || !strings.Contains(got, `"code":"rate_limited"`) || !strings.Contains(got, "Retry-After: ") {
		t.Errorf("refused: %q", got)
	}
	gone := e.dial() // invited, and gone
	e2 := startEdge(t, o.url(), "")
	gone.Close()
	c2 := e2.dial()
	_, _ = io.WriteString(c2, head)
	_, _ = bufio.NewReader(c2).ReadString('\n')
	c2.Close()
	e.rest()
	e2.rest()
}

// A refused POST keeps its connection if its body is short, and gets its answer in any case.
func TestRefusedBodies(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), fmt.Sprintf(oneRule, 1))
	e.get("/")
	c := e.talk()
	for i := range 3 {
		resp, _ := c.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\nGET /smuggled X")
		if resp.StatusCode != 429 || resp.Close {
			t.Fatalf("refusal %d: %d, close %t", i, resp.StatusCode, resp.Close)
		}
		resp, _ = c.say("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
		if resp.StatusCode != 429 || resp.Close {
			t.Fatalf("refusal %d, chunked: %d, close %t", i, resp.StatusCode, resp.Close)
		}
	}
	big := e.talk()
	resp, _ := big.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 200_000))
	if resp.StatusCode != 429 || !resp.Close {
		t.Errorf("a long body: %d, close %t", resp.StatusCode, resp.Close)
	}
	if len(o.requests()) != 1 {
		t.Errorf("the origin got %q", o.requests())
	}
	e.rest()
}

// Answers on a connection that drains say so; a request in flight is finished; Drain then returns.
func TestDrain(t *testing.T) {
	arrived, leave := make(chan struct{}), make(chan struct{})
	origin := netOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(arrived)
			<-leave
		}
		_, _ = io.WriteString(w, "done")
	})
	e := startEdge(t, origin, "")
	idle, busy := e.talk(), e.talk()
	idle.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	_, _ = io.WriteString(busy, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	<-arrived
	var drained error
	var wait sync.WaitGroup
	wait.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		drained = e.Drain(ctx, time.Second)
	})
	<-e.LastAccepted()
	if e.Ready() {
		t.Error("ready while draining")
	}
	if resp, _ := idle.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 || !resp.Close {
		t.Errorf("%d, close %t", resp.StatusCode, resp.Close)
	}
	if _, err := net.Dial("tcp", e.addr); err == nil {
		t.Error("a new connection was accepted")
	}
	close(leave)
	if resp, body := busy.hear("GET"); resp.StatusCode != 200 || body != "done" || !resp.Close {
		t.Errorf("in flight: %d %q, close %t", resp.StatusCode, body, resp.Close)
	}
	wait.Wait()
	if drained != nil {
		t.Errorf("drain: %v", drained)
	}
	e.rest()
}
