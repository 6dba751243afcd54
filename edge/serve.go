package edge

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"sluice/counter"
)

const (
	// headBuffer is what is read at once of a client that sends heads, and bodyBuffer of one that sends a body, in bytes.
	headBuffer = 4 << 10
	bodyBuffer = 32 << 10
)

// clientReaders hold what clients send, each for as long as a connection is open.
var clientReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, headBuffer) }}

// serveConn is the life of a connection: one request after the other.
func (s *Server) serveConn(c *conn) {
	defer func() {
		if p := recover(); p != nil { // outside of any request
			s.fault(p)
		}
	}()
	defer c.Close()
	if c.crowded {
		_ = c.Conn.SetReadDeadline(time.Now().Add(s.limits.HeaderTimeout)) // TLS may have to shake hands
		c.linger.Store(true)
		_, _ = c.Write([]byte(crowded))
		return
	}
	first := clientReaders.Get().(*bufio.Reader)
	defer clientReaders.Put(first)
	first.Reset(c)
	defer first.Reset(nil)
	c.br = first
	c.readDue = time.Unix(0, c.accepted).Add(s.limits.HeaderTimeout)
	for s.serveRequest(c) {
		c.readDue = c.wrote.Add(s.limits.IdleTimeout)
	}
}

// crowded is what a connection above the cap is told.
const crowded = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"

// An exchange is the life of one request and its answer. It is used again for the next, of whichever connection.
type exchange struct {
	server *Server
	snap   *snapshot
	conn   *conn
	now    time.Time // the one instant at which the request is judged

	method  []byte // as rules see it
	target  []byte // the path's, before it was made canonical
	version []byte
	old     bool // HTTP/1.0
	head    head
	size    int    // of the whole head, in bytes
	length  int64  // of the body, in bytes, or lengthChunked
	invite  bool   // the client waits to be invited to send its body
	close   bool   // the connection ends with the answer
	text    []byte // the head, where a body comes after it

	client   netip.Addr
	source   counter.Source // the client's
	chain    []netip.Addr   // addresses believed, the nearest first
	trusted  bool           // the peer is
	rawHost  []byte         // as it came, and as the origin gets it
	host     []byte         // as rules see it
	path     []byte
	decision decision

	body      answerBody  // the exchange with the origin
	open      *answerBody // is it, until it is over
	answer    *answerHead // of the origin, while it is made the client's
	upgrade   []byte      // the protocol that the origin is asked to switch to; nil: none
	trailers  bool        // the client takes those of the answer
	announced nameSet     // trailers of the request that may go to the origin
	bodyRead  bool        // somebody has begun to read the request's body
	reply     reply
	sent      bool // the answer, or a part of it
	counted   bool // as answered or aborted

	forwardedHost    bool
	hostBuf, pathBuf []byte
	buf              []byte
}

// begin counts a request as received and takes what its life needs.
func (s *Server) begin(c *conn) *exchange {
	s.stats.received.Add(1)
	x := s.pool.Get().(*exchange)
	x.snap, x.conn, x.now = s.snap.Load(), c, time.Now()
	x.method, x.target, x.version, x.rawHost, x.host, x.path = nil, nil, nil, nil, nil, nil
	x.head.lines, x.head.size, x.length = x.head.lines[:0], 0, 0
	x.client, x.chain = netip.Addr{}, x.chain[:0]
	x.old, x.invite, x.close, x.bodyRead, x.sent, x.counted = false, false, false, false, false, false
	c.writeAt = time.Time{}
	return x
}

func (s *Server) release(x *exchange) {
	s.limiter.Settle(&x.decision.Decision, 0, x.now) // what is still held never was
	x.decision.Reset()
	if x.answer != nil {
		answerHeads.Put(x.answer)
		x.answer = nil
	}
	x.snap, x.conn, x.open, x.reply.stream = nil, nil, nil, nil
	s.pool.Put(x)
}

