package front_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/valyala/fasthttp"

	"sluice/edge/edgetest"
)

// Without descriptors an accept fails; when there are some again, clients are served.
func TestTrapAcceptErrors(t *testing.T) {
	trap{falls: func(p *trapped) string {
		ln := edgetest.ListenHere(p.T)
		p.on(&failsOnce{Listener: ln})
		c, err := net.Dial("tcp", ln.Addr().String())
		edgetest.Must(p.T, err)
		defer c.Close()
		_, _ = io.WriteString(c, lastGet)
		if !p.ends(c) {
			return "one failed accept was the end"
		}
		return ""
	}}.try(t)
}

type failsOnce struct {
	net.Listener
	failed bool
}

func (l *failsOnce) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// A fault in a handler is that request's alone.
func TestTrapPanicEndsTheProcess(t *testing.T) {
	trap{falls: func(p *trapped) (what string) {
		if p.alone == nil {
			if resp, _ := p.Get("/panic"); resp.StatusCode != 500 {
				return fmt.Sprint(resp.StatusCode)
			}
			resp, _ := p.Get("/")
			return strings.TrimPrefix(resp.Status, "200 OK")
		}
		client, server := net.Pipe()
		defer client.Close()
		go func() { _, _ = io.WriteString(client, "GET /panic HTTP/1.1\r\nHost: a\r\n\r\n") }()
		defer func() {
			if v := recover(); v != nil { // in the server's own goroutine nobody would
				what = fmt.Sprintf("the panic came out: %v", v)
			}
		}()
		_ = p.alone(server)
		return ""
	}}.try(t)
}

// A connection on which nothing comes is closed: a head that stops, a body that stops, and none of them.
func TestTrapNoTimeouts(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]string{
		"half a head": "GET / HTTP/1.1\r\nHost:",
		"half a body": postHead + "Content-Length: 100\r\n\r\nabc",
		"nothing":     "",
	} {
		t.Run(name, func(t *testing.T) {
			trap{
				yaml: "limits: {header_timeout: 100ms, idle_timeout: 100ms}",
				falls: func(p *trapped) string {
					c := p.Dial()
					_, _ = io.WriteString(c, begun)
					if !p.ends(c) {
						return "the connection stays open"
					}
					return ""
				},
			}.try(t)
		})
	}
}

// One source cannot take all connections.
func TestTrapConnectionsOfOneSource(t *testing.T) {
	trap{
		yaml: "limits: {connections_per_source: 3}",
		falls: func(p *trapped) string {
			for range 3 {
				p.Talk().Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			}
			if got := p.Raw(lastGet); got != "" {
				return "a fourth connection was served"
			}
			return ""
		},
	}.try(t)
}

// A client that does not read its answer is cut, and the origin with it.
func TestTrapSlowReaders(t *testing.T) {
	var ended chan struct{}
	trap{
		yaml: "limits: {idle_timeout: 100ms}",
		origin: func(t *testing.T) string {
			ended = make(chan struct{})
			ended := ended
			return edgetest.Script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
				_, _ = http.ReadRequest(r)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				for part := make([]byte, 1<<20); ; {
					if _, err := c.Write(part); err != nil {
						close(ended)
						return
					}
				}
			})
		},
		falls: func(p *trapped) string {
			c := p.Dial()
			_, _ = io.WriteString(c, lastGet)
			select {
			case <-ended:
				return ""
			case <-time.After(p.patience):
				return "the origin is held up by a client that does not read"
			}
		},
	}.try(t)
}

// The last answer on a connection before a shutdown says that it is the last: a client that has sent more knows that it must
// send that again elsewhere.
func TestTrapShutdownWithoutNotice(t *testing.T) {
	t.Parallel()
	var asked, leave chan struct{}
	trap{
		origin: func(t *testing.T) string {
			asked, leave = make(chan struct{}), make(chan struct{})
			asked, leave := asked, leave
			return edgetest.Script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
				_, _ = http.ReadRequest(r)
				close(asked)
				<-leave
				_, _ = io.WriteString(c, edgetest.Hello(0, ""))
			})
		},
		falls: func(p *trapped) string {
			c := p.Talk()
			_, _ = io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 2))
			<-asked
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_ = p.stop(ctx)
			}()
			for { // until it does not listen any more
				other, err := net.Dial("tcp", p.Addr)
				if err != nil {
					break
				}
				other.Close()
			}
			close(leave)
			resp, err := http.ReadResponse(c.R, nil)
			<-stopped
			if err != nil || !resp.Close {
				return fmt.Sprintf("no word that it is the last: %v, %v", resp, err)
			}
			return ""
		},
	}.try(t)
}

// A proxy that opens a connection and says nothing holds up nobody else's.
func TestTrapSilentProxyHoldsUpAccepts(t *testing.T) {
	trap{
		yaml:   "source: {trust: [127.0.0.1], proxy_protocol: true}",
		server: func(s *fasthttp.Server) { s.MaxConnsPerIP = 100 },
		falls: func(p *trapped) string {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			edgetest.Must(p.T, err)
			addr := ln.Addr().String()
			if p.alone != nil {
				ln = &proxyproto.Listener{Listener: ln}
			}
			p.on(ln)
			silent, err := net.Dial("tcp", addr)
			edgetest.Must(p.T, err)
			defer silent.Close()
			c, err := net.Dial("tcp", addr)
			edgetest.Must(p.T, err)
			defer c.Close()
			_, _ = io.WriteString(c, "PROXY TCP4 192.0.2.1 192.0.2.200 4000 80\r\n"+lastGet)
			if !p.ends(c) {
				return "a second connection waits for the first"
			}
			return ""
		},
	}.try(t)
}
