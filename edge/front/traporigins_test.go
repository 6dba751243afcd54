package front_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/edge/edgetest"
)

// A connection on which the origin said something that was not asked of it is not used again: the next client must not get it.
// Least of all after a switch of protocols, which makes all that follows no HTTP.
func TestTrapPoisonedConnections(t *testing.T) {
	for name, answer := range map[string]string{
		"unasked 101":                 "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
		"an answer that nobody wants": edgetest.Hello(0, ""),
	} {
		t.Run(name, func(t *testing.T) {
			said, poisoned := make(chan struct{}), make(chan struct{})
			trap{
				origin: func(t *testing.T) string {
					said, poisoned = make(chan struct{}), make(chan struct{})
					return edgetest.Script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
						_, _ = http.ReadRequest(r)
						_, _ = io.WriteString(c, answer)
						<-said
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
						close(poisoned)
					})
				},
				falls: func(p *trapped) string {
					p.Get("/")
					close(said)
					<-poisoned
					if _, got := p.Get("/"); got == "poison" {
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
		request, Answer string
		Most            int
	}{
		"GET, closed":    {lastGet, "\x00", 2},
		"PUT, closed":    {"PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "\x00", 1},
		"GET, cut":       {lastGet, "HTTP/1.1 200 OK\r\nX: \x00", 1},
		"GET, garbage":   {lastGet, "SSH-2.0-OpenSSH_9.2\r\n\r\n\x00", 1},
		"GET, no answer": {lastGet, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			trap{
				Answer: func(int, string) string { return test.Answer },
				client: func(c *fasthttp.HostClient) { c.ReadTimeout = 100 * time.Millisecond },
				falls: func(p *trapped) string {
					p.Raw(test.request)
					if n := len(p.origin.Requests()); n > test.Most {
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
			return edgetest.Script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
				_, _ = http.ReadRequest(r)
				close(asked)
				_, _ = r.ReadByte()
				close(ended)
			})
		},
		falls: func(p *trapped) string {
			c := p.Dial()
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
			return edgetest.Script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
				_, _ = http.ReadRequest(r)
				_, _ = io.WriteString(c, edgetest.Hello(0, ""))
				c.Close()
				close(closed)
			})
		},
		falls: func(p *trapped) string {
			p.Get("/")
			<-closed
			if resp, _ := p.Talk().Say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"); resp.StatusCode != 200 {
				return resp.Status
			}
			return ""
		},
	}.try(t)
}

// Origins have addresses of IPv6, too.
func TestTrapOriginsOfIPv6(t *testing.T) {
	trap{
		origin: func(t *testing.T) string { return edgetest.Script(t, "tcp6", nil) },
		falls: func(p *trapped) string {
			if got := p.Raw(lastGet); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				return got
			}
			return ""
		},
	}.try(t)
}
