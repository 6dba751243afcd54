package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/edgetest"
)

// Answers on a connection that drains say so; a request in flight is finished; Drain then returns.
func TestDrain(t *testing.T) {
	t.Parallel()
	arrived, leave := make(chan struct{}), make(chan struct{})
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(arrived)
			<-leave
		}
		_, _ = io.WriteString(w, "done")
	})
	e := edgetest.Start(t, origin, "")
	idle, busy := e.Talk(), e.Talk()
	idle.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
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
	if resp, _ := idle.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 || !resp.Close {
		t.Errorf("%d, close %t", resp.StatusCode, resp.Close)
	}
	if _, err := net.Dial("tcp", e.Addr); err == nil {
		t.Error("a new connection was accepted")
	}
	close(leave)
	if resp, body := busy.Hear("GET"); resp.StatusCode != 200 || body != "done" || !resp.Close {
		t.Errorf("in flight: %d %q, close %t", resp.StatusCode, body, resp.Close)
	}
	wait.Wait()
	if drained != nil {
		t.Errorf("drain: %v", drained)
	}
	e.Rest()
}

// reading counts the connections on which a request has begun to come.
func reading(e *edgetest.Edge) (n int) {
	e.Registry().Mu.Lock()
	defer e.Registry().Mu.Unlock()
	for c := range e.Registry().Conns {
		if !c.Waiting() {
			n++
		}
	}
	return n
}

// Once it is to leave an edge still takes connections and requests; every answer asks the client to go.
func TestLeave(t *testing.T) {
	e := edgetest.Start(t, edgetest.NetOrigin(t, func(http.ResponseWriter, *http.Request) {}), "")
	old := e.Talk()
	if resp, _ := old.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.Close {
		t.Error("close before it leaves")
	}
	e.Leave()
	for _, c := range []*edgetest.Talk{old, e.Talk()} {
		if resp, _ := c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 || !resp.Close {
			t.Errorf("%d, close %t", resp.StatusCode, resp.Close)
		}
	}
	if e.Ready() {
		t.Error("ready")
	}
}

// An edge that is drained by hand says that it is not ready, and serves on without asking anybody to close; the first operator's word stands,
// and leaving goes before it.
func TestDrainByHand(t *testing.T) {
	e := edgetest.Start(t, edgetest.NetOrigin(t, func(http.ResponseWriter, *http.Request) {}), "")
	at := time.Date(2026, 5, 4, 14, 5, 0, 0, time.UTC)
	if e.Undrain() != nil || e.Drained() != nil || !e.Ready() {
		t.Fatal("drained from the beginning")
	}
	if d, changed := e.DrainByHand(control.Operator{Who: "ada", From: "192.0.2.1:4000"}, at); !changed || *d != (control.Drained{Since: at, By: "ada", From: "192.0.2.1:4000"}) {
		t.Errorf("%+v, changed %t", d, changed)
	}
	if d, changed := e.DrainByHand(control.Operator{Who: "bob"}, at.Add(time.Hour)); changed || d.By != "ada" || !d.Since.Equal(at) {
		t.Errorf("a second time: %+v, changed %t", d, changed)
	}
	if why := e.Unready(); why != "drained" {
		t.Errorf("unready because %q", why)
	}
	if resp, _ := e.Talk().Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 || resp.Close {
		t.Errorf("%d, close %t: want it to serve on", resp.StatusCode, resp.Close)
	}
	e.Leave()
	if why := e.Unready(); why != "draining" {
		t.Errorf("of one that leaves: %q", why)
	}
	if n := e.Metrics()["sluice_drained"]; n != 1 {
		t.Errorf("the metric says %v", n)
	}
	if d := e.Undrain(); d == nil || d.By != "ada" || e.Drained() != nil {
		t.Errorf("undrained %+v", d)
	}
	if why := e.Unready(); why != "draining" {
		t.Errorf("undrained, of one that leaves: %q", why)
	}
}

