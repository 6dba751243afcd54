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
	conn   *conn
	server *Server

	x      *exchange // the request under way; nil: none
	head   []byte    // what fasthttp has not read yet of the head it is shown
	phase  phase
	failed bool // fasthttp's answer could not be written
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
	_ = s.conn.Conn.SetReadDeadline(time.Unix(0, s.conn.accepted).Add(s.server.limits.HeaderTimeout))
	return s.tls.Handshake()
}

func (s *tlsScreen) ConnectionState() tls.ConnectionState { return s.tls.ConnectionState() }

// standIn is shown in place of what is no request.
const standIn = "GET / HTTP/1.1\r\nHost: malformed\r\n\r\n"

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
		_ = c.Conn.SetReadDeadline(time.Now().Add(s.server.limits.HeaderTimeout)) // TLS may have to shake hands
		c.linger.Store(true)
		_, _ = c.Write([]byte(crowded))
		return false
	case c.br == nil:
		c.br = clientReaders.Get().(*bufio.Reader)
		c.first = c.br
		c.br.Reset(c)
		c.idle.Store(c.accepted)
		c.readDue = time.Unix(0, c.accepted).Add(s.server.limits.HeaderTimeout)
	default:
		c.idle.Store(c.wrote.UnixNano())
		c.readDue = c.wrote.Add(s.server.limits.IdleTimeout)
	}
	raw, err := c.nextHead(s.server.limits.HeaderTimeout, s.server.limits.HeaderBytes)
	if err != nil && !c.heading {
		return false // nobody asked for anything
	}
	c.idle.Store(0)
	s.x = s.server.begin(s)
	s.head, s.phase = s.x.screen(raw, err), shown
	return true
}

// screen reads a head, or why there is none, and returns what fasthttp is shown of it.
func (x *exchange) screen(raw []byte, err error) []byte {
	if err != nil {
		x.refused, x.broken = headless(err), err != errTargetTooLong && err != errHeadTooLong
	} else if x.refused = x.Parse(raw, x.server.limits.HeaderLines); x.refused == nil && x.Length != 0 {
		x.text = append(x.text[:0], raw[:x.Size]...) // the body takes the head's place in the buffer
		x.refused = x.Parse(x.text, x.server.limits.HeaderLines)
		x.in = http1.NewBody(x.conn.br, x.conn, x.Length)
	}
	if x.refused != nil {
		return append(x.text[:0], standIn...)
	}
	_, _ = x.conn.br.Discard(x.Size)
	if !x.Framing {
		return raw[:x.Size]
	}
	b := append(x.shown[:0], x.Method...)
	b = append(append(b, ' '), x.Target...)
	b = append(append(append(b, ' '), x.Version...), "\r\n"...)
	for i := range x.Head.Lines {
		switch l := &x.Head.Lines[i]; l.Kind {
		case message.ContentLength, message.TransferEncoding, message.Expect:
		default:
			b = append(append(b, l.Name...), ": "...)
			b = append(append(b, l.Value...), "\r\n"...)
		}
	}
	x.shown = append(b, "\r\n"...)
	return x.shown
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

// conclude counts the request under way: its answer is written.
func (s *screen) conclude() {
	if x := s.x; x != nil {
		s.x = nil
		x.count(s.failed)
		s.server.release(x)
	}
	s.head, s.phase, s.failed = nil, idle, false
}

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
		s.server.fault(p)
		s.failed = true
		if *err == nil {
			*err = errFault
		}
	}
}

func (s *screen) LocalAddr() net.Addr  { return s.conn.LocalAddr() }
func (s *screen) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }

// Deadlines are the edge's own.
func (*screen) SetDeadline(time.Time) error      { return nil }
func (*screen) SetReadDeadline(time.Time) error  { return nil }
func (*screen) SetWriteDeadline(time.Time) error { return nil }
