package edge

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/edge/http1"
	"sluice/edge/message"
)

// A screen is the connection that fasthttp is given. It reads what the client sends, finds one head, checks it, and shows exactly
// that head: without the lines that frame the body and without Expect, and nothing beyond it until the handler has run. So
// where a request ends is never for fasthttp to decide. What is no request is shown as stand-in, so that it comes to the handler, and
// is refused there, like any other.
//
// What fasthttp writes after the handler is the answer, unless the handler has relayed one itself: then it is dropped.
//
// fasthttp recovers from no panic, so everything that it calls here does.
type screen struct {
	conn *conn

	request  *incoming // the one under way; nil: none
	exchange any       // whose it is: what belongs to it for who serves
	head     []byte    // what fasthttp has not read yet of the head it is shown
	phase    phase
	failed   bool // fasthttp's answer could not be written
}

// An incoming is a request as a screen has read it.
type incoming struct {
	http1.Request
	in      http1.Body       // its body
	refused *message.Refusal // why it is no request
	broken  bool             // no whole head came: it was slow, or its client is gone, which is not its form
	text    []byte           // the head, where a body comes after it
	shown   []byte           // the head without what fasthttp is not shown
}

// reset makes r ready for the next request.
func (r *incoming) reset() {
	r.Request.Reset()
	r.in, r.refused, r.broken = http1.Body{}, nil, false
}

// A phase is how far the request under way has come.
type phase uint8

const (
	idle    phase = iota // there is none
	shown                // its head is shown; the handler has not begun
	handled              // the handler has it; what fasthttp writes is its answer
	relayed              // the handler has begun to write the answer itself; what fasthttp writes is dropped
)

// A tlsScreen tells fasthttp that the client speaks TLS.
type tlsScreen struct {
	screen
	tls *tls.Conn
}

// Handshake shakes hands, within the time that a head may take. fasthttp does not look at the error: the next Read returns it again.
func (s *tlsScreen) Handshake() (err error) {
	defer s.recover(&err)
	_ = s.conn.Conn.SetReadDeadline(time.Unix(0, s.conn.accepted).Add(s.conn.site.limits.HeaderTimeout))
	return s.tls.Handshake()
}

func (s *tlsScreen) ConnectionState() tls.ConnectionState { return s.tls.ConnectionState() }

// standIn is shown in place of what is no request.
const standIn = "GET / HTTP/1.1\r\nHost: malformed\r\n\r\n"

// errPanic is what fasthttp is told after a fault.
var errPanic = errors.New("edge: a fault")

// errAhead is what fasthttp is told when it reads beyond the head that it is shown: a fault, of which nothing may come.
var errAhead = errors.New("edge: fasthttp reads beyond a head")

// screenOf is the screen of a request.
func screenOf(ctx *fasthttp.RequestCtx) *screen {
	switch c := ctx.Conn().(type) {
	case *screen:
		return c
	case *tlsScreen:
		return &c.screen
	}
	panic("edge: a connection without a screen")
}

// clientReaders hold what clients send, each for as long as a connection is open.
var clientReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, headBuffer) }}

// Read gives fasthttp the head of the next request, which it waits for, or, where it is shown already, the rest of it.
func (s *screen) Read(p []byte) (n int, err error) {
	defer s.recover(&err)
	if len(s.head) == 0 {
		if s.phase == shown {
			return 0, errAhead
		}
		s.conclude()
		if !s.next() {
			return 0, io.EOF
		}
	}
	n = copy(p, s.head)
	s.head = s.head[n:]
	return n, nil
}

