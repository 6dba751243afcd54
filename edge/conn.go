package edge

import (
	"bufio"
	"container/list"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/counter"
	"sluice/edge/socket"
)

const (
	// lingerTime and lingerBytes bound what is read of a refused body, so that the refusal arrives: closing a connection with
	// unread bytes resets it, and a reset takes the answer with it.
	lingerTime  = time.Second
	lingerBytes = 256 << 10
	// patience is how many times a connection gives way in a row. The next read is mostly in vain and waits for the poller, which has
	// its turn only when nobody else wants to run: connections that find more each time they are back would keep it from the others.
	patience = 4
	// fair is how many requests of those that came at once are answered before others have their turn.
	fair = 16
)

// A site is what all connections of a server have in common.
type site struct {
	limits Limits
	slack  time.Duration // by how much a read deadline may be off
	alone  bool          // there is one processor

	begin  func(*screen) *incoming      // counts a request as received, and gives its head a place
	end    func(s *screen, failed bool) // the request under way is over; its answer could not be written
	fault  func(any)                    // somebody has panicked
	leave  func(*conn)                  // a connection is on its way out: it does not count any more
	forget func(*conn)                  // it is closed

	retired     atomic.Int64  // connections accepted until then are to end when idle, Unix nanoseconds
	slowReaders atomic.Uint64 // answers cut because their clients did not take them
}

// A conn is a client's connection. But for Close it belongs to the goroutine that serves it, or, while a body is on its
// way to the origin, its reading half to the goroutine that sends the body.
type conn struct {
	net.Conn
	raw      net.Conn // what Conn is made of: the socket
	site     *site
	secure   bool           // TLS
	peer     netip.Addr     // or the client that a trusted proxy names in a PROXY header
	unnamed  bool           // the PROXY header names nobody
	source   counter.Source // whose connections it counts among; zero: nobody's
	closed   atomic.Bool
	accepted int64         // when, Unix nanoseconds
	woken    bool          // by retire; guarded by the registry, as is
	leaving  *list.Element // among those that are leaving; nil: it counts
	idle     atomic.Int64  // since when it waits for a request, Unix nanoseconds; 0: one is under way
	blocked  atomic.Int64  // until when its client is mitigated, as its last answer said, Unix nanoseconds; 0: it is not
	going    atomic.Uint32 // see evict

	br      *bufio.Reader // what it sends
	first   *bufio.Reader // the one that br was at first
	linger  atomic.Bool   // what the client still sends is read before it is closed
	heading bool          // a part of a head has been read
	turns   uint8         // at reading one, up to patience
	piped   uint8         // heads that came together with the request before them
	crowded bool          // it is one too many

	body    bool // a body is being read: the end of the connection is not the end of the body
	aborted atomic.Bool
	sending pace      // of that body
	bodyDue time.Time // for all of it; zero: as long as the pace allows

	paced   bool      // an answer is being streamed, which holds a connection to the origin
	taking  pace      // of that answer
	writeAt time.Time // an instant just now, for the next write; zero: ask the clock
	wrote   time.Time // when the last write was
	writeBy time.Time // the write deadline that is set
	readBy  time.Time // the read deadline that is set, as far as it matters
	readDue time.Time // the one for the next head
}

// startBody tells the connection that what it reads from now on is a body, which the client must send at a pace. It may be
// late by grace at first, and by most once it has sent enough.
func (c *conn) startBody(grace, most time.Duration) {
	c.body = true
	c.sending = pace{rate: c.site.limits.BodyRate, most: max(grace, most), left: grace}
}

// startAnswer tells the connection that what it writes from now on is an answer that is streamed, which the client must take
// at a pace, until endAnswer.
func (c *conn) startAnswer() {
	c.paced, c.taking = true, pace{rate: c.site.limits.AnswerRate, most: c.site.limits.IdleTimeout, left: c.site.limits.IdleTimeout}
}

// UnsafeConn is the connection that c reads and writes: TLS, or the socket.
func (c *conn) UnsafeConn() net.Conn { return c.Conn }

func (c *conn) endAnswer() { c.paced = false }

// fill waits until n bytes of a body are there.
func (c *conn) Fill(n int) error {
	_, err := c.br.Peek(n)
	return err
}

