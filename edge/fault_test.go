package edge_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/listen"
)

// A fault in a handler is that request's alone: others before, meanwhile and after it are answered.
func TestPanicStaysWithItsRequest(t *testing.T) {
	c := edgetest.Parse(t, "rules: [{name: r, limit: 5, on_store_failure: closed}]")
	c.Origins = edgetest.WithoutRules(t, edgetest.StartRecorder(t, edgetest.Hello).URL()).Origins
	var broken atomic.Bool
	e := edgetest.Serve(t, edgetest.NewServer(t, c, func(o *edge.Options) {
		o.Tier.Up = func(counter.Source) bool {
			if broken.Load() {
				panic("a bug")
			}
			return true
		}
	}))
	fine := func() {
		t.Helper()
		broken.Store(false)
		if resp, _ := e.Get("/"); resp.StatusCode != 200 {
			t.Errorf("another request: %d", resp.StatusCode)
		}
		broken.Store(true)
	}
	fine()
	for range 2 {
		resp, _ := e.Get("/")
		if resp.StatusCode != 500 || !resp.Close {
			t.Fatalf("%d", resp.StatusCode)
		}
		fine()
	}
	e.Talk().Say("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	if m := e.Rest(); m["sluice_panics_total"] != 3 || m["sluice_answers_total{code=500,from=edge}"] != 3 {
		t.Errorf("metrics: %v", m)
	}
}

// A faulty connection panics when it is read.
type faulty struct{ edgetest.Repeater }

func (faulty) Read([]byte) (int, error) { panic("a bug") }

func (faulty) RemoteAddr() net.Addr { return nil }

// A fault outside of any request, and one in saying that there was one, are counted, and end nothing but the connection.
func TestFaultsAroundRequests(t *testing.T) {
	s := edgetest.MemoryServer(t, nil, "", observed(func(*edge.Outcome) { panic("a bug") }))
	s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(&faulty{}))
	if m := edgetest.Metrics(t, s); m["sluice_panics_total"] != 1 || m["sluice_received_total"] != 0 || s.Connections() != 0 {
		t.Errorf("%v, %d connections", m, s.Connections())
	}
	sender := &edgetest.Sender{Sends: "GET /\r\n\r\n", Most: 100}
	s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(sender))
	if sender.Got.Len() > 0 {
		t.Errorf("after two faults the client gets %q", sender.Got.String())
	}
	if m := edgetest.Metrics(t, s); m["sluice_panics_total"] != 3 || m["sluice_received_total"] != 1 || m["sluice_aborted_total"] != 1 || s.Connections() != 0 {
		t.Errorf("%v, %d connections", m, s.Connections())
	}
	s = edgetest.MemoryServer(t, &breaking{closed: make(chan struct{})}, "")
	client := &edgetest.Sender{Sends: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000), Most: 1 << 20}
	s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(client))
	if all, _ := client.Answers("POST"); len(all) != 1 || all[0] != 500 || edgetest.Metrics(t, s)["sluice_panics_total"] != 1 {
		t.Errorf("in the body: %v faults, answers %d", edgetest.Metrics(t, s)["sluice_panics_total"], all)
	}
}

// A breaking origin panics when it is written, and answers nothing until it is closed.
type breaking struct {
	edgetest.Repeater
	once   sync.Once
	closed chan struct{}
}

func (o *breaking) Read([]byte) (int, error) { <-o.closed; return 0, io.EOF }

func (o *breaking) Write([]byte) (int, error) { panic("a bug") }

func (o *breaking) Close() error { o.once.Do(func() { close(o.closed) }); return nil }

// A brittle connection panics when it is written or closed.
type brittle struct{ edgetest.Sender }

func (*brittle) Write([]byte) (int, error) { panic("a bug") }

func (*brittle) Close() error { panic("a bug") }

// A fault under fasthttp, which recovers from none, ends the connection and nothing else.
func TestFaultUnderFasthttp(t *testing.T) {
	s := edgetest.MemoryServer(t, nil, "deny: ['0.0.0.0/0', '::/0']")
	s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(&brittle{edgetest.Sender{Sends: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", Most: 100}}))
	if m := edgetest.Metrics(t, s); m["sluice_panics_total"] != 2 || m["sluice_received_total"] != 1 || m["sluice_aborted_total"] != 1 || s.Connections() != 0 {
		t.Errorf("%v, %d connections", m, s.Connections())
	}
}
