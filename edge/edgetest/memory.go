package edgetest

import (
	"github.com/valyala/fasthttp"

	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/front"
	"sluice/edge/listen"
	"sluice/edge/upstream"
)

// fasthttp starts its clock, which goes on for good, outside of any test with a clock of its own.
// It does not where the test's binary is the program under test, which sets its zone first.
func init() {
	if os.Getenv("SLUICE_UNDER_TEST") == "" {
		new(fasthttp.ResponseHeader).Header()
	}
}

// MemoryServer is a server with one connection to its origin.
func MemoryServer(t testing.TB, origin net.Conn, yaml string,
	change ...func(*edge.Options)) *edge.Server {
	t.Helper()
	s := NewServer(t, Parse(t, "origins: [{servers: ['http://127.0.0.1:9']}]\n"+yaml), change...)
	o := s.Upstreams().All[0]
	o.Idle = append(o.Idle, &upstream.Link{Conn: origin, Origin: o, Until: time.Now().
		Add(time.Hour)})
	return s
}

// halves is a connection in memory that can be closed in one direction, as far as anybody asks.
type halves struct{ net.Conn }

func (halves) CloseWrite() error { return nil }

// ServeAlone serves one client in memory until the server is done with it, and returns how long
// that was.
func ServeAlone(s *edge.Server, change func(*front.Client), talk func(net.Conn)) time.Duration {
	near, far := net.Pipe()
	c := (&listen.Listener{Registry: s.Registry()}).Admit(halves{near})
	change(c)
	start := time.Now()
	var talking sync.WaitGroup
	talking.Go(func() { talk(far) })
	s.ServeConn(c)
	took := time.Since(start)
	talking.Wait()
	return took
}

// Unchanged leaves a client of ServeAlone as it is.
func Unchanged(*front.Client) {}

// A Repeater is an origin that gives the same answer again and again, and lets others run before.
type Repeater struct {
	net.Conn
	Text []byte
}

func (a *Repeater) Read(p []byte) (int, error) {
	runtime.Gosched()
	return copy(p, a.Text), nil
}

func (a *Repeater) Write(p []byte) (int, error) { return len(p), nil }

func (a *Repeater) Close() error { return nil }

func (a *Repeater) SetDeadline(time.Time) error { return nil }

func (a *Repeater) SetReadDeadline(time.Time) error { return nil }

func (a *Repeater) SetWriteDeadline(time.Time) error { return nil }

// Crowd is a trusted proxy that sends requests of many sources on one connection.
type Crowd struct {
	Repeater
	Requests, Sources, sent int
	buf, Rest               []byte // a request, and what of it has not been read
}

func (c *Crowd) Read(p []byte) (int, error) {
	if len(c.Rest) == 0 {
		if c.sent == c.Requests {
			return 0, io.EOF
		}
		n := c.sent % c.Sources
		c.sent++
		c.buf = fmt.Appendf(append(c.buf[:0], BenchRequest[:len(BenchRequest)-2]...),
			"X-Forwarded-For: 198.18.%d.%d\r\n\r\n", n>>8, n&255)
		c.Rest = c.buf
	}
	n := copy(p, c.Rest)
	c.Rest = c.Rest[n:]
	return n, nil
}

func (c *Crowd) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

func (c *Crowd) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 80} }

const (
	BenchRequest = "GET /some/path?x=1 HTTP/1.1\r\nHost: example.com\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n"
	BenchAnswer  = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n"
)

// A Sender is a client in memory: what it sends is there from the beginning, at most so many bytes
// at once, and what it gets is kept.
type Sender struct {
	Repeater
	Sends string
	Most  int
	Got   bytes.Buffer
}

func (c *Sender) Read(p []byte) (int, error) {
	if c.Sends == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.Most)], c.Sends)
	c.Sends = c.Sends[n:]
	return n, nil
}

func (c *Sender) Write(p []byte) (int, error) { return c.Got.Write(p) }

func (c *Sender) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

// Answers is the status of each answer that the client got.
func (c *Sender) Answers(method string) (all []int, last *http.Response) {
	for br := bufio.NewReader(&c.Got); ; {
		a, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return all, last
		}
		_, _ = io.Copy(io.Discard, a.Body)
		all, last = append(all, a.StatusCode), a
	}
}

// A Hasty origin answers when everybody else waits for something, whatever it has taken by then. It
// takes so many bytes.
type Hasty struct {
	Repeater
	Takes  int
	Answer string
}

func (o *Hasty) Read(p []byte) (int, error) {
	time.Sleep(time.Nanosecond) // of a clock that stands still while anybody else is at work
	if o.Answer == "" {
		return 0, io.EOF
	}
	n := copy(p, o.Answer)
	o.Answer = o.Answer[n:]
	return n, nil
}

func (o *Hasty) Write(p []byte) (int, error) {
	if o.Takes -= len(p); o.Takes < 0 {
		return max(0, len(p)+o.Takes), syscall.EPIPE
	}
	return len(p), nil
}