// next waits for a request and shows its head.
func (s *screen) next() bool {
	c := s.conn
	switch {
	case c.crowded:
		_ = c.Conn.SetReadDeadline(time.Now().Add(s.conn.site.limits.HeaderTimeout)) // TLS may have to shake hands
		c.linger.Store(true)
		_, _ = c.Write([]byte(crowded))
		return false
	case c.br == nil:
		c.br = clientReaders.Get().(*bufio.Reader)
		c.first = c.br
		c.br.Reset(c)
		c.idle.Store(c.accepted)
		c.readDue = time.Unix(0, c.accepted).Add(s.conn.site.limits.HeaderTimeout)
	default:
		c.idle.Store(c.wrote.UnixNano())
		c.readDue = c.wrote.Add(s.conn.site.limits.IdleTimeout)
	}
	raw, err := c.nextHead(s.conn.site.limits.HeaderTimeout, s.conn.site.limits.HeaderBytes)
	if err != nil && !c.heading {
		return false // nobody asked for anything
	}
	c.idle.Store(0)
	s.request = c.site.begin(s)
	s.head, s.phase = s.read(raw, err), shown
	return true
}

// read reads a head, or why there is none, and returns what fasthttp is shown of it.
func (s *screen) read(raw []byte, err error) []byte {
	r, c, most := s.request, s.conn, s.conn.site.limits.HeaderLines
	if err != nil {
		r.refused, r.broken = headless(err), err != errTargetTooLong && err != errHeadTooLong
	} else if r.refused = r.Parse(raw, most); r.refused == nil && r.Length != 0 {
		r.text = append(r.text[:0], raw[:r.Size]...) // the body takes the head's place in the buffer
		r.refused = r.Parse(r.text, most)
		r.in = http1.NewBody(c.br, c, r.Length)
	}
	if r.refused != nil {
		return append(r.text[:0], standIn...)
	}
	_, _ = c.br.Discard(r.Size)
	if !r.Framing {
		return raw[:r.Size]
	}
	b := append(r.shown[:0], r.Method...)
	b = append(append(b, ' '), r.Target...)
	b = append(append(append(b, ' '), r.Version...), "\r\n"...)
	for i := range r.Head.Lines {
		switch l := &r.Head.Lines[i]; l.Kind {
		case message.ContentLength, message.TransferEncoding, message.Expect:
		default:
			b = append(append(b, l.Name...), ": "...)
			b = append(append(b, l.Value...), "\r\n"...)
		}
	}
	r.shown = append(b, "\r\n"...)
	return r.shown
}

// Write writes fasthttp's answer, which there is only after a handler that has relayed none.
func (s *screen) Write(p []byte) (n int, err error) {
	defer s.recover(&err)
	switch s.phase {
	case relayed:
		return len(p), nil
	case handled:
		n, err = s.conn.Write(p)
		s.failed = s.failed || err != nil
		return n, err
	}
	return 0, errAhead
}

// conclude ends the request under way: its answer is written.
func (s *screen) conclude() {
	if s.request != nil {
		s.conn.site.end(s, s.failed)
	}
	s.detach()
	s.head, s.phase, s.failed = nil, idle, false
}

// detach says that somebody else ends the request under way.
func (s *screen) detach() { s.request, s.exchange = nil, nil }

// Close is called once fasthttp is done with the connection.
func (s *screen) Close() (err error) {
	defer s.recover(&err)
	s.conclude()
	if s.conn.first != nil {
		defer func(first *bufio.Reader) {
			first.Reset(nil)
			clientReaders.Put(first)
		}(s.conn.first)
		s.conn.first = nil
	}
	return s.conn.Close()
}

func (s *screen) recover(err *error) {
	if p := recover(); p != nil {
		s.conn.site.fault(p)
		s.failed = true
		if *err == nil {
			*err = errPanic
		}
	}
}

func (s *screen) LocalAddr() net.Addr  { return s.conn.LocalAddr() }
func (s *screen) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }

// Deadlines are the edge's own.
func (*screen) SetDeadline(time.Time) error      { return nil }
func (*screen) SetReadDeadline(time.Time) error  { return nil }
func (*screen) SetWriteDeadline(time.Time) error { return nil }

// newScreen makes a connection what fasthttp is given.
func newScreen(c *conn) net.Conn {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		return &tlsScreen{screen{conn: c}, secure}
	}
	return &screen{conn: c}
}
