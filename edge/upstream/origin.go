// Package upstream is the servers that requests are passed on to: groups of them by host, how
// requests are shared among them, which are healthy, the connections to them and their TLS. A
// connection is used again only if nothing unsolicited is on it.
package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/counter/buckets"
	"sluice/edge/message"
	"sluice/edge/socket"
	"sluice/edge/upstream/h2origin"
)

const (
	// KeepIdle is how long a connection to an origin is kept for the next request, unless the
	// origin asks for less.
	KeepIdle = 30 * time.Second
	maxIdle  = 512 // kept connections to one server
	// RestartTime is how long an origin that refuses connections is tried again, with pauses from
	// firstPause, each twice as long as the one before, up to lastPause.
	RestartTime = time.Second
	FirstPause  = 10 * time.Millisecond
	LastPause   = 100 * time.Millisecond
	// MaxHead is AnswerHead of a Config that says nothing.
	MaxHead = 32 << 10
	// restTime is how long a connection rests that may have more to come than it should
	// (Link.RestFrom). A server that wrongly sends the body of an answer to HEAD does so right
	// after the head; and at 10,000 such answers a second those that rest still leave room for
	// others among maxIdle.
	restTime = 50 * time.Millisecond
)

// An Origin is one server that requests are passed on to, with the connections to it.
type Origin struct {
	Name      string // scheme://host:port, or unix:/path; the label of its metrics
	Host      string // for requests that name none
	addr      string
	Canonical []byte                    // host, as rules see it
	socket    string                    // the path of a Unix socket; "": it is reached by addr
	secure    atomic.Pointer[originTLS] // nil: plain
	h2        *h2origin.Pool            // connections of HTTP/2; nil: it speaks HTTP/1.1
	readers   atomic.Pointer[readers]   // of its answers

	lookup string // the name, if the server is not known by an address
	port   string
	addrs  atomic.Pointer[[]string] // host:port of each address of the name; nil: not looked up yet
	turn   atomic.Uint32

	Failures  atomic.Int32 // in a row
	ejected   atomic.Int64 // until when, Unix nanoseconds; 0: it is not
	Down      atomic.Bool  // its checks fail
	surplus   atomic.Bool  // it has sent a body that an answer must not have (Link.RestFrom)
	probe     atomic.Pointer[probe]
	probing   atomic.Bool
	reading   atomic.Bool // its files for TLS
	probeAt   atomic.Int64
	ResolveAt atomic.Int64

	probesFailed int // in a row; belongs to the check under way

	Attempts atomic.Uint64
	Seconds  *buckets.Histogram // until the head of an answer
	Answers  [message.Codes]atomic.Uint64
	Active   atomic.Int64

	mu   sync.Mutex
	Idle []*Link // the least recently used first
	gone bool    // no configuration has it any more: nothing is kept
}

// A Link is a connection to an origin.
type Link struct {
	net.Conn
	Origin *Origin
	secure *originTLS    // what it was made under
	Reader *bufio.Reader // nil: no answer is awaited
	Reused bool
	// Something had come on a new connection before the request: the true answer may follow it
	Early bool
	from  time.Time // when an idle link has rested; zero: it need not
	Until time.Time // when it is too old
	// unsolicited says that something could be read before a request was sent.
	unsolicited bool
	socket      *socket.Conn // what Conn is made of; nil: it is no connection of the kernel's
	wire        *records     // between the socket and TLS; nil: there is none
}

