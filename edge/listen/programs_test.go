package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
)

// A source has so many connections, and one more when one of them has ended; others, and programs of this machine, have theirs.
func TestConnectionsOfASource(t *testing.T) {
	from := make(chan string, 1)
	var p Programs
	l := &capped{arriving(from), &p}
	accept := func(addr string) net.Conn {
		t.Helper()
		from <- addr
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return nc
	}
	refused := func(addr string) {
		t.Helper()
		from <- addr
		go func() { from <- "192.0.2.99:1" }()
		if nc, _ := l.Accept(); nc.RemoteAddr().String() != "192.0.2.99:1" {
			t.Errorf("one more of %s is accepted", addr)
		} else {
			nc.Close()
		}
	}
	first := accept("192.0.2.1:1")
	for range MaxPerMachine - 1 {
		accept("192.0.2.1:2")
	}
	refused("192.0.2.1:3")
	refused("[::ffff:192.0.2.1]:3")
	first.Close()
	first.Close() // net/http may do so twice
	accept("192.0.2.1:4")
	refused("192.0.2.1:5")
	for i := range MaxPerMachine {
		accept(fmt.Sprintf("[2001:db8::%d]:1", i))
	}
	refused("[2001:db8::3]:1")
	for range 3 {
		accept("127.0.0.1:1")
		accept("[::1]:1")
		accept("@")
	}
	if len(p.open) != 2 {
		t.Errorf("remembered: %v", p.open)
	}
	if open, closed := p.all.Load(), p.refused.Load(); open != 2*MaxPerMachine+9 || closed != 4 {
		t.Errorf("%d are open and %d were refused, want %d and 4", open, closed, 2*MaxPerMachine+9)
	}
	close(from)
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// arriving is a listener to which connections come from the addresses that are sent.
type arriving chan string

func (l arriving) Accept() (net.Conn, error) {
	addr, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	if at, err := netip.ParseAddrPort(addr); err == nil {
		return &connFrom{at: net.TCPAddrFromAddrPort(at)}, nil
	}
	return &connFrom{at: &net.UnixAddr{Name: addr, Net: "unix"}}, nil
}
func (l arriving) Close() error   { return nil }
func (l arriving) Addr() net.Addr { return nil }

type connFrom struct {
	net.Conn
	at net.Addr
}

func (c *connFrom) RemoteAddr() net.Addr { return c.at }
func (c *connFrom) Close() error         { return nil }
