package front

import (
	"bufio"
	"container/list"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/edge/socket"
)

const (
	// LingerTime and lingerBytes bound what is read of a refused body, so that the refusal arrives:
	// closing a connection with unread bytes resets it, and a reset takes the answer with it.
	LingerTime  = time.Second
	lingerBytes = 256 << 10
	// pipelineYield is how many requests of those that came at once are answered before others have
	// their turn.
	pipelineYield = 16
)

// A Server is what all connections of a server have in common.
type Server struct {
	Limits Limits
	Slack  time.Duration // by how much a read deadline may be off
	// HalfClosed is how long a client counts against no cap that has said it will send no more,
	// while its answer has not begun. That may be all it means (RFC 9112, 9.6: nc -N, some old
	// clients), but nearly always it has gone: its user has pressed stop or reload, and comes by
	// another connection.
	HalfClosed time.Duration

	Begin func(*HeadFilter) *Exchange // counts a request as received, and registers it
	// Judge takes a request of a client that is blocked, and reports whether it is answered. Else
	// fasthttp is shown it, and Handle goes on with it.
	Judge func(*Exchange) (answered bool)
	// The request is there: it is to be answered. It recovers from its own faults
	Handle func(*Exchange)
	// The request under way is over; its answer could not be written
	End   func(e *Exchange, failed bool)
	Fault func(any) // there was a panic
	// Switch serves a client that begins to speak HTTP/2 without TLS, if it may, to its end; else
	// it reports false.
	Switch func(*Client) bool
	Leave  func(*Client)      // a connection is on its way out: it does not count any more
	Return func(*Client) bool // it is not, and counts again; false: its source has no room for it
	Forget func(*Client)      // it is closed

	// Connections accepted until then are to end when idle, Unix nanoseconds
	Retired     atomic.Int64
	SlowReaders atomic.Uint64 // answers cut because their clients did not take them
}

// A Client is a client's connection. But for Close it belongs to the goroutine that serves it, or,
// while a body is on its way to the origin, its reading half to the goroutine that sends the body.
type Client struct {
	net.Conn
	Raw    net.Conn // what Conn is made of: the socket
	Server *Server
	Secure bool // TLS
	// The port of the https address that its requests are sent to; 0: they are served
	Redirect uint16
	Peer     netip.Addr     // or the client that a trusted proxy names in a PROXY header
	Unnamed  bool           // the PROXY header names no client
	Hello    []any          // what modules have found out of its handshake
	Source   counter.Source // the source whose connections it counts among; zero: none
	Closed   atomic.Bool
	Accepted int64         // when, Unix nanoseconds
	Woken    bool          // by retire; guarded by the registry, as is
	Leaving  *list.Element // among those that are leaving; nil: it counts
	// Since when it waits for a request, Unix nanoseconds; 0: one is under way
	Idle atomic.Int64
	// Until when its client is mitigated, as its last answer said, Unix nanoseconds; 0: it is not
	Blocked atomic.Int64
	Going   atomic.Uint32 // see evict

	Reader  *bufio.Reader // what it sends
	first   *bufio.Reader // the one that br was at first
	Linger  atomic.Bool   // what the client still sends is read before it is closed
	heading bool          // a part of a head has been read
	clear   bool          // it speaks plain HTTP where TLS is spoken
	piped   uint8         // heads that came together with the request before them
	OverCap bool          // it is one too many

	body    bool // a body is being read: the end of the connection is not the end of the body
	aborted atomic.Bool
	sending Pace      // of that body
	bodyDue time.Time // for all of it; zero: as long as the pace allows

	Paced   bool      // an answer is being streamed, which holds a connection to the origin
	taking  Pace      // of that answer
	WriteAt time.Time // an instant just now, for the next write; zero: read the clock
	wrote   time.Time // when the last write was: see Wrote
	writeBy time.Time // the write deadline that is set
	ReadBy  time.Time // the read deadline that is set, as far as it matters
	readDue time.Time // the one for the next head
}

// StartBody begins to read a body, which the client must send at a pace. It may be late by grace at
// first, and by most once it has sent enough.
func (c *Client) StartBody(grace, most time.Duration) {
	c.body = true
	c.sending = Pace{Rate: c.Server.Limits.BodyRate, Most: max(grace, most), Left: grace}
}

// EndBody notes that the body has ended.
func (c *Client) EndBody() { c.body, c.bodyDue = false, time.Time{} }

// StartAnswer begins to write a streamed answer, which the client must take at a pace, until
// endAnswer.
func (c *Client) StartAnswer() {
	c.Paced, c.taking = true, Pace{Rate: c.Server.Limits.AnswerRate, Most: c.Server.Limits.IdleTimeout,
		Left: c.Server.Limits.IdleTimeout}
}

