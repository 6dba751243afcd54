package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/edge/message"
	"sluice/edge/socket"
)

const (
	// idleOrigin is how long a connection to an origin is kept for the next request, unless the origin says less.
	idleOrigin = 30 * time.Second
	maxIdle    = 512 // kept connections to one server
	// restartTime is how long an origin that refuses connections is tried again, with pauses from firstPause, each twice as long
	// as the one before, up to lastPause.
	restartTime = time.Second
	firstPause  = 10 * time.Millisecond
	lastPause   = 100 * time.Millisecond
	// originHead bounds the head of an answer: it must fit the read buffer.
	originHead = 32 << 10
)

// An origin is one server that requests are passed on to, with the connections to it.
type origin struct {
	name      string // scheme://host:port, or unix:/path; the label of its metrics
	host      string // for requests that name none
	addr      string
	canonical []byte                    // host, as rules see it
	socket    string                    // the path of a Unix socket; "": it is reached by addr
	secure    atomic.Pointer[originTLS] // nil: plain

	lookup string // the name, if the server is not known by an address
	port   string
	addrs  atomic.Pointer[[]string] // host:port of each address of the name; nil: not looked up yet
	turn   atomic.Uint32

	failures  atomic.Int32 // in a row
	ejected   atomic.Int64 // until when, Unix nanoseconds; 0: it is not
	down      atomic.Bool  // its checks fail
	probe     atomic.Pointer[probe]
	probing   atomic.Bool
	reading   atomic.Bool // its files for TLS
	probeAt   atomic.Int64
	resolveAt atomic.Int64

	probesFailed int // in a row; belongs to the check under way

	attempts atomic.Uint64
	answers  [message.Codes]atomic.Uint64
	active   atomic.Int64

	mu   sync.Mutex
	idle []*link // the least recently used first
}

// A link is a connection to an origin.
type link struct {
	net.Conn
	origin *origin
	secure *originTLS    // what it was made under
	br     *bufio.Reader // nil: nobody waits for an answer
	reused bool
	asked  bool          // something of the request has been written
	begun  chan struct{} // closed then; nil: nobody waits for it
	early  bool          // something had come by then: the true answer may follow it
	until  time.Time     // when an idle link is too old
	socket *socket.Conn  // what Conn is made of; nil: it is no connection of the kernel's
	wire   *records      // between the socket and TLS; nil: there is none

	setAt   time.Time     // when begin set a deadline,
	setFor  time.Duration // how far ahead,
	touched atomic.Bool   // and whether another has been set since
}

// begin gives an exchange its deadline. Moving deadlines costs, so one that a request set just now will do for the next.
func (l *link) begin(now time.Time, timeout time.Duration) error {
	if since := now.Sub(l.setAt); timeout == l.setFor && since >= 0 && since < min(timeout/64, time.Second) && !l.touched.Load() {
		return nil
	}
	l.setAt, l.setFor = now, timeout
	l.touched.Store(false)
	return l.Conn.SetDeadline(now.Add(timeout))
}

func (l *link) SetDeadline(t time.Time) error {
	l.touched.Store(true)
	return l.Conn.SetDeadline(t)
}

func (l *link) SetReadDeadline(t time.Time) error {
	l.touched.Store(true)
	return l.Conn.SetReadDeadline(t)
}

func (l *link) SetWriteDeadline(t time.Time) error {
	l.touched.Store(true)
	return l.Conn.SetWriteDeadline(t)
}