// serveRequest is the life of a request, from its first byte to the last of its answer. It reports whether the connection may
// carry another.
func (s *Server) serveRequest(c *conn) (more bool) {
	raw, err := c.nextHead(s.limits.HeaderTimeout, s.limits.HeaderBytes)
	if err != nil && !c.heading {
		return false // nobody asked for anything
	}
	x := s.begin(c)
	defer func() {
		if p := recover(); p != nil {
			s.panicked(x, p)
			more = false
		}
	}()
	if err == nil {
		x.handle(raw)
	} else if err == errTargetTooLong || err == errHeadTooLong {
		x.malformed(headless(err))
	} else {
		x.turnAway(headless(err)) // it was slow, or its client is gone: that is not its form
	}
	answered := s.finish(x)
	if x.open != nil {
		if answered {
			x.tunnel()
		}
		x.over()
	}
	more = answered && !x.close
	s.release(x)
	return more
}

// handle is the life of a request up to its answer.
func (x *exchange) handle(raw []byte) {
	r := x.understand(raw)
	if r == nil && x.length != 0 {
		x.text = append(x.text[:0], raw[:x.size]...) // the body takes the head's place in the buffer
		r = x.understand(x.text)
	}
	if r != nil {
		x.malformed(r)
		return
	}
	_, _ = x.conn.br.Discard(x.size)
	if !x.admit() {
		x.close = x.close || x.invite // it may have begun to send its body, or not
		return
	}
	if x.invite && x.length != 0 {
		_, _ = x.conn.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")) // a failure shows when the body is read
	}
	status := x.forward()
	if x.decision.Held {
		x.server.limiter.Settle(&x.decision.Decision, status, time.Now())
	}
	x.limitHeaders()
	x.verdictHeader()
	if x.reply.stream != nil && x.body.framing != fixed {
		x.chunks()
	}
}

// finish is the end of every request: its body must not be taken for the next request, and its answer is sent and counted. It
// reports whether the client got the answer.
func (s *Server) finish(x *exchange) bool {
	c, r := x.conn, &x.reply
	if !x.bodyRead && x.length != 0 {
		x.skipBody()
	}
	if s.draining.Load() {
		x.close = true
		c.linger.Store(true)
	}
	switch {
	case r.status == http.StatusSwitchingProtocols:
		r.head = append(r.head, "Connection: Upgrade\r\nUpgrade: "...)
		r.head = append(append(r.head, x.upgrade...), "\r\n"...)
	case x.close:
		r.head = append(r.head, "Connection: close\r\n"...)
	case x.old:
		r.head = append(r.head, "Connection: keep-alive\r\n"...)
	}
	r.head = append(r.head, "\r\n"...)
	if s.access != nil {
		s.access.note(x)
	}
	err := x.send()
	x.counted = true
	if err != nil {
		s.stats.aborted.Add(1)
		return false
	}
	s.stats.answered(r.status, r.from)
	return true
}

// send sends the answer. A body that is all there goes with its head, and the connection to the origin is free before the client
// has read a byte.
func (x *exchange) send() (err error) {
	r := &x.reply
	x.sent = true
	switch b := r.stream; {
	case b == nil:
		if string(x.method) != http.MethodHead {
			r.head = append(r.head, r.body...)
		}
		_, err = x.conn.Write(r.head)
	case b.framing == fixed && b.left <= int64(b.br.Buffered()):
		part, _ := b.br.Peek(int(b.left))
		r.head = append(r.head, part...)
		b.discard(len(part))
		x.conn.writeAt = x.over()
		_, err = x.conn.Write(r.head)
	default:
		if err = b.send(r.head, b.framing != fixed && !x.old); err != nil {
			b.reuse = false
			if x.old && b.framing != fixed {
				x.conn.reset() // where the connection's end is the body's, one in order would pass the part off as the whole
			}
		}
		x.over()
	}
	return err
}