// UnsafeConn is the connection that c reads and writes: TLS, or the socket.
func (c *Client) UnsafeConn() net.Conn { return c.Conn }

func (c *Client) endAnswer() { c.Paced = false }

// Fill waits until n bytes of a body are there.
func (c *Client) Fill(n int) error {
	_, err := c.Reader.Peek(n)
	return err
}

// Read reads a part of a head, within readDue, or, after startBody, of a body.
func (c *Client) Read(p []byte) (int, error) {
	if c.body {
		return c.readBody(p)
	}
	if d := c.readDue.Sub(c.ReadBy); d > c.Server.Slack || d < -c.Server.Slack {
		if err := c.Conn.SetReadDeadline(c.readDue); err != nil {
			return 0, err
		}
		c.ReadBy = c.readDue
		if c.Old() {
			_ = c.Conn.SetReadDeadline(socket.LongAgo)
		}
	}
	n, err := c.Conn.Read(p)
	if err != nil && n == 0 && c.Old() {
		n, err = c.readOn(p, c.readDue, err)
	}
	c.heading = c.heading || n > 0
	return n, err
}

func (c *Client) readBody(p []byte) (int, error) {
	began := time.Now()
	due := began.Add(c.sending.Left)
	if !c.bodyDue.IsZero() && c.bodyDue.Before(due) {
		due = c.bodyDue
	}
	c.ReadBy = time.Time{}
	if err := c.Conn.SetReadDeadline(due); err != nil {
		return 0, err
	}
	if c.aborted.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := c.Conn.Read(p)
	if err != nil && n == 0 && c.Old() {
		n, err = c.readOn(p, due, err)
	}
	c.sending.Waited(time.Since(began), n)
	return n, err
}

// Gone reports whether the client has gone while its request waits here: it has reset the
// connection. One that has closed it may have closed one direction only, and waits for its answer.
func (c *Client) Gone() bool {
	s, ok := c.Raw.(*socket.Conn)
	return ok && s.Hangup() == socket.Reset
}

// AbortBody ends the reading of a body, from another goroutine. Nothing can be read from the
// connection afterwards.
func (c *Client) AbortBody() {
	// Before the deadline: a Read that sets its own after this one looks again
	c.aborted.Store(true)
	_ = c.Conn.SetReadDeadline(socket.LongAgo)
}

// Wrote is when the client was last written to, to the instant that the write was given (WriteAt).
func (c *Client) Wrote() time.Time { return c.wrote }

// Write gives every write its own deadline: one for a whole answer would cut long downloads, none
// would let a client that does not read keep the connection for ever. The deadline is moved at most
// once a second, because moving it costs, unless the client is behind its pace.
func (c *Client) Write(p []byte) (int, error) {
	now, wait := c.WriteAt, c.Server.Limits.IdleTimeout
	if c.WriteAt = (time.Time{}); now.IsZero() {
		now = time.Now()
	}
	if c.Paced {
		wait = c.taking.Left
	}
	if ahead := c.writeBy.Sub(now); ahead > wait || ahead < wait-min(time.Second, wait/4) {
		c.writeBy = now.Add(wait)
		if err := c.Conn.SetWriteDeadline(c.writeBy); err != nil {
			return 0, err
		}
	}
	c.wrote = now
	n, err := c.Conn.Write(p)
	if c.Paced {
		c.taking.Waited(time.Since(now), n)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.Server.SlowReaders.Add(1)
		c.Reset()
	}
	return n, err
}

// Reset ends the connection out of order: what the client has not taken is not kept for it, neither
// by the kernel nor by TLS, which would wait to say goodbye.
func (c *Client) Reset() {
	if tcp, ok := socket.Innermost(c.Raw).(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Raw.Close()
}

func (c *Client) Close() error {
	if !c.Closed.CompareAndSwap(false, true) {
		return nil
	}
	defer c.Server.Forget(c)
	if c.Linger.Load() {
		c.Server.Leave(c)
		c.LingeringClose()
	}
	return c.Conn.Close()
}

// LingeringClose closes the sending direction, and reads a little of what the client still sends
// (RFC 9112, 9.6).
func (c *Client) LingeringClose() {
	half, ok := socket.Innermost(c.Conn).(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.Raw.SetReadDeadline(time.Now().Add(LingerTime)) != nil {
		return
	}
	// Unread: a PROXY header, or TLS, would have a deadline of its own
	_, _ = io.CopyN(io.Discard, c.Raw, lingerBytes)
}

// From is the address that the connection comes from, whatever a PROXY header says.
func (c *Client) From() netip.Addr { return PeerOf(c.Raw.RemoteAddr()) }

// PeerOf is the other end of a connection.
func PeerOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	case *net.UnixAddr:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}) // the peer is this machine
	}
	return netip.IPv6Unspecified() // an in-memory connection
}
