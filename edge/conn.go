package edge

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/counter"
)

const (
	// acceptPause is the first pause after a failed accept; it doubles up to acceptPauses. Without descriptors there is nothing
	// to do but to wait for somebody to close one.
	acceptPause  = 5 * time.Millisecond
	acceptPauses = 100 * time.Millisecond
	// A chunked body may cost at most bodyCost bytes on the wire for each of its own, and bodySlack bytes more: what goes
	// beyond is chunk extensions and trailers that have no end.
	bodyCost  = 16
	bodySlack = 128 << 10
	// stopTime is how long a listener that stops still accepts what is waiting.
	stopTime = 50 * time.Millisecond
	// lingerTime and lingerBytes bound what is read of a refused body, so that the refusal arrives: closing a connection with
	// unread bytes resets it, and a reset takes the answer with it.
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// A registry knows which connections are open, so that draining can end them, and caps those of a source.
type registry struct {
	stats     *stats
	most      int // connections, tunnels among them; 0: any number
	perSource int
	source    func(netip.Addr) (counter.Source, bool) // false: a trusted proxy, which has no cap
	memory    *memoryCap                              // nil: no limit
	shed      func(netip.Addr) bool                   // is a peer to be turned away?
	proxied   func(netip.Addr) bool                   // does a peer begin with a PROXY header?
	header    time.Duration                           // how long the head of a request may take
	write     time.Duration                           // how long a write may take without progress
	bodies    int                                     // bytes a second that a client must send of a body; 0: any number
	answers   int                                     // and take of an answer
	slack     time.Duration                           // by how much a read deadline may be off
	alone     bool                                    // there is one processor

	left    atomic.Int64 // when Leave was called, Unix nanoseconds; this and what follows: see drain.go
	notice  atomic.Int64 // that idle connections have, nanoseconds
	retired atomic.Int64 // those accepted until then are to end when idle, Unix nanoseconds

	mu     sync.Mutex
	conns  map[*conn]struct{}
	counts map[counter.Source]int
}

// A listener accepts connections for the server on one socket: it goes on after temporary failures.
type listener struct {
	net.Listener
	*registry
	tls *tls.Config // nil: plain

	ended    chan struct{} // closed when the last connection has been accepted
	stopping atomic.Bool
}

// Accept returns io.EOF once the listener is closed, which ends the server's loop without an error.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.accept()
	if err != nil {
		close(l.ended) // the server does not call again after an error
		return nil, err
	}
	return c, nil
}

func (l *listener) accept() (*conn, error) {
	pause := acceptPause
	for {
		nc, err := l.Listener.Accept()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF):
			return nil, io.EOF
		case l.stopping.Load():
			l.Listener.Close()
			return nil, io.EOF
		case errors.Is(err, syscall.ECONNABORTED):
			continue
		default:
			l.stats.acceptFails.Add(1)
			time.Sleep(pause)
			pause = min(2*pause, acceptPauses)
			continue
		}
		if c := l.admit(nc); c != nil {
			return c, nil
		}
		nc.Close()
	}
}

// admit counts a connection for its source; nil means that the source has too many, or the process too little memory.
func (l *listener) admit(nc net.Conn) *conn {
	if l.memory != nil && l.memory.exceeded(time.Now()) {
		l.stats.starved.Add(1)
		return nil
	}
	c := &conn{Conn: nc, raw: nc, listener: l.registry, peer: peerAddr(nc.RemoteAddr()), accepted: time.Now().UnixNano()}
	if l.proxied != nil && l.proxied(c.peer) {
		c.Conn = &proxied{Conn: nc, conn: c, then: l.header}
	}
	if l.tls != nil {
		c.secure, c.Conn = true, tls.Server(c.Conn, l.tls) // the first Read shakes hands
	}
	if l.shed != nil && l.shed(c.peer) || !l.recount(c) {
		return nil
	}
	return c
}

// recount counts a connection for the source that its peer is, in place of the one it was counted for. It reports whether
// that has room for it.
func (l *registry) recount(c *conn) bool {
	source, capped := l.source(c.peer)
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.source.IsValid() {
		l.discount(c)
	}
	if _, known := l.conns[c]; !known && l.most > 0 && len(l.conns) >= l.most {
		l.stats.turnedAway.Add(1)
		return false
	}
	if capped {
		if l.counts[source] >= l.perSource {
			l.stats.turnedAway.Add(1)
			return false
		}
		l.counts[source]++
		c.source = source
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *registry) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	if c.source.IsValid() {
		l.discount(c)
	}
}

// discount needs the lock.
func (l *registry) discount(c *conn) {
	if l.counts[c.source]--; l.counts[c.source] <= 0 {
		delete(l.counts, c.source)
	}
	c.source = counter.Source{}
}

// giveWay lets other goroutines run before a read that would find nothing yet: when this one is back, what it reads has come,
// which saves a read in vain and a wait for more. Only on one processor is that cheap: on several, giving way takes a lock
// that all of them share and wakes the idle ones.
func (l *registry) giveWay() {
	if l.alone {
		runtime.Gosched()
	}
}

func (l *registry) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// closeAll cuts every connection that is still open.
func (l *registry) closeAll() {
	l.mu.Lock()
	open := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		c.raw.Close() // not conn.Close: no lingering now
	}
}

func peerAddr(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	case *net.UnixAddr:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}) // whoever it is, it is this machine
	}
	return netip.IPv6Unspecified() // an in-memory connection
}

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

// Close is called by the server as well; the second time is no failure.
func (l *listener) Close() error {
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// stop takes the connections that are waiting to be accepted, and then no more: closing at once would reset them.
func (l *listener) stop() {
	if l.stopping.Swap(true) {
		return
	}
	if d, ok := l.Listener.(interface{ SetDeadline(time.Time) error }); ok && d.SetDeadline(time.Now().Add(stopTime)) == nil {
		return // Accept closes it when the time is up
	}
	l.Listener.Close()
}