// over ends the exchange with the origin, and returns when that was.
func (x *exchange) over() time.Time {
	x.open = nil
	return x.body.finish()
}

// panicked keeps a fault within its request. What it used is not used again.
func (s *Server) panicked(x *exchange, p any) {
	s.fault(p)
	defer func() {
		if p := recover(); p != nil { // once more, in what the client was to be told
			s.fault(p)
			if !x.counted {
				s.stats.aborted.Add(1)
			}
		}
	}()
	s.limiter.Settle(&x.decision.Decision, 0, time.Now())
	if x.open != nil { // between origin and client, and nobody else will end it
		x.body.reuse = false
		x.over()
	}
	switch {
	case x.counted:
	case x.sent:
		s.stats.aborted.Add(1)
	default:
		x.close, x.bodyRead = true, true
		x.conn.linger.Store(true)
		x.say(mistake)
		s.finish(x)
	}
}

var mistake = refuse(http.StatusInternalServerError, "internal", "This server made a mistake.")

func (s *Server) fault(p any) {
	s.stats.panics.Add(1)
	s.warn("fault in the edge", "panic", p)
}

var (
	errTargetTooLong = errors.New("edge: the first line of a request is longer than limits.header_bytes")
	errHeadTooLong   = errors.New("edge: the head of a request is longer than limits.header_bytes")
)

// nextHead waits for the whole head of the next request, and returns it, perhaps with more behind it. It stays in the buffer. Empty
// lines before it are passed over (RFC 9112, 2.2). The whole of it must come within so long after its first byte.
func (c *conn) nextHead(within time.Duration, most int) ([]byte, error) {
	timed, searched := false, 0
	if c.heading = c.br.Buffered() > 0; c.heading {
		if c.piped++; c.piped%fair == 0 {
			runtime.Gosched()
		}
	}
	for {
		have, _ := c.br.Peek(c.br.Buffered())
		for searched == 0 && (bytes.HasPrefix(have, []byte{'\n'}) || bytes.HasPrefix(have, []byte("\r\n"))) {
			n := bytes.IndexByte(have, '\n') + 1
			_, _ = c.br.Discard(n)
			have = have[n:]
			c.heading = len(have) > 0 // an empty line after a body is not the next request
		}
		end := len(have) + 1
		if bytes.HasSuffix(have, []byte("\r\n\r\n")) && len(have) <= most {
			return have, nil // nearly always: one head and nothing else
		} else if i := bytes.Index(have[searched:], []byte("\r\n\r\n")); i >= 0 {
			end = searched + i + 4
		}
		switch {
		case end > most && bytes.IndexByte(have[:most], '\n') < 0:
			return nil, errTargetTooLong
		case end > most:
			return nil, errHeadTooLong
		case end <= len(have):
			return have[:end], nil
		}
		searched = max(0, len(have)-3)
		if len(have) == c.br.Size() {
			c.grow(most)
		}
		if c.heading && !timed {
			c.readDue, timed = time.Now().Add(within), true
		}
		if _, err := c.br.Peek(len(have) + 1); err != nil {
			return nil, err
		}
	}
}

// grow makes the buffer larger. What is in it stays.
func (c *conn) grow(size int) {
	if have, _ := c.br.Peek(c.br.Buffered()); size > c.br.Size() {
		c.br = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(have)), c), size)
		_, _ = c.br.Peek(len(have))
	}
}

// headless is the answer to what is no request.
func headless(err error) *refusal {
	var timeout net.Error
	switch {
	case err == errTargetTooLong:
		return refuse(http.StatusRequestURITooLong, "target_too_long", "The request target is longer than this server accepts.")
	case err == errHeadTooLong:
		return refuse(http.StatusRequestHeaderFieldsTooLarge, "header_too_large", "The head of the request is larger than this server accepts.")
	case errors.As(err, &timeout) && timeout.Timeout():
		return refuse(http.StatusRequestTimeout, "timeout", "The request came too slowly.")
	}
	return badRequest
}
