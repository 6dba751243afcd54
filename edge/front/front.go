// Package front stands between clients and fasthttp. A HeadFilter is the one that fasthttp
// is given: it reads what the client sends, checks one head after the other, and shows fasthttp
// that head and nothing else, so that where a request ends is never for fasthttp to decide. A
// Client is the connection itself: its deadlines, the pace at which bodies and answers must move,
// how it is closed.
//
// An Exchange is one request and its answer at the client's end, for the server (edge.Front) and
// the proxy (proxy.Exchange): they decide what is sent, and not how HTTP/1.1 writes it. An origin's
// answer is relayed past fasthttp (outgoing.go), one of the edge's own is fasthttp's to write
// (serve.go).
//
// Only here, and in tunnels, are bytes written to a client.
package front

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"sluice/edge/http1"
	"sluice/edge/message"
)

// A HeadFilter is the one that fasthttp is given. It reads what the client sends, finds one head,
// checks it, and shows exactly that head: without the lines that frame the body and without Expect,
// and nothing beyond it until the handler has run. So where a request ends is never for fasthttp to
// decide. What is no request is shown as DummyRequest, so that it comes to the handler, and is
// refused there, like any other.
//
// What fasthttp writes after the handler is the answer, unless the handler has relayed one itself:
// then it is dropped. Requests of a client that is blocked already are answered here, and not
// shown.
//
// fasthttp recovers from no panic, so everything that it calls here does.
type HeadFilter struct {
	Conn *Client

	Exchange *Exchange // the one under way; nil: none
	head     []byte    // what fasthttp has not read yet of the head it is shown
	phase    phase
	failed   bool // fasthttp's answer could not be written
	// So many requests of a connection that clients share are judged before fasthttp is shown them
	early uint8
	taken bool // somebody else serves the connection, and closes it
}

// judgedEarly is for how many requests after a refusal: where one in so many is refused, nearly all
// refusals are made here.
const judgedEarly = 64

// A phase is how far the request under way has come.
type phase uint8

const (
	idle    phase = iota // there is none
	shown                // its head is shown; the handler has not begun
	handled              // the handler has it; what fasthttp writes is its answer
	// The handler has begun to write the answer itself; what fasthttp writes is dropped
	relayed
)

// A tlsHeadFilter shows fasthttp that the client speaks TLS.
type tlsHeadFilter struct {
	HeadFilter
	tls *tls.Conn
}

// Handshake shakes hands, within the time that a head may take. fasthttp does not look at the
// error: the next Read returns it again.
func (s *tlsHeadFilter) Handshake() (err error) {
	defer s.recover(&err)
	s.Conn.Idle.Store(s.Conn.Accepted) // it may have to make room
	_ = s.Conn.Conn.SetReadDeadline(time.Unix(0, s.Conn.Accepted).
		Add(s.Conn.Server.Limits.HeaderTimeout))
	err = s.tls.Handshake()
	if no := (tls.RecordHeaderError{}); errors.As(err, &no) && no.Conn != nil &&
		isClear(no.RecordHeader[:]) {
		s.Conn.Conn, s.Conn.clear = no.Conn, true // the answer must be in clear text, too
	}
	return err
}

// isClear reports whether what came instead of a handshake begins as a request of HTTP does.
func isClear(text []byte) bool {
	return message.IsMethod(text[:1]) && message.IsText(text)
}

func (s *tlsHeadFilter) ConnectionState() tls.ConnectionState { return s.tls.ConnectionState() }

// DummyRequest is the request that fasthttp reads instead of malformed input.
const DummyRequest = "GET / HTTP/1.1\r\nHost: malformed\r\n\r\n"

// preface is the part of the HTTP/2 preface (RFC 9113, 3.4) that looks like a head.
const preface = "PRI * HTTP/2.0\r\n\r\n"

// errPanic is what fasthttp gets after a panic.
var errPanic = errors.New("edge: a fault")

// ErrAhead is what fasthttp gets when it reads beyond the head that it was given: a fault, which
// must have no effect.
var ErrAhead = errors.New("edge: fasthttp reads beyond a head")

// clientReaders hold what clients send, each for as long as a connection is open.
var clientReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, headBuffer) }}