func newOrigin(u *url.URL) *origin {
	if u.Scheme == "unix" {
		return &origin{name: "unix:" + u.Path, host: "localhost", canonical: []byte("localhost"), socket: u.Path}
	}
	o := &origin{name: u.Scheme + "://" + u.Host, host: u.Host, addr: u.Host}
	o.canonical, _ = message.AppendHost(nil, []byte(u.Host))
	if o.port = u.Port(); o.port == "" {
		o.port = "80"
		if u.Scheme == "https" {
			o.port = "443"
		}
		o.addr = net.JoinHostPort(u.Hostname(), o.port)
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil {
		o.lookup = u.Hostname()
	}
	return o
}

// acquire returns a connection: an idle one, the most recently used first, or a new one.
func (o *origin) acquire(now time.Time, fresh bool, within time.Duration) (*link, error) {
	for !fresh {
		o.mu.Lock()
		n := len(o.idle)
		if n == 0 {
			o.mu.Unlock()
			break
		}
		l := o.idle[n-1]
		o.idle[n-1] = nil
		o.idle = o.idle[:n-1]
		o.mu.Unlock()
		if now.Before(l.until) && l.secure == o.secure.Load() && l.quiet() {
			l.reused = true
			return l, nil
		}
		l.Close()
		l.rest()
	}
	return o.dial(within)
}

// dial makes a new connection, and shakes hands where it is TLS, within the given time.
func (o *origin) dial(within time.Duration) (*link, error) {
	deadline := time.Now().Add(within)
	nc, err := o.connect(deadline)
	if err != nil {
		return nil, err
	}
	nc = socket.New(nc)
	l := &link{Conn: nc, origin: o, secure: o.secure.Load()}
	l.socket, _ = nc.(*socket.Conn)
	if l.secure != nil {
		if l.socket != nil {
			l.wire = &records{Conn: l.socket}
			nc = l.wire
		}
		secure := tls.Client(nc, l.secure.config)
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		if err := secure.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, err
		}
		l.Conn = secure
	}
	return l, nil
}

// refuses reports whether a failure to connect means that nobody listens.
func (o *origin) refuses(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || o.socket != "" && errors.Is(err, syscall.ENOENT)
}

// quiet reports whether there is nothing to read on a connection on which nothing is asked. One that the origin has closed would
// fail a request; one with something to read has an answer on it that nobody asked for, which the next client must not get. What
// comes after this look cannot be told from an answer, so it is taken just before a request is written.
//
// TLS is made to read what is there, because it may hold some already. What it says to itself meanwhile, such as tickets for
// sessions, ends there. What it hands out, or a part of a record, is no quiet: l.br has it.
func (l *link) quiet() bool {
	switch {
	case l.socket == nil:
		return true
	case l.wire == nil:
		_, err := l.socket.Peek()
		return err == syscall.EAGAIN
	}
	l.listen()
	l.wire.now = true
	_, err := l.br.Peek(1)
	l.wire.now = false
	if err != os.ErrDeadlineExceeded || l.wire.got > 0 {
		return false
	}
	l.rest()
	return true
}

// Write sends a part of a request with a body. That may have been long in coming, so before the first part it looks again whether
// the connection is quiet.
func (l *link) Write(p []byte) (int, error) {
	if !l.asked {
		if l.early = !l.quiet(); l.early && l.reused {
			return 0, errUnasked
		}
		if l.asked = true; l.begun != nil {
			close(l.begun)
		}
	}
	return l.Conn.Write(p)
}

// errUnasked says that a kept connection cannot have the request: something has come on it that nobody asked for.
var errUnasked = errors.New("edge: the origin sent what nobody had asked for")

// ask sends a whole request and gets ready for the answer. An error is one of sending: the origin may have answered all the same,
// unless sent is 0.
func (l *link) ask(request []byte) (sent int, err error) {
	l.asked, l.early = true, !l.reused && !l.quiet()
	if s, ok := l.Conn.(*socket.Conn); ok {
		sent, err = s.Ask(request)
	} else {
		sent, err = l.Conn.Write(request)
	}
	l.listen()
	return sent, err
}

// originReaders hold what origins answer, each while an answer is there: what has just been used is in the processor's caches.
var originReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, originHead) }}

// listen gets ready to read an answer.
func (l *link) listen() {
	if l.br != nil {
		return // something has come already
	}
	l.br = originReaders.Get().(*bufio.Reader)
	l.br.Reset(l.Conn)
}

// rest ends reading.
func (l *link) rest() {
	if l.br != nil {
		l.br.Reset(nil)
		originReaders.Put(l.br)
		l.br = nil
	}
}

// release keeps a connection for the next request.
func (o *origin) release(l *link, now time.Time, keep time.Duration) {
	l.until = now.Add(keep)
	o.mu.Lock()
	if len(o.idle) < maxIdle {
		o.idle = append(o.idle, l)
		l = nil
	}
	o.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

// sweep closes connections that have been idle too long. With a zero time it closes all.
func (o *origin) sweep(now time.Time) {
	o.mu.Lock()
	var old []*link
	kept := o.idle[:0]
	for _, l := range o.idle {
		if now.IsZero() || now.After(l.until) {
			old = append(old, l)
		} else {
			kept = append(kept, l)
		}
	}
	clear(o.idle[len(kept):])
	o.idle = kept
	o.mu.Unlock()
	for _, l := range old {
		l.Close()
	}
}
