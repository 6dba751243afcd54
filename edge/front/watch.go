package front

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"sluice/edge/socket"
)

// watchAfter is how long an origin may take before the edge checks whether the client is still
// there. Most answers come sooner; they cost a timer that is set and stopped.
const watchAfter = 100 * time.Millisecond

// A watch notices that the client of a request has gone while its origin is at work: it has reset
// the connection. One that has closed it sends no more, and may well read: it gets its answer (RFC
// 9112, 9.6). A client that is not there any more resets when the answer comes. One that has closed
// does not count against the caps for Server.HalfClosed, and counts again if no answer has begun by
// then; it is cut if its source has no room for it any more. The watch reads nothing: what the
// client sends is its next request. Below TLS it sees what happens to the socket.
//
// It belongs to the goroutine that serves the connection, which must stop it before it reads from
// the client again.
type watch struct {
	timer     *time.Timer
	on        bool
	conn      *Client
	ready     <-chan struct{}
	gone      func()
	answering atomic.Bool // the answer has begun
	left      atomic.Bool // the connection does not count
	waiting   atomic.Bool // look waits at the socket, and nothing else reads it
	stopped   atomic.Bool
	wake      chan struct{}
	ended     chan struct{} // look has
}

// Watch has gone called, once at most, if the client goes before Unwatch. The watch begins when
// ready is closed, if it is not nil: until then the reader of the body sees the client go.
func (e *Exchange) Watch(ready <-chan struct{}, gone func()) {
	e.watch.start(e.on.Conn, ready, gone)
}

// Expect counts nothing: a connection has one request, so the caps on connections bound what is
// held.
func (e *Exchange) Expect(int) {}

// Answering notes that the answer has begun. A client that has closed one direction then counts
// again: else one source could have any number of answers under way.
func (e *Exchange) Answering() {
	w := &e.watch
	w.answering.Store(true)
	if w.on && w.left.Load() {
		w.conn.Server.Return(w.conn)
	}
}

// Unwatch ends what Watch began, if anything. When it returns, gone has been called, or will not
// be.
func (e *Exchange) Unwatch() { e.watch.stop() }

func (w *watch) start(c *Client, ready <-chan struct{}, gone func()) {
	if _, ok := c.Raw.(*socket.Conn); !ok {
		return
	}
	w.on, w.conn, w.ready, w.gone = true, c, ready, gone
	w.answering.Store(false)
	w.left.Store(false)
	w.waiting.Store(false)
	w.stopped.Store(false)
	if w.timer == nil {
		w.wake, w.ended = make(chan struct{}, 1), make(chan struct{})
		w.timer = time.AfterFunc(watchAfter, w.look)
	} else {
		w.timer.Reset(watchAfter)
	}
}

func (w *watch) stop() {
	if !w.on {
		return
	}
	w.on = false
	if !w.timer.Stop() {
		// Before the deadline: look sets its own, and then looks whether this is so
		w.stopped.Store(true)
		w.wake <- struct{}{}
		if w.waiting.Load() {
			_ = w.conn.Raw.SetReadDeadline(socket.LongAgo)
		}
		<-w.ended
		select {
		case <-w.wake:
		default:
		}
		if w.waiting.Load() {
			w.conn.ReadBy = time.Time{} // the next Read sets its own
		}
	}
	w.conn, w.ready, w.gone = nil, nil, nil
}

func (w *watch) look() {
	defer func() { w.ended <- struct{}{} }()
	defer func() {
		if p := recover(); p != nil {
			w.conn.Server.Fault(p)
		}
	}()
	if w.ready != nil {
		select {
		case <-w.ready:
		case <-w.wake:
			return
		}
	}
	s, closed, due := w.conn.Raw.(*socket.Conn), false, time.Time{}
	w.waiting.Store(true)
	for {
		_ = s.SetReadDeadline(due)
		if w.stopped.Load() {
			return
		}
		now, err := s.WaitHangup(closed)
		switch {
		case w.stopped.Load():
			return
		case now == socket.Reset, err != nil &&
			!errors.Is(err, os.ErrDeadlineExceeded) /* cut by this side */ :
			w.conn.Server.Leave(w.conn)
			w.gone()
			return
		case !due.IsZero() && !time.Now().Before(due):
			due = time.Time{}
			if w.left.Swap(false) && !w.conn.Server.Return(w.conn) && !w.answering.Load() {
				_ = s.Close() // which shows in WaitHangup
			}
		case now == socket.Closed && !closed:
			if !w.answering.Load() {
				w.conn.Server.Leave(w.conn)
				w.left.Store(true)
			}
			closed, due = true, time.Now().Add(w.conn.Server.HalfClosed)
		}
	}
}
