package listen_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"sluice/edge/edgetest"
)

// fill opens n connections of the caller's own source and makes it mitigated on each: requests within limits, and one more that is
// refused.
func fill(e *edgetest.Edge, n int) (list []*edgetest.Talk) {
	for range n {
		c := e.Talk()
		for range 2 {
			c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		list = append(list, c)
	}
	return list
}

// open counts the connections that the edge has not closed, which it says at once or not at all.
func open(list []*edgetest.Talk) (n int) {
	for _, c := range list {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, err := http.ReadResponse(c.R, nil); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			n++
		}
	}
	return n
}

// idle counts the connections that wait for a request: a client may have its answer a moment before that.
func idle(e *edgetest.Edge) (n int) {
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
	o := edgetest.StartSlowOrigin(t, 200)
	e := o.Edge(t, "limits: {connections: 6}\n"+fmt.Sprintf(edgetest.OneRule, 1))
	busy := []*edgetest.Talk{e.From(edgetest.Local(8)), e.From(edgetest.Local(9))}
	for _, c := range busy {
		o.Keep(c)
	}
	held := fill(e, 4)
	edgetest.Until(t, "all of them are idle", func() bool { return idle(e) == 4 })
	_, _ = io.WriteString(held[0], "GET / HTTP/1.1\r\nHost:") // no request yet
	for i := range 3 {
		if !e.Served(edgetest.Local(byte(2 + i))) {
			t.Errorf("newcomer %d is not served", i)
		}
		edgetest.Until(t, "it has gone", func() bool { return e.Connections() <= 5 })
		held = append(held, fill(e, 1)...) // a mitigated one comes in its place
		edgetest.Until(t, "all of them are idle", func() bool { return idle(e) == 4 })
	}
	m := e.Metrics()
	if m["sluice_connections_evicted_total"] != 3 || m["sluice_connections_refused_total{cap=total}"] != 0 {
		t.Errorf("metrics: %v", m)
	}
	if n := open(held[1:]); n < 3 {
		t.Errorf("%d mitigated are open", n)
	}
	o.Release()
	for _, c := range busy {
		if resp, body := c.Hear("GET"); resp.StatusCode != 200 || body != "done" {
			t.Errorf("under way: %d %q", resp.StatusCode, body)
		}
	}
	e.Rest()
}

// Where nobody is mitigated the one makes room that has waited longest for a request; one that made a request just now does not.
func TestLongestIdleMakesRoom(t *testing.T) {
	t.Parallel()
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "limits: {connections: 2}")
	young, old := e.Talk(), e.Talk()
	for _, c := range []*edgetest.Talk{young, old, young} {
		c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	edgetest.Until(t, "a newcomer is served", func() bool { return e.Served(edgetest.Local(2)) })
	if n := open([]*edgetest.Talk{old}); n != 0 {
		t.Error("the one that was idle for longest is open")
	}
	if n := open([]*edgetest.Talk{young}); n != 1 {
		t.Error("the other one is closed")
	}
	e.Rest()
}

// A connection that has its last answer, and is only waited for until its client closes it, takes nobody's place.
func TestClosingConnectionsDoNotCount(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "limits: {connections: 1, connections_per_source: 1}")
	const spare = 16 // that are answered above the cap
	for i := range 2 * spare {
		c := e.Talk()
		if _, err := io.WriteString(c, "GET / oops\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(c.R); len(got) == 0 { // up to its end, which the client does not answer
			t.Fatalf("connection %d was turned away", i)
		}
	}
	if n := e.Connections(); n > 1+spare {
		t.Errorf("%d connections", n)
	}
	e.Rest()
}

// At the cap a connection that says nothing makes room for others, on the listener for TLS as on the plain one.
func TestSilentTLSConnectionsMakeRoom(t *testing.T) {
	certificates := edgetest.CertificatesIn(t, t.TempDir())
	o := edgetest.StartRecorder(t, edgetest.Hello)
	for _, secure := range []bool{false, true} {
		e := edgetest.Start(t, o.URL(), "limits: {connections: 4, header_timeout: 30s}")
		addr := e.Addr
		if secure {
			addr = e.OverTLS(certificates)
		}
		dial := func() net.Conn {
			nc, err := net.Dial("tcp", addr)
			edgetest.Must(t, err)
			t.Cleanup(func() { nc.Close() })
			_ = nc.SetDeadline(time.Now().Add(time.Minute))
			return nc
		}
		for range 4 {
			dial()
		}
		silent := 0
		edgetest.Until(t, "they wait", func() bool {
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
		_, _ = io.WriteString(nc, edgetest.PlainGet)
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("TLS %t: %v %v, %v evicted", secure, resp, err, e.Metrics()["sluice_connections_evicted_total"])
		}
	}
}

// Above the limit new connections are closed, unless mitigated ones make room; requests under way are served, and all is well when memory
// is free again.
func TestMemoryShedsConnections(t *testing.T) {
	o := edgetest.StartSlowOrigin(t, 200)
	e := o.Edge(t, "limits: {memory: 1GiB}\n"+fmt.Sprintf(edgetest.OneRule, 1))
	kept := e.From(edgetest.Local(9))
	o.Keep(kept)
	set := func(used uint64) {
		m := e.Registry().Memory
		m.Mu.Lock()
		defer m.Mu.Unlock()
		m.Next, m.Used = time.Time{}, func() uint64 { return used }
	}
	set(1 << 30)
	if c, err := net.Dial("tcp", e.Addr); err == nil { // the kernel accepts
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if all, _ := io.ReadAll(c); len(all) > 0 {
			t.Errorf("a new connection got %q", all)
		}
		c.Close()
	}
	set(0)
	const room = 3 // go for one
	fill(e, room)
	edgetest.Until(t, "they are idle", func() bool { return idle(e) == room })
	set(1 << 30)
	if !e.Served(edgetest.Local(2)) || e.Served(edgetest.Local(3)) {
		t.Error("of two newcomers the first has the room of mitigated connections, the second none")
	}
	o.Release()
	if resp, _ := kept.Hear("GET"); resp.StatusCode != 200 {
		t.Errorf("an open connection got %d", resp.StatusCode)
	}
	if m := e.Metrics(); m["sluice_connections_refused_total{cap=memory}"] != 2 {
		t.Errorf("metrics: %v", m)
	}
	set(0)
	if !e.Served(edgetest.Local(3)) {
		t.Error("with memory to spare a newcomer is not served")
	}
}
