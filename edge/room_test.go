package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// fill opens n connections of the caller's own source and makes it mitigated on each: requests within limits, and one more that is
// refused.
func fill(e *edgeUnderTest, n int) (list []*talk) {
	for range n {
		c := e.talk()
		for range 2 {
			c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		list = append(list, c)
	}
	return list
}

// open counts the connections that the edge has not closed, which it says at once or not at all.
func open(list []*talk) (n int) {
	for _, c := range list {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, err := http.ReadResponse(c.r, nil); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			n++
		}
	}
	return n
}

// idle counts the connections that wait for a request: a client may have its answer a moment before that.
func idle(e *edgeUnderTest) (n int) {
	e.Registry().Mu.Lock()
	defer e.Registry().Mu.Unlock()
	for c := range e.Registry().Conns {
		if c.Idle.Load() != 0 {
			n++
		}
	}
	return n
}

// At the cap connections of mitigated sources make room for others, one for each; requests under way do not, nor does anybody
// for nobody.
func TestMitigatedMakeRoom(t *testing.T) {
	o := startSlowOrigin(t, 200)
	e := o.edge(t, "limits: {connections: 6}\n"+fmt.Sprintf(oneRule, 1))
	busy := []*talk{e.from(local(8)), e.from(local(9))}
	for _, c := range busy {
		o.keep(c)
	}
	held := fill(e, 4)
	until(t, "all of them are idle", func() bool { return idle(e) == 4 })
	_, _ = io.WriteString(held[0], "GET / HTTP/1.1\r\nHost:") // no request yet
	for i := range 3 {
		if !e.served(local(byte(2 + i))) {
			t.Errorf("newcomer %d is not served", i)
		}
		until(t, "it has gone", func() bool { return e.Connections() <= 5 })
		held = append(held, fill(e, 1)...) // a mitigated one comes in its place
		until(t, "all of them are idle", func() bool { return idle(e) == 4 })
	}
	m := e.metrics()
	if m["sluice_connections_evicted_total"] != 3 || m["sluice_connections_refused_total{cap=total}"] != 0 {
		t.Errorf("metrics: %v", m)
	}
	if n := open(held[1:]); n < 3 {
		t.Errorf("%d mitigated are open", n)
	}
	o.release()
	for _, c := range busy {
		if resp, body := c.hear("GET"); resp.StatusCode != 200 || body != "done" {
			t.Errorf("under way: %d %q", resp.StatusCode, body)
		}
	}
	e.rest()
}

// Where nobody is mitigated the one makes room that has waited longest for a request; one that made a request just now does not.
func TestLongestIdleMakesRoom(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "limits: {connections: 2}")
	young, old := e.talk(), e.talk()
	for _, c := range []*talk{young, old, young} {
		c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	until(t, "a newcomer is served", func() bool { return e.served(local(2)) })
	if n := open([]*talk{old}); n != 0 {
		t.Error("the one that was idle for longest is open")
	}
	if n := open([]*talk{young}); n != 1 {
		t.Error("the other one is closed")
	}
	e.rest()
}

// A connection that has its last answer, and is only waited for until its client closes it, takes nobody's place.
func TestClosingConnectionsDoNotCount(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "limits: {connections: 1, connections_per_source: 1}")
	const spare = 16 // that are answered above the cap
	for i := range 2 * spare {
		c := e.talk()
		if _, err := io.WriteString(c, "GET / oops\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(c.r); len(got) == 0 { // up to its end, which the client does not answer
			t.Fatalf("connection %d was turned away", i)
		}
	}
	if n := e.Connections(); n > 1+spare {
		t.Errorf("%d connections", n)
	}
	e.rest()
}

// At the cap a connection that says nothing makes room for others, on the listener for TLS as on the plain one.
func TestSilentTLSConnectionsMakeRoom(t *testing.T) {
	certificates := certificatesIn(t, t.TempDir())
	o := startRecorder(t, hello)
	for _, secure := range []bool{false, true} {
		e := startEdge(t, o.url(), "limits: {connections: 4, header_timeout: 30s}")
		addr := e.addr
		if secure {
			addr = e.serveTLS(certificates)
		}
		dial := func() net.Conn {
			nc, err := net.Dial("tcp", addr)
			must(t, err)
			t.Cleanup(func() { nc.Close() })
			_ = nc.SetDeadline(time.Now().Add(time.Minute))
			return nc
		}
		for range 4 {
			dial()
		}
		silent := 0
		until(t, "they wait", func() bool {
			e.Registry().Mu.Lock()
			defer e.Registry().Mu.Unlock()
			for c := range e.Registry().Conns {
				if now := c.Idle.Load(); now != 0 && c.Idle.CompareAndSwap(now, now-int64(time.Minute)) { // and have done so for long
					silent++
				}
			}
			return silent >= 4
		})
		nc := dial()
		if secure {
			nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"})
		}
		_, _ = io.WriteString(nc, plainGet)
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("TLS %t: %v %v, %v evicted", secure, resp, err, e.metrics()["sluice_connections_evicted_total"])
		}
	}
}
