package memcached

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dialTimeout = 250 * time.Millisecond
	// Between two attempts at one node, at the least, and half as much again at the most
	dialPause = 100 * time.Millisecond
)

// errBackoff is why a command is Unsent while its node is not being dialled.
var errBackoff = errors.New("memcached: node failed a moment ago, and it is too soon to connect again")

// dialError says that no connection was made, so nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return "memcached: connect: " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// dialer connects to one node, for its pipeline and for gomemcache together: a node that comes back
// must not be met by a storm, so attempts after the first connections are at least dialPause apart.
// They do not become rarer: a node that was restarted is met before it counts as lost. It is safe
// for concurrent use.
type dialer struct {
	address string
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	dials   atomic.Uint64
	// losses counts failed exchanges and lost connections. A pooled connection from before the last
	// one is likely dead too, and using it would cost an operation.
	losses  atomic.Uint64
	trouble atomic.Bool // something failed since the last good answer

	mu   sync.Mutex
	most int // connections that there may be
	// Of them that may be opened without spacing: each one's first, and first after the node was
	// ill
	free  int
	last  time.Time     // the last attempt
	pause time.Duration // to keep after last, jittered
	fails bool          // the last attempt failed
}

func newDialer(address string, connections int, dial func(ctx context.Context, network,
	address string) (net.Conn, error)) *dialer {
	return &dialer{address: address, dial: dial, most: connections, free: connections,
		pause: dialPause}
}

// connect opens a connection. While the node was well until a moment ago it waits for its turn;
// once attempts have failed it returns errBackoff instead. Every error is a *dialError.
func (d *dialer) connect(ctx context.Context) (net.Conn, error) {
	for {
		wait := d.turn()
		if wait == 0 {
			break
		}
		if wait < 0 {
			return nil, &dialError{errBackoff}
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, &dialError{ctx.Err()}
		}
	}
	d.dials.Add(1)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := d.dial(ctx, "tcp", d.address)
	if err != nil {
		d.failed()
		return nil, &dialError{err}
	}
	return c, nil
}

// turn takes the right to dial now and returns 0, or how long to wait for it, or -1: not worth
// waiting.
func (d *dialer) turn() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.free > 0 && !d.trouble.Load() {
		d.free--
		d.last = now
		return 0
	}
	if wait := d.last.Add(d.pause).Sub(now); wait > 0 && !d.last.IsZero() {
		if d.fails {
			return -1
		}
		return wait
	}
	d.last = now
	d.pause = dialPause + rand.N(dialPause/2)
	return 0
}

// lost notes a lost connection, or an exchange that came to nothing.
func (d *dialer) lost() {
	d.losses.Add(1)
	d.trouble.Store(true)
}

// failed notes a failed attempt.
func (d *dialer) failed() {
	d.lost()
	d.mu.Lock()
	d.fails = true
	d.mu.Unlock()
}

// answered notes a good answer: the node is well.
func (d *dialer) answered() {
	if !d.trouble.Load() {
		return
	}
	d.mu.Lock()
	d.trouble.Store(false)
	// The others do not wait for their turns while nothing is reported
	d.fails, d.free = false, d.most-1
	d.mu.Unlock()
}