func NewOrigin(u *url.URL) *Origin {
	if u.Scheme == "unix" {
		o := &Origin{Seconds: buckets.Latency(), Name: "unix:" + u.Path, Host: "localhost",
			Canonical: []byte("localhost"), socket: u.Path}
		o.readers.Store(usualReaders)
		return o
	}
	o := &Origin{Seconds: buckets.Latency(), Name: u.Scheme + "://" + u.Host, Host: u.Host,
		addr: u.Host}
	o.readers.Store(usualReaders)
	o.Canonical, _ = message.AppendHost(nil, []byte(u.Host))
	if o.port = u.Port(); o.port == "" {
		o.port = "80"
		if IsSecure(u) {
			o.port = "443"
		}
		o.addr = net.JoinHostPort(u.Hostname(), o.port)
	}
	if IsHTTP2(u) {
		o.h2 = &h2origin.Pool{Dial: o.dialHTTP2, Secure: IsSecure(u)}
		o.h2.MaxHead.Store(MaxHead)
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil {
		o.lookup = u.Hostname()
	}
	return o
}

// Acquire returns a connection: an idle one that has rested, the most recently used first, or a new
// one.
func (o *Origin) Acquire(now time.Time, fresh bool, within time.Duration) (*Link, error) {
	if o.h2 != nil {
		return o.open(fresh, within)
	}
	for !fresh {
		o.mu.Lock()
		i := len(o.Idle) - 1
		for i >= 0 && now.Before(o.Idle[i].from) {
			i--
		}
		if i < 0 {
			o.mu.Unlock()
			break
		}
		l := o.Idle[i]
		o.Idle = slices.Delete(o.Idle, i, i+1)
		o.mu.Unlock()
		if now.Before(l.Until) && l.secure == o.secure.Load() && l.quiet() {
			l.Reused, l.from = true, time.Time{}
			return l, nil
		}
		if l.unsolicited && !l.from.IsZero() {
			o.surplus.Store(true)
		}
		l.Close()
		l.Rest()
	}
	return o.dial(within)
}

// open begins a stream: a link that is good for one request.
func (o *Origin) open(fresh bool, within time.Duration) (*Link, error) {
	nc, reused, err := o.h2.Open(fresh, within)
	if err != nil {
		return nil, err
	}
	return &Link{Conn: nc, Origin: o, Reused: reused}, nil
}

var errNoHTTP2 = errors.New("edge: the server does not speak HTTP/2 over TLS (ALPN h2): write its URL with https://")

// dialHTTP2 makes a connection on which HTTP/2 may be spoken.
func (o *Origin) dialHTTP2(deadline time.Time) (net.Conn, error) {
	nc, err := o.connect(deadline)
	secure := o.secure.Load()
	if err != nil || secure == nil {
		return nc, err
	}
	c := tls.Client(nc, secure.config)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if err = c.HandshakeContext(ctx); err == nil && c.ConnectionState().NegotiatedProtocol != "h2" {
		err = errNoHTTP2
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// renew has no connection used any more that was made under other files for TLS. Those of HTTP/1.1
// are looked at when they are taken.
func (o *Origin) renew() {
	if o.h2 != nil {
		o.h2.Renew()
	}
}

// dial makes a new connection, and shakes hands where it is TLS, within the given time.
func (o *Origin) dial(within time.Duration) (*Link, error) {
	if o.h2 != nil {
		return o.open(false, within)
	}
	deadline := time.Now().Add(within)
	nc, err := o.connect(deadline)
	if err != nil {
		return nil, err
	}
	nc = socket.New(nc)
	l := &Link{Conn: nc, Origin: o, secure: o.secure.Load()}
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

// Refuses reports whether a failure to connect means that nothing listens.
func (o *Origin) Refuses(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || o.socket != "" && errors.Is(err, syscall.ENOENT)
}

// quiet reports whether there is nothing to read on an idle connection. One that the origin has
// closed would fail a request; one with something to read has an unsolicited answer on it, which
// the next client must not get. What comes after this look cannot be distinguished from an answer,
// so it is taken just before a request is written. Without it, where a connection has rested for
// milliseconds only, a request would cost 2 to 9 % less. But an origin that answers twice does so
// within milliseconds, and nothing else keeps its second answer from another client.
//
// TLS is made to read what is there, because it may hold some already. What it says to itself
// meanwhile, such as tickets for sessions, ends there. What it hands out, or a part of a record, is
// no quiet: l.br has it.
func (l *Link) quiet() bool {
	switch {
	case l.socket == nil:
		return true
	case l.wire == nil:
		n, err := l.socket.Peek()
		l.unsolicited = n > 0
		return err == syscall.EAGAIN
	}
	l.Listen()
	l.wire.now = true
	_, err := l.Reader.Peek(1)
	l.wire.now = false
	l.unsolicited = err == nil
	if err != os.ErrDeadlineExceeded || l.wire.got > 0 {
		return false
	}
	l.Rest()
	return true
}

// Kept reports whether a connection that ends without an answer may have ended because it was
// unused for too long. Of a stream that is so only if the whole connection has.
func (l *Link) Kept() bool {
	stream, ok := l.Conn.(*h2origin.Stream)
	return l.Reused && (!ok || stream.Ended())
}

// Look is called just before a request is written: an answer that is there already belongs to no
// request. A kept connection has been looked at when it was taken.
func (l *Link) Look() { l.Early = !l.Reused && !l.quiet() }

// Ahead is how much the edge may hold of an answer before it is read, besides what Link.Reader
// holds, in bytes.
func (o *Origin) Ahead() int {
	if o.h2 != nil {
		return h2origin.Ahead
	}
	return 0
}

// Ask sends a whole request and prepares for the answer. An error is one of sending: the origin may
// have answered all the same, unless sent is 0.
func (l *Link) Ask(request []byte) (sent int, err error) {
	l.Look()
	if s, ok := l.Conn.(*socket.Conn); ok {
		sent, err = s.Ask(request)
	} else {
		sent, err = l.Conn.Write(request)
	}
	l.Listen()
	return sent, err
}

// readers hold what origins answer, each while an answer is there: what has just been used is in
// the processor's caches. The head of an answer must fit one.
type readers struct {
	size int
	pool sync.Pool
}

func newReaders(size int) *readers {
	return &readers{size, sync.Pool{New: func() any { return bufio.NewReaderSize(nil, size) }}}
}

// usualReaders are those of all origins for which nothing else is configured.
var usualReaders = newReaders(MaxHead)

// boundHead bounds the heads of answers from now on, in bytes.
func (o *Origin) boundHead(size int) {
	switch {
	case size == o.readers.Load().size:
		return
	case size == MaxHead:
		o.readers.Store(usualReaders)
	default:
		o.readers.Store(newReaders(size))
	}
	if o.h2 != nil {
		o.h2.MaxHead.Store(int64(size))
		o.h2.Renew()
	}
}

// Listen gets ready to read an answer.
func (l *Link) Listen() {
	if l.Reader != nil {
		return // something has come already
	}
	l.Reader = l.Origin.readers.Load().pool.Get().(*bufio.Reader)
	l.Reader.Reset(l.Conn)
}

// Rest ends reading.
func (l *Link) Rest() {
	if l.Reader != nil {
		l.Reader.Reset(nil)
		// Else the bound has changed meanwhile
		if r := l.Origin.readers.Load(); l.Reader.Size() == r.size {
			r.pool.Put(l.Reader)
		}
		l.Reader = nil
	}
}

// RestFrom has a connection rest before the next request: its answer announced a body that it must
// not have (HEAD, 204, 304), and some origins send that all the same. The next client must not get
// it for an answer. What has come when it has rested ends the connection (quiet), and of an origin
// that has once done so no such connection is used again: the next body may come later. RestFrom
// reports whether it may rest.
func (l *Link) RestFrom(now time.Time) bool {
	if l.Reader != nil && l.Reader.Buffered() > 0 {
		l.Origin.surplus.Store(true)
	}
	l.from = now.Add(restTime)
	return !l.Origin.surplus.Load()
}

// Release keeps a connection for the next request.
func (o *Origin) Release(l *Link, now time.Time, keep time.Duration) {
	l.Until = now.Add(keep)
	o.mu.Lock()
	if len(o.Idle) < maxIdle && !o.gone {
		o.Idle = append(o.Idle, l)
		l = nil
	}
	o.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

// Retire closes what is idle, and has nothing kept any more.
func (o *Origin) Retire() {
	o.mu.Lock()
	o.gone = true
	o.mu.Unlock()
	if o.h2 != nil {
		o.h2.Retire()
	}
	o.Sweep(time.Time{})
}

// Sweep closes connections that have been idle too long. With a zero time it closes all.
func (o *Origin) Sweep(now time.Time) {
	if o.h2 != nil {
		if now.IsZero() {
			now = time.Now().Add(time.Hour)
		}
		o.h2.Sweep(now.Add(-KeepIdle))
	}
	o.mu.Lock()
	var old []*Link
	o.Idle = slices.DeleteFunc(o.Idle, func(l *Link) bool {
		ends := now.IsZero() || now.After(l.Until)
		if ends {
			old = append(old, l)
		}
		return ends
	})
	o.mu.Unlock()
	for _, l := range old {
		l.Close()
	}
}

// UnsafeConn is the connection that l is made of.
func (l *Link) UnsafeConn() net.Conn { return l.Conn }