// Read reads a part of a head, within readDue, or, after startBody, of a body.
func (c *conn) Read(p []byte) (int, error) {
	if c.body {
		return c.readBody(p)
	}
	if d := c.readDue.Sub(c.readBy); d > c.site.slack || d < -c.site.slack {
		if err := c.Conn.SetReadDeadline(c.readDue); err != nil {
			return 0, err
		}
		c.readBy = c.readDue
		if c.old() {
			_ = c.Conn.SetReadDeadline(socket.LongAgo)
		}
	}
	if c.turns++; c.turns%patience != 0 {
		c.site.yield()
	}
	n, err := c.Conn.Read(p)
	if err != nil && n == 0 && c.old() {
		n, err = c.readOn(p, c.readDue, err)
	}
	c.heading = c.heading || n > 0
	return n, err
}

func (c *conn) readBody(p []byte) (int, error) {
	began := time.Now()
	due := began.Add(c.sending.left)
	if !c.bodyDue.IsZero() && c.bodyDue.Before(due) {
		due = c.bodyDue
	}
	c.readBy = time.Time{}
	if err := c.Conn.SetReadDeadline(due); err != nil {
		return 0, err
	}
	if c.aborted.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := c.Conn.Read(p)
	if err != nil && n == 0 && c.old() {
		n, err = c.readOn(p, due, err)
	}
	c.sending.waited(time.Since(began), n)
	return n, err
}

// gone reports whether the client has ended the connection, or its half of it, and left nothing to read.
func (c *conn) gone() bool {
	s, ok := c.raw.(*socket.Conn)
	if !ok {
		return false
	}
	n, err := s.Peek()
	return n == 0 && err != syscall.EAGAIN
}

// abortBody ends the reading of a body, from another goroutine. Nothing can be read from the connection afterwards.
func (c *conn) abortBody() {
	c.aborted.Store(true) // before the deadline: a Read that sets its own after this one looks again
	_ = c.Conn.SetReadDeadline(socket.LongAgo)
}

// Write gives every write its own deadline: one for a whole answer would cut long downloads, none would let a client that
// does not read keep the connection for ever. The deadline is moved at most once a second, because moving it costs, unless the
// client is behind its pace.
func (c *conn) Write(p []byte) (int, error) {
	now, wait := c.writeAt, c.site.limits.IdleTimeout
	if c.writeAt = (time.Time{}); now.IsZero() {
		now = time.Now()
	}
	if c.paced {
		wait = c.taking.left
	}
	if ahead := c.writeBy.Sub(now); ahead > wait || ahead < wait-min(time.Second, wait/4) {
		c.writeBy = now.Add(wait)
		if err := c.Conn.SetWriteDeadline(c.writeBy); err != nil {
			return 0, err
		}
	}
	c.wrote = now
	n, err := c.Conn.Write(p)
	if c.paced {
		c.taking.waited(time.Since(now), n)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.site.slowReaders.Add(1)
		c.reset()
	}
	return n, err
}

// reset ends the connection out of order: what the client has not taken is not kept for it, neither by the kernel nor by TLS, which
// would wait to say goodbye.
func (c *conn) reset() {
	if tcp, ok := socket.Innermost(c.raw).(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.raw.Close()
}

func (c *conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	defer c.site.forget(c)
	if c.linger.Load() {
		c.site.leave(c)
		c.lingeringClose()
	}
	return c.Conn.Close()
}

// lingeringClose says that no more will be sent, and reads a little of what the client still sends (RFC 9112, 9.6).
func (c *conn) lingeringClose() {
	half, ok := socket.Innermost(c.Conn).(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.raw.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c.raw, lingerBytes) // unread: a PROXY header, or TLS, would have a time of its own
}

// yield lets other goroutines run before a client's next request is read, which could not be there yet: when this one is back
// it mostly is, which saves a read in vain and a wait for more. Whoever waits for the origin does not give way but waits, so
// that all come to their turn and the poller to its. Only on one processor is giving way cheap: on several it takes a lock that all of
// them share and wakes the idle ones.
func (s *site) yield() {
	if s.alone {
		runtime.Gosched()
	}
}
