package edge

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/counter"
)

const (
	// A chunked body may cost at most bodyCost bytes on the wire for each of its own, and bodySlack bytes more: what goes
	// beyond is chunk extensions and trailers that have no end.
	bodyCost  = 16
	bodySlack = 128 << 10
	// lingerTime and lingerBytes bound what is read of a refused body, so that the refusal arrives: closing a connection with
	// unread bytes resets it, and a reset takes the answer with it.
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// A conn is a client's connection. But for Close it belongs to the goroutine that serves it, or, while a body is on its
// way to the origin, its reading half to the goroutine that sends the body.
type conn struct {
	net.Conn
	raw      net.Conn // what Conn is made of: the socket
	listener *registry
	secure   bool           // TLS
	peer     netip.Addr     // or the client that a trusted proxy names in a PROXY header
	source   counter.Source // whose connections it counts among; zero: nobody's
	closed   atomic.Bool
	accepted int64 // when, Unix nanoseconds
	woken    bool  // by retire; guarded by the registry

	exchange *exchange   // of a request that began in the ExpectHandler
	owed     []owed      // answers on their way to the client
	failed   bool        // the client will not get all that was meant for it
	linger   atomic.Bool // what the client still sends is read before it is closed

	body      bool // a body is being read: the end of the connection is not the end of the body
	aborted   atomic.Bool
	sending   pace  // of that body
	bodyBytes int64 // as they come: chunk lines and what comes after the body are among them
	bodyGot   int64 // of the body itself
	bodyErr   error // reading it failed; the server's parser forgets that where a trailer should come

	paced   bool      // an answer is being streamed, which holds a connection to the origin
	taking  pace      // of that answer
	writeAt time.Time // an instant just now, for the next write; zero: ask the clock
	writeBy time.Time // the write deadline that is set
	readBy  time.Time // the read deadline that is set, as far as it matters
	readDue time.Time // the one that the server wants
	direct  bool      // not the server but a tunnel has the connection now: deadlines are set when they are given

	sawLine bool // the head being read has a line end: it is its headers that are too long, not its target
	flushed bool // all answers before this one are written: the server reads on only then
}

var errBodyCost = errors.New("edge: a chunked body has too much around its bytes")

// owed is an answer that has been made; it counts when it has been written.
type owed struct {
	code int
	from from
}

// startBody tells the connection that what it reads from now on is a body, which the client must send at a pace. It may be
// late by grace at first, and by most once it has sent enough.
func (c *conn) startBody(grace, most time.Duration) {
	c.body, c.bodyBytes, c.bodyGot, c.bodyErr = true, 0, 0, nil
	c.sending = pace{rate: c.listener.bodies, most: max(grace, most), left: grace}
}

// startAnswer tells the connection that what it writes from now on is an answer that is streamed, which the client must take
// at a pace, until endAnswer.
func (c *conn) startAnswer() {
	c.paced, c.taking = true, pace{rate: c.listener.answers, most: c.listener.write, left: c.listener.write}
}

func (c *conn) endAnswer() { c.paced = false }

func (c *conn) Read(p []byte) (int, error) {
	var began time.Time
	if c.body {
		began, c.readBy = time.Now(), time.Time{}
		if err := c.Conn.SetReadDeadline(began.Add(c.sending.left)); err != nil {
			return 0, err
		}
		if c.aborted.Load() {
			return 0, net.ErrClosed
		}
		if c.bodyBytes > bodyCost*c.bodyGot+bodySlack {
			c.bodyErr = errBodyCost
			return 0, errBodyCost
		}
	}
	if !c.body && !c.direct {
		if d := c.readDue.Sub(c.readBy); d > c.listener.slack || d < -c.listener.slack {
			if err := c.Conn.SetReadDeadline(c.readDue); err != nil {
				return 0, err
			}
			c.readBy = c.readDue
			if c.old() {
				_ = c.Conn.SetReadDeadline(longAgo)
			}
		}
	}
	if !c.body {
		c.listener.giveWay()
	}
	n, err := c.Conn.Read(p)
	if err != nil && n == 0 && c.old() {
		n, err = c.readOn(p, began, err)
	}
	if !c.body {
		c.flushed = true
		c.sawLine = c.sawLine || bytes.IndexByte(p[:n], '\n') >= 0
	} else {
		c.bodyBytes += int64(n)
		c.sending.waited(time.Since(began), n)
		if err == io.EOF {
			// The server takes a chunked body that breaks off for a complete one if it sees io.EOF.
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			c.bodyErr = err
		}
	}
	return n, err
}

// SetReadDeadline is called by the server twice for each request: how long the next one may be away, and how long its head may
// take. Nearly always the whole head is there when its first byte is, and the next request comes soon; so the deadline is
// set when the connection is read, and only if the one that is set is not nearly the same: by no more than listener.slack.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.direct {
		return c.Conn.SetReadDeadline(t)
	}
	c.readDue = t
	return nil
}

