package replay

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
)

// serve answers requests with h on a loopback port until the test ends, and gives that port's address.
func serve(t *testing.T, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	return serveOn(t, listen(t), h)
}

func serveOn(t *testing.T, ln net.Listener, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	server := &http.Server{Handler: h}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(ln)
	}()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// scripted serves raw connections: each gets the answers of its turn, one per request, and is closed at once after the
// last. An empty answer closes on the request.
func scripted(t *testing.T, turns ...[]string) netip.AddrPort {
	t.Helper()
	ln := listen(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			answers := turns[min(i, len(turns)-1)]
			r := bufio.NewReader(c)
			for _, a := range answers {
				if _, err := http.ReadRequest(r); err != nil {
					break
				}
				io.WriteString(c, a)
			}
			c.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-ended
	})
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// proxied reads the PROXY header of what it accepts.
type proxied struct{ net.Listener }

type proxiedConn struct {
	net.Conn
	peer net.Addr
}

func (c proxiedConn) RemoteAddr() net.Addr { return c.peer }

func (l proxied) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	var h [28]byte
	if _, err := io.ReadFull(c, h[:]); err != nil {
		return nil, err
	}
	return proxiedConn{c, &net.TCPAddr{IP: h[16:20], Port: int(h[24])<<8 | int(h[25])}}, nil
}
