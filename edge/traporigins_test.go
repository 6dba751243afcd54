package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// A script is an origin whose first connection is played by a test; all later ones answer hello.
func script(t *testing.T, network string, first func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	var begun atomic.Bool
	return listenEach(t, network, func(c net.Conn) {
		r := bufio.NewReader(c)
		if begun.CompareAndSwap(false, true) && first != nil {
			first(c, r)
		}
		for {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			_, _ = io.WriteString(c, hello(0, ""))
		}
	})
}

// A connection on which the origin said something that was not asked of it is not used again: the next client must not get it.
// Least of all after a switch of protocols, which makes all that follows no HTTP.
func TestTrapPoisonedConnections(t *testing.T) {
	for name, answer := range map[string]string{
		"unasked 101":                 "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
		"an answer that nobody wants": hello(0, ""),
	} {
		t.Run(name, func(t *testing.T) {
			said, poisoned := make(chan struct{}), make(chan struct{})
			trap{
				origin: func(t *testing.T) string {
					said, poisoned = make(chan struct{}), make(chan struct{})
					return script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
						_, _ = http.ReadRequest(r)
						_, _ = io.WriteString(c, answer)
						<-said
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
						close(poisoned)
					})
				},
				falls: func(p *trapped) string {
					p.get("/")
					close(said)
					<-poisoned
					if _, got := p.get("/"); got == "poison" {
						return "the next client got another's bytes"
					}
					return ""
				},
			}.try(t)
		})
	}
}

// A request is sent to the origin at most twice, one that changes something once, and after a timeout never again.
func TestTrapRetries(t *testing.T) {
	for name, test := range map[string]struct {
		request, answer string
		most            int
	}{
		"GET, closed":    {lastGet, "\x00", 2},
		"PUT, closed":    {"PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "\x00", 1},
		"GET, cut":       {lastGet, "HTTP/1.1 200 OK\r\nX: \x00", 1},
		"GET, garbage":   {lastGet, "SSH-2.0-OpenSSH_9.2\r\n\r\n\x00", 1},
		"GET, no answer": {lastGet, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			trap{
				answer: func(int, string) string { return test.answer },
				client: func(c *fasthttp.HostClient) { c.ReadTimeout = 100 * time.Millisecond },
				falls: func(p *trapped) string {
					p.raw(test.request)
					if n := len(p.origin.requests()); n > test.most {
						return fmt.Sprintf("%d requests reached the origin for one", n)
					}
					return ""
				},
			}.try(t)
		})
	}
}

// The origin has a time to answer in, whether the client still waits or not.
func TestTrapOriginWithoutDeadline(t *testing.T) {
	var asked, ended chan struct{}
	trap{
		origin: func(t *testing.T) string {
			asked, ended = make(chan struct{}), make(chan struct{})
			asked, ended := asked, ended
			return script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
				_, _ = http.ReadRequest(r)
				close(asked)
				_, _ = r.ReadByte()
				close(ended)
			})
		},
		falls: func(p *trapped) string {
			c := p.dial()
			_, _ = io.WriteString(c, lastGet)
			<-asked
			c.Close()
			select {
			case <-ended:
				return ""
			case <-time.After(p.patience):
				return "the origin is still asked after its client has gone"
			}
		},
	}.try(t)
}

// A kept connection that the origin has closed meanwhile fails nobody: not even a request that cannot be sent again.
func TestTrapStaleConnections(t *testing.T) {
	var closed chan struct{}
	trap{
		origin: func(t *testing.T) string {
			closed = make(chan struct{})
			closed := closed
			return script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
				_, _ = http.ReadRequest(r)
				_, _ = io.WriteString(c, hello(0, ""))
				c.Close()
				close(closed)
			})
		},
		falls: func(p *trapped) string {
			p.get("/")
			<-closed
			if resp, _ := p.talk().say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"); resp.StatusCode != 200 {
				return resp.Status
			}
			return ""
		},
	}.try(t)
}

// Origins have addresses of IPv6, too.
func TestTrapOriginsOfIPv6(t *testing.T) {
	trap{
		origin: func(t *testing.T) string { return script(t, "tcp6", nil) },
		falls: func(p *trapped) string {
			if got := p.raw(lastGet); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				return got
			}
			return ""
		},
	}.try(t)
}
