package upstream_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"sluice/edge/config"
	"sluice/edge/edgetest"
)

func TestBalancing(t *testing.T) {
	a, b := edgetest.StartRecorder(t, edgetest.Hello), edgetest.StartRecorder(t, edgetest.Hello)
	for _, balance := range []string{"round_robin", "least_connections"} {
		e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q, %q], balance: %s}]", a.URL(), b.URL(), balance))
		for range 10 {
			e.Get("/")
		}
	}
	if len(a.Requests()) != 10 || len(b.Requests()) != 10 {
		t.Errorf("%d and %d requests, want 10 each", len(a.Requests()), len(b.Requests()))
	}
	if a.Conns > 2 || b.Conns > 2 {
		t.Errorf("%d and %d connections for requests one after another", a.Conns, b.Conns)
	}
}

func TestOriginsByHost(t *testing.T) {
	a, b := edgetest.StartRecorder(t, edgetest.Hello), edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{hosts: [a.example], servers: [%q]}, {hosts: ['*.b.example'], servers: [%q]}]", a.URL(), b.URL()))
	for host, want := range map[string]int{"a.example": 200, "A.example.:80": 200, "x.b.example": 200, "b.example": 421, "c": 421} {
		if resp, _ := e.Talk().Say("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"); resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, resp.StatusCode, want)
		}
	}
	if len(a.Requests()) != 2 || len(b.Requests()) != 1 {
		t.Errorf("%d and %d requests", len(a.Requests()), len(b.Requests()))
	}
}

// Of a server that a reload took away no connection is kept: one with a request under way is closed after its answer.
func TestReloadClosesConnectionsOfRemovedServers(t *testing.T) {
	ln := edgetest.ListenHere(t)
	arrived, leave := make(chan bool), make(chan bool)
	var open atomic.Int64
	old := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-leave
		_, _ = io.WriteString(w, "hello")
	}), ConnState: func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}}
	go func() { _ = old.Serve(ln) }()
	at := func(origin string) *config.Config {
		c, err := config.Parse("", []byte("origins: [{servers: ['"+origin+"'], timeout: 9s}]"))
		edgetest.Must(t, err)
		return c
	}
	e := edgetest.StartConfig(t, at("http://"+ln.Addr().String()))
	c := e.Talk()
	go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") }()
	<-arrived
	edgetest.Must(t, e.Apply(at(edgetest.StartRecorder(t, edgetest.Hello).URL())))
	close(leave)
	c.Hear("GET")
	for range 100 {
		e.Sweep(time.Now().Add(time.Hour)) // whatever is idle is too old
	}
	edgetest.Until(t, "no connection is kept", func() bool { return open.Load() == 0 })
}
