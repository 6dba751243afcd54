package closedloop

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// An edge that closes at accept may have reset the connection before the request is written. That is a refusal, and no end of the load.
func TestLoadIsShedBeforeItWrites(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0) // a reset
			c.Close()
		}
	}()
	load := Load{Edge: ln.Addr().(*net.TCPAddr).AddrPort(), Conns: 64, Fresh: true, Shed: true, For: 300 * time.Millisecond}
	out, err := load.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out.Shed == 0 || out.Shed != out.Answers || out.Failed != 0 {
		t.Errorf("%d shed of %d answers, %d failed", out.Shed, out.Answers, out.Failed)
	}
}

// However slow the server, as many requests as are asked for come before anything counts.
func TestWarmRequests(t *testing.T) {
	const conns, first = 4, 200
	var served atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer s.Close()
	before := int64(0)
	if _, err := (Load{Edge: netip.MustParseAddrPort(s.Listener.Addr().String()), Conns: conns, WarmRequests: first, For: time.Millisecond,
		Begun: func() { before = served.Load() }}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if before < first-conns { // the last of them are under way
		t.Errorf("%d requests came before, want %d", before, first)
	}
}