// An idle connection ends in order: what its client sends too late resets nothing.
func TestDrainEndsIdleConnectionsInOrder(t *testing.T) {
	e := edgetest.Start(t, edgetest.NetOrigin(t, func(http.ResponseWriter, *http.Request) {}), "")
	used, fresh := e.Talk(), e.Talk()
	used.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	drained := e.DrainNow()
	for _, c := range []*edgetest.Talk{used, fresh} {
		for range 2 { // the second time after a request that the edge has not asked for
			if b, err := io.ReadAll(c.R); err != nil || len(b) > 0 {
				t.Errorf("%q, %v: want the end of the stream", b, err)
			}
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		c.Close()
	}
	if err := drained(); err != nil {
		t.Error(err)
	}
}

// A TLS client is told that the end is the end (close_notify), and a request that it sends within a connection's notice is
// answered after all the waking.
func TestDrainOverTLS(t *testing.T) {
	certificates := edgetest.CertificatesIn(t, t.TempDir())
	e := edgetest.Start(t, edgetest.NetOrigin(t, func(http.ResponseWriter, *http.Request) {}), "")
	addr := e.OverTLS(certificates)
	connect := func() (*tls.Conn, *bufio.Reader) {
		c, err := tls.Dial("tcp", addr, &tls.Config{ServerName: "a.example", InsecureSkipVerify: true})
		edgetest.Must(t, err)
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c, bufio.NewReader(c)
	}
	ask := func(c net.Conn, r *bufio.Reader) (closes bool) {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		return resp.Close
	}
	idle, r := connect()
	ask(idle, r)
	half, r2 := connect()
	_, _ = io.WriteString(half, "GET / HTTP/1.1\r\n")
	edgetest.Until(t, "the half of a head has been read", func() bool { return reading(e) == 2 })
	drained := e.DrainNow()
	if b, err := io.ReadAll(r); err != nil || len(b) > 0 { // without close_notify: unexpected EOF
		t.Errorf("idle: %q, %v", b, err)
	}
	idle.Close()
	_, _ = io.WriteString(half, "Host: a\r\n\r\n")
	if resp, err := http.ReadResponse(r2, nil); err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("half a head: %v, %v", resp, err)
	}
	half.Close()
	if err := drained(); err != nil {
		t.Error(err)
	}
}

// Of requests sent ahead (pipelined) some are answered, the last of them with Connection: close; then the stream ends in order,
// though the edge has not read the others.
func TestDrainWithPipelinedRequests(t *testing.T) {
	arrived, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	e := edgetest.Start(t, edgetest.NetOrigin(t, func(_ http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(arrived) })
		<-leave
	}), "")
	c := e.Talk()
	one := "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 10_000) + "\r\n\r\n"
	if _, err := io.WriteString(c, strings.Repeat(one, 20)); err != nil { // more than the edge reads at once
		t.Fatal(err)
	}
	<-arrived
	drained := e.DrainNow()
	<-e.LastAccepted()
	close(leave)
	if resp, _ := c.Hear("GET"); resp.StatusCode != 200 || !resp.Close {
		t.Errorf("%d, close %t", resp.StatusCode, resp.Close)
	}
	if b, err := io.ReadAll(c.R); err != nil || len(b) > 0 {
		t.Errorf("%d bytes, %v: want the end of the stream", len(b), err)
	}
	c.Close()
	if err := drained(); err != nil {
		t.Error(err)
	}
}

// Waking those who read ends neither a request whose head or body is on its way nor one that has arrived in that moment.
func TestRetireCutsNoRequest(t *testing.T) {
	var got bytes.Buffer
	e := edgetest.Start(t, edgetest.NetOrigin(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(&got, r.Body) }), "")
	head, body := e.Talk(), e.Talk()
	_, _ = io.WriteString(head, "GET / HTTP/1.1\r\nHo")
	_, _ = io.WriteString(body, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello")
	edgetest.Until(t, "read", func() bool { return reading(e) == 2 && e.Metrics()["sluice_received_total"] == 1 })
	drained := e.DrainNow()
	edgetest.Until(t, "retired", func() bool { return e.Registry().Retired.Load() > 0 })
	_, _ = io.WriteString(head, "st: a\r\n\r\n")
	_, _ = io.WriteString(body, "world")
	for _, c := range []*edgetest.Talk{head, body} {
		if resp, _ := c.Hear("GET"); resp.StatusCode != 200 || !resp.Close {
			t.Errorf("%d, close %t", resp.StatusCode, resp.Close)
		}
		c.Close()
	}
	if got.String() != "helloworld" {
		t.Errorf("the origin got %q", got.String())
	}
	if err := drained(); err != nil {
		t.Error(err)
	}
}