// SetDeadline is called by the server when it gives the connection away.
func (c *conn) SetDeadline(t time.Time) error {
	c.direct = true
	return c.Conn.SetDeadline(t)
}

// abortBody ends the reading of a body, from another goroutine. Nothing can be read from the connection afterwards.
func (c *conn) abortBody() {
	c.aborted.Store(true) // before the deadline: a Read that sets its own after this one looks again
	_ = c.Conn.SetReadDeadline(longAgo)
}

// Write gives every write its own deadline: one for a whole answer would cut long downloads, none would let a client that
// does not read keep the connection for ever. The deadline is moved at most once a second, because moving it costs, unless the
// client is behind its pace.
func (c *conn) Write(p []byte) (int, error) {
	now, wait := c.writeAt, c.listener.write
	if c.writeAt = (time.Time{}); now.IsZero() {
		now = time.Now()
	}
	if c.paced {
		wait = c.taking.left
	}
	if ahead := c.writeBy.Sub(now); ahead > wait || ahead < wait-min(time.Second, wait/4) {
		c.writeBy = now.Add(wait)
		if err := c.Conn.SetWriteDeadline(c.writeBy); err != nil {
			c.failed = true
			return 0, err
		}
	}
	n, err := c.Conn.Write(p)
	if c.paced {
		c.taking.waited(time.Since(now), n)
	}
	if err != nil {
		c.failed = true
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.listener.stats.slowReaders.Add(1)
			if tcp, ok := socket(c.Conn).(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // what it has not taken is not kept for it by the kernel
			}
		}
	}
	return n, err
}

func (c *conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	defer c.listener.forget(c)
	if c.linger.Load() {
		c.lingeringClose()
	}
	return c.Conn.Close()
}

// lingeringClose says that no more will be sent, and reads a little of what the client still sends (RFC 9112, 9.6).
func (c *conn) lingeringClose() {
	half, ok := socket(c.Conn).(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.Conn.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
}

// owe notes that an answer has been made.
func (c *conn) owe(code int, f from) { c.owed = append(c.owed, owed{code, f}) }

// settle counts the answers that were owed: the server says that it has written them, or that the connection is over.
func (c *conn) settle(s *stats) {
	for _, o := range c.owed {
		if c.failed {
			s.aborted.Add(1)
		} else {
			s.answered(o.code, o.from)
		}
	}
	c.owed = c.owed[:0]
}

// connState is called by the goroutine that serves nc, after an answer and at the end.
func (s *Server) connState(nc net.Conn, state fasthttp.ConnState) {
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	switch state {
	case fasthttp.StateIdle:
		c.settle(s.stats)
		c.sawLine, c.flushed = false, false
	case fasthttp.StateClosed:
		c.settle(s.stats)
		if c.exchange != nil { // invited to send its body, and gone
			s.stats.aborted.Add(1)
			s.release(c.exchange)
			c.exchange = nil
		}
	}
}
