// Package h2origin speaks HTTP/2 to a server (RFC 9113) for callers who speak HTTP/1.1. What Open
// returns takes one request and gives its answer, as a connection of HTTP/1.1 would: written
// strictly, read strictly, with deadlines, and closed in the end. So requests are passed on in one
// way, and a malformed answer is refused whatever protocol the server speaks.
//
//	open     a connection with room for one more stream is taken, or made (h2origin.go)
//	send     the request is read, and goes on as a stream: head, body as it comes, trailers (request.go)
//	answer   the answer is written down: interim heads, head, body as it comes, trailers (answer.go)
//
// Both bodies go at once, and neither is held: what the reader of one end does not take, the writer
// of the other must not send, by HTTP/2's windows. A stream that is closed before its end is reset,
// and nothing of it is taken for the whole.
//
// Memory of a connection is bounded by streamWindow for each of its streams, which are at most
// mostStreams.
package h2origin

import (
	"context"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// mostStreams is how many requests share a connection. What goes beyond is sent on another.
	mostStreams = 100
	// streamWindow is how much of an answer a server may send ahead of its reader, in bytes.
	streamWindow = 128 << 10
	// Ahead is what an answer holds that nobody reads: its window, and what it is read and written
	// with. A request holds less before (110 KiB), but answers may come together.
	Ahead = streamWindow + 48<<10
	// stuckTime is how long a connection lasts on which nothing can be written. A server reads its
	// connections at all times.
	stuckTime = 15 * time.Second
	// deafTime is how long a request may get no answer, and neither may any other on its
	// connection, before the connection is taken for dead.
	deafTime = 2 * time.Second
)

// A Pool is the connections to a server. It is safe for concurrent use.
type Pool struct {
	// Dial makes a connection, over which HTTP/2 may be spoken at once. Secure: it is TLS.
	Dial   func(deadline time.Time) (net.Conn, error)
	Secure bool
	// MaxHead bounds the head of an answer as HTTP/2 counts it, in bytes, on connections made from
	// now on: written as HTTP/1.1 it is no longer.
	MaxHead atomic.Int64
	// Fault, if not nil, is called after a panic here. The request that it was about ends without
	// an answer.
	Fault func(any)

	mu      sync.Mutex
	conns   []*conn // those that take requests, the first made first
	dialing *dialing
	gone    bool // nothing is kept
}

// A dialing is a connection that is being made. All requests that have no other wait for it, so
// that a burst does not make one each.
type dialing struct {
	done chan struct{}
	err  error
}

// A conn is a connection.
type conn struct {
	pool     *Pool
	h2       *http.ClientConn
	lastRead atomic.Int64 // when something has come, Unix nanoseconds

	// What follows is guarded by pool.mu.
	streams int
	used    bool
	over    bool      // it takes no further request, and is closed with its last
	rested  time.Time // since when there is no stream
}

// Open returns what takes a request, and reports whether its connection has been used before. fresh
// requires one that has not.
func (p *Pool) Open(fresh bool, within time.Duration) (nc net.Conn, reused bool, err error) {
	c, reused, err := p.take(fresh, time.Now().Add(within))
	if err != nil {
		return nil, false, err
	}
	return start(c), reused, nil
}

// take takes a slot for a stream.
func (p *Pool) take(fresh bool, deadline time.Time) (c *conn, reused bool, err error) {
	for {
		p.mu.Lock()
		if !fresh {
			if c, reused := p.pick(); c != nil {
				p.mu.Unlock()
				return c, reused, nil
			}
		}
		d := p.dialing
		if fresh || d == nil {
			break
		}
		p.mu.Unlock()
		timer := time.NewTimer(time.Until(deadline))
		select {
		case <-d.done:
			err = d.err
		case <-timer.C:
			err = os.ErrDeadlineExceeded
		}
		if timer.Stop(); err != nil {
			return nil, false, err
		}
	}
	d := &dialing{done: make(chan struct{})}
	if p.dialing == nil {
		p.dialing = d
	}
	p.mu.Unlock()
	c, err = p.dial(deadline)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dialing == d {
		p.dialing = nil
	}
	if err == nil {
		if err = c.h2.Reserve(); err == nil {
			c.streams, c.used = 1, true
			p.conns = append(p.conns, c)
		} else {
			go c.h2.Close() // nothing else refers to it
		}
	}
	d.err = err
	close(d.done)
	return c, false, err
}

// pick takes a slot on an existing connection, and forgets those that have ended. It needs p.mu.
func (p *Pool) pick() (found *conn, reused bool) {
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool { return c.over || c.h2.Err() != nil })
	for _, c := range p.conns {
		if c.streams < mostStreams && c.h2.Reserve() == nil {
			reused, c.used = c.used, true
			c.streams++
			return c, reused
		}
	}
	return nil, false
}

func (p *Pool) dial(deadline time.Time) (*conn, error) {
	nc, err := p.Dial(deadline)
	if err != nil {
		return nil, err
	}
	c := &conn{pool: p}
	t := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return &activityConn{nc, c}, nil
		},
		DisableCompression:     true,
		MaxResponseHeaderBytes: p.MaxHead.Load(),
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow,
			WriteByteTimeout: stuckTime},
		Protocols: new(http.Protocols),
	}
	t.Protocols.SetUnencryptedHTTP2(true) // TLS, where it is spoken, is in nc
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if c.h2, err = t.NewClientConn(ctx, "http", "origin:80"); err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// lastRead is a connection that notes when something comes.
type activityConn struct {
	net.Conn
	on *conn
}

func (h *activityConn) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 {
		h.on.lastRead.Store(time.Now().UnixNano())
	}
	return n, err
}

// leave gives back a stream's slot. A request that got no answer, on a connection where nothing
// came since, suggests that the server is gone: the next one should not wait there, too.
func (c *conn) leave(began time.Time, answered bool) {
	now, p := time.Now(), c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	c.streams--
	c.rested = now
	c.over = c.over || p.gone || !answered && now.Sub(began) >= deafTime &&
		c.lastRead.Load() < began.UnixNano()
	c.closeOver()
}

// closeOver closes a connection that takes nothing more and has nothing under way. It needs
// pool.mu.
func (c *conn) closeOver() {
	if c.over && c.streams == 0 {
		go c.h2.Close()
	}
}

// Sweep closes connections that have had no stream since then.
func (p *Pool) Sweep(then time.Time) {
	p.end(func(c *conn) bool { return c.streams == 0 && c.rested.Before(then) })
}

// Renew has no further request sent on the connections there are.
func (p *Pool) Renew() { p.end(func(*conn) bool { return true }) }

// Retire is Renew, and has no connection kept from now on.
func (p *Pool) Retire() {
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	p.Renew()
}

// end has connections take no further request.
func (p *Pool) end(which func(*conn) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool {
		if !which(c) {
			return false
		}
		c.over = true
		c.closeOver()
		return true
	})
}

// recovered reports whether a goroutine has panicked, and passes the panic on. No other request
// must suffer.
func (p *Pool) recovered(fault any) bool {
	if fault != nil && p.Fault != nil {
		p.Fault(fault)
	}
	return fault != nil
}
