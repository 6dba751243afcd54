package http2

import (
	"errors"
	"io"
	"os"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/front"
	"sluice/edge/socket"
)

// A stage is how far a connection is on its way out. A client is told first that it should go
// (announced), and, once it has heard of it, up to which stream the edge has taken what it asked
// (final): what it had sent by then is served, what comes later it may ask elsewhere.
type stage uint8

const (
	staying stage = iota
	announced
	final
)

// farewell is in the PING that tells when a client has heard that it should go.
var farewell = [8]byte{'f', 'a', 'r', 'e', 'w', 'e', 'l', 'l'}

var errSlowHead = errors.New("edge: http2: the head of a request came too slowly")

// Read reads what the client sends: what is there, while ready looks, and else what comes of a
// frame or a head that has begun.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	for !c.looking {
		if err := c.prepare(); err != nil {
			return 0, err
		}
		n, err := c.client.Conn.Read(p)
		if n > 0 || err == nil {
			return n, nil
		}
		if !c.timedOut(err) {
			return 0, io.EOF
		}
	}
	return c.client.Conn.Read(p)
}

// ready returns when the next frame has begun to come, or the connection is to end. Connections
// wait here, most of them nearly all the time: with no buffer, and next to no stack.
func (c *conn) ready() error {
	if c.reader != nil && (c.reader.Buffered() > 0 || !c.headBy.IsZero()) {
		return nil
	}
	raw, ok := c.client.Raw.(*socket.Conn)
	if !ok {
		c.borrow()
		return nil
	}
	for {
		if err := c.prepare(); err != nil {
			return err
		}
		if err := raw.Await(c.try); err == nil {
			return c.failed
		} else if !c.timedOut(err) {
			return io.EOF
		}
	}
}

// came reads what is there, and reports false if nothing is.
func (c *conn) came() (done bool) {
	c.borrow()
	c.looking = true
	_, err := c.reader.Peek(1)
	c.looking = false
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.reader.Reset(nil)
		readers.Put(c.reader)
		c.reader, c.head = nil, nil
		return false
	}
	if c.failed = nil; err != nil {
		c.failed = io.EOF
	}
	return true
}

// borrow sees to it that there is a reader.
func (c *conn) borrow() {
	if c.reader == nil {
		c.reader = readers.Get().(*reader)
		c.head = &c.reader.head
		c.reader.Reset(c)
	}
}

// timedOut reports whether a read has failed because its time is up: then it is to be tried again,
// if it may.
func (c *conn) timedOut(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	c.mu.Lock()
	c.readBy = time.Unix(1, 0)
	c.mu.Unlock()
	return true
}

// prepare does what is to be done before the client is waited for: what is due, and all that is to
// be said is said. It returns an error where the connection is to end.
func (c *conn) prepare() error {
	for {
		due, err := c.look(time.Now())
		if failed := c.flush(); err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
		c.mu.Lock()
		// Since look
		again := c.client.Old() && c.leaving == staying || c.rests() && c.leaving == final
		if err = c.room(nil); err == nil && !again && c.off(due) {
			c.readBy = due
			err = c.client.Conn.SetReadDeadline(due)
			if c.client.Old() && c.leaving == staying {
				again = true
			}
		}
		c.mu.Unlock()
		if err != nil || !again {
			return err
		}
	}
}

// look does what is due, and returns when to look again; the zero time: when something happens.
func (c *conn) look(now time.Time) (due time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client.Old() && c.leaving == staying {
		switch going := c.client.Going.Load(); {
		case going == front.GoNow, going == front.GoIdle && c.rests() && !c.client.Waiting():
			c.finally()
		default:
			c.client.Linger.Store(true)
			c.announce(now)
		}
	}
	if c.leaving == announced && !now.Before(c.leaveBy) {
		c.finally()
	}
	if !c.headBy.IsZero() && !now.Before(c.headBy) {
		return due, errSlowHead
	}
	sooner := func(at time.Time) {
		if due.IsZero() || at.Before(due) {
			due = at
		}
	}
	if c.leaving == announced {
		sooner(c.leaveBy)
	}
	if !c.headBy.IsZero() {
		sooner(c.headBy)
		return due, nil
	}
	if !c.rests() {
		return due, nil
	}
	until := c.idle.Add(c.site.Limits.IdleTimeout)
	if !c.asked {
		until = c.idle.Add(c.site.Limits.HeaderTimeout)
	}
	if c.leaving == final || !now.Before(until) {
		if c.leaving != final {
			c.finally()
			c.client.Linger.Store(true)
		}
		return due, io.EOF
	}
	sooner(until)
	return due, nil
}

// off reports whether the read deadline has to be set anew. One that comes a little early does no
// harm. It needs c.mu.
func (c *conn) off(due time.Time) bool {
	if due.IsZero() {
		// One that is yet to come is looked at when it does
		return !c.readBy.IsZero() && !c.readBy.After(time.Now())
	}
	early := due.Sub(c.readBy)
	return c.readBy.IsZero() || early < 0 || early > c.site.Slack
}

// rests reports whether nothing is under way. It needs c.mu, as all that follows does.
func (c *conn) rests() bool { return len(c.streams) == 0 && c.working == 0 }

// rested is called when something is over. at is an instant just now, or zero.
func (c *conn) rested(at time.Time) {
	if !c.rests() || c.broken != nil {
		return
	}
	if c.idle = at; at.IsZero() {
		c.idle = time.Now()
	}
	c.client.Idle.Store(c.idle.UnixNano())
	if !c.writing {
		c.client.StartAnswer() // what it was slow with before is over
		c.giveBack()
	}
}

// doze has the loop look in time, when nothing is under way any more. It may be reading.
func (c *conn) doze() {
	if due := c.idle.Add(c.site.Limits.IdleTimeout); c.leaving == staying && c.off(due) {
		c.readBy = due
		_ = c.client.Conn.SetReadDeadline(due)
	}
	if c.leaving != staying || c.client.Old() { // now, or before the deadline was set
		c.wake()
	}
}

// wake has the loop look what is due.
func (c *conn) wake() {
	c.readBy = time.Unix(1, 0)
	_ = c.client.Raw.SetReadDeadline(socket.LongAgo)
}

// announce tells the client that it should go.
func (c *conn) announce(now time.Time) {
	if c.leaving == staying {
		c.leaving, c.leaveBy = announced, now.Add(graceTime)
		c.putGoAway(1<<31-1, frames.ErrCodeNo)
		c.putPing(0, farewell)
		c.wake()
	}
}

// finally tells it which of its streams are the last.
func (c *conn) finally() {
	if c.leaving != final {
		c.leaving, c.last = final, c.highest
		c.putGoAway(c.last, frames.ErrCodeNo)
		c.wake()
	}
}