// Read gives fasthttp the head of the next request, which it waits for, or, where it is shown
// already, the rest of it.
func (s *HeadFilter) Read(p []byte) (n int, err error) {
	defer s.recover(&err)
	if len(s.head) == 0 {
		if s.phase == shown {
			return 0, ErrAhead
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

// next waits for a request and shows its head. A client that goes on asking while it is blocked is
// answered here, which spares fasthttp its heads and answers: a sixth of a refusal's cost. So is one
// whose connection a proxy shares among clients, of whom one was refused lately.
func (s *HeadFilter) next() bool {
	c := s.Conn
	if c.OverCap {
		// TLS may have to shake hands
		_ = c.Conn.SetReadDeadline(time.Now().Add(s.Conn.Server.Limits.HeaderTimeout))
		c.Linger.Store(true)
		_, _ = c.Write([]byte(crowded))
		return false
	}
	for {
		head, ok := s.receive()
		if !ok {
			return false
		}
		e := s.Exchange
		first := c.Blocked.Load() != 0 || s.early > 0
		if s.early > 0 {
			s.early--
		}
		if !first || e.In.Refused != nil || !c.Server.Judge(e) {
			s.head, s.phase = head, shown
			return true
		}
		last := e.In.Close || s.failed
		if s.conclude(); last {
			return false
		}
	}
}

// receive waits for a request, and returns what fasthttp is to be shown of it.
func (s *HeadFilter) receive() (head []byte, ok bool) {
	c := s.Conn
	if c.Reader == nil {
		c.Reader = clientReaders.Get().(*bufio.Reader)
		c.first = c.Reader
		c.Reader.Reset(c)
		c.Idle.Store(c.Accepted)
		c.readDue = time.Unix(0, c.Accepted).Add(s.Conn.Server.Limits.HeaderTimeout)
	} else {
		c.Idle.Store(c.wrote.UnixNano())
		c.readDue = c.wrote.Add(s.Conn.Server.Limits.IdleTimeout)
	}
	var raw []byte
	err := errClear
	if c.heading = c.clear; !c.clear {
		raw, err = c.NextHead(s.Conn.Server.Limits.HeaderTimeout, s.Conn.Server.Limits.HeaderBytes)
	}
	if err != nil && !c.heading {
		return nil, false // nothing was requested
	}
	if err == nil && bytes.HasPrefix(raw, []byte(preface)) && c.Server.Switch != nil &&
		c.Server.Switch(c) {
		return nil, false
	}
	c.Idle.Store(0)
	c.WriteAt = time.Time{}
	s.Exchange = c.Server.Begin(s)
	return s.read(raw, err), true
}

// read reads a head, or why there is none, and returns what fasthttp is shown of it.
func (s *HeadFilter) read(raw []byte, err error) []byte {
	e, c, most := s.Exchange, s.Conn, s.Conn.Server.Limits.HeaderLines
	r := &e.In
	if err != nil {
		r.Refused, r.Broken = c.headless(err)
	} else if r.Refused = r.Parse(raw, most); r.Refused == nil && r.Length != 0 {
		e.text = append(e.text[:0], raw[:r.Size]...) // the body replaces the head in the buffer
		r.Refused = r.Parse(e.text, most)
		e.body = http1.NewBody(c.Reader, e, r.Length)
	}
	if r.Refused != nil {
		return append(e.text[:0], DummyRequest...)
	}
	_, _ = c.Reader.Discard(r.Size)
	if !r.Framing {
		return raw[:r.Size]
	}
	b := append(e.shown[:0], r.Method...)
	b = append(append(b, ' '), r.Target...)
	b = append(append(append(b, ' '), r.Version...), "\r\n"...)
	for i := range r.Head.Lines {
		switch l := &r.Head.Lines[i]; l.Kind {
		case message.ContentLength, message.TransferEncoding, message.Expect:
		default:
			b = l.Append(b)
		}
	}
	e.shown = append(b, "\r\n"...)
	return e.shown
}

// Write writes fasthttp's answer, which there is only after a handler that has relayed none.
func (s *HeadFilter) Write(p []byte) (n int, err error) {
	defer s.recover(&err)
	switch s.phase {
	case relayed:
		return len(p), nil
	case handled:
		n, err = s.Conn.Write(p)
		s.failed = s.failed || err != nil
		return n, err
	}
	return 0, ErrAhead
}

// conclude ends the request under way: its answer is written.
func (s *HeadFilter) conclude() {
	if s.Exchange != nil {
		s.Conn.Server.End(s.Exchange, s.failed)
	}
	s.Exchange, s.head, s.phase, s.failed = nil, nil, idle, false
}

// Close is called once fasthttp is done with the connection.
func (s *HeadFilter) Close() (err error) {
	defer s.recover(&err)
	s.conclude()
	if s.taken {
		return nil
	}
	if s.Conn.first != nil {
		defer func(first *bufio.Reader) {
			first.Reset(nil)
			clientReaders.Put(first)
		}(s.Conn.first)
		s.Conn.first = nil
	}
	return s.Conn.Close()
}

func (s *HeadFilter) recover(err *error) {
	if p := recover(); p != nil {
		s.Conn.Server.Fault(p)
		s.failed = true
		if *err == nil {
			*err = errPanic
		}
	}
}

func (s *HeadFilter) LocalAddr() net.Addr  { return s.Conn.LocalAddr() }
func (s *HeadFilter) RemoteAddr() net.Addr { return s.Conn.RemoteAddr() }

// Deadlines are the edge's own.
func (*HeadFilter) SetDeadline(time.Time) error      { return nil }
func (*HeadFilter) SetReadDeadline(time.Time) error  { return nil }
func (*HeadFilter) SetWriteDeadline(time.Time) error { return nil }

// TakeOver returns the client's connection behind one over TLS that fasthttp is given, and is done
// with when its handler returns. Who takes it over serves and closes it.
func TakeOver(c net.Conn) *Client {
	s := c.(*tlsHeadFilter)
	s.taken = true
	return s.Conn
}

// New makes a connection what fasthttp is given.
func New(c *Client) net.Conn {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		return &tlsHeadFilter{HeadFilter{Conn: c}, secure}
	}
	return &HeadFilter{Conn: c}
}
