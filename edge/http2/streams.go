package http2

import (
	"io"

	frames "golang.org/x/net/http2"
)

// mostWindow is the largest that a window may be, in bytes (RFC 9113, 6.9.1).
const mostWindow = 1<<31 - 1

// past remembers the streams of a connection that have ended last: twice as many as there may be at
// once, so that none is forgotten before its client, which may go on with all of them and begin as
// many, has heard of its end.
type past struct {
	at   int
	list []ended
}

// An ended stream is one that is over. What is still on its way from the client when the edge ends
// one is not the client's fault.
type ended struct {
	id uint32
	// What the client may have sent of its body; less than 0: it had ended the stream itself
	left int32
}

func (p *past) add(e ended, most int) {
	if len(p.list) < most {
		p.list = append(p.list, e)
		return
	}
	p.list[p.at] = e
	p.at = (p.at + 1) % len(p.list)
}

func (p *past) find(id uint32) *ended {
	for i := range p.list {
		if p.list[i].id == id {
			return &p.list[i]
		}
	}
	return nil
}

// isIdle reports whether a stream has not been opened, and cannot be but by HEADERS.
func (c *conn) isIdle(id uint32) bool { return id%2 == 0 || id > max(c.highest, c.untaken) }

// drop forgets a stream of which nothing more is sent. It needs c.mu.
func (c *conn) drop(st *Stream) {
	if c.streams[st.id] == st {
		delete(c.streams, st.id)
		left := -1
		if !st.ended && st.died != errReset {
			left = max(st.recv, 0)
		}
		c.past.add(ended{st.id, int32(left)}, 2*c.site.MaxStreams)
	}
	c.unread(st)
	c.narrow(st)
}

// reset resets a stream, unless it is over. It needs c.mu.
func (c *conn) reset(st *Stream, code frames.ErrCode) {
	if st.closed {
		return
	}
	st.closed = true
	if st.id != 0 && c.broken == nil {
		c.putReset(st.id, code)
	}
	st.die(io.ErrUnexpectedEOF)
	c.drop(st)
}

// over ends a stream that nobody works for any more. It needs c.mu.
func (c *conn) over(st *Stream) {
	c.reset(st, frames.ErrCodeInternal)
	c.drop(st)
	c.release(st)
}

// wrong resets a stream because of what its client did.
func (c *conn) wrong(e frames.StreamError) error {
	if c.isIdle(e.StreamID) && e.Code != frames.ErrCodeProtocol {
		return frames.ConnectionError(e.Code)
	}
	c.locked(func() {
		if st := c.streams[e.StreamID]; st != nil {
			c.reset(st, e.Code)
		} else {
			c.putReset(e.StreamID, e.Code)
		}
	})
	return c.resetting()
}

// resetByClient ends a stream that the client does not want any more.
func (c *conn) resetByClient(f *frames.RSTStreamFrame) error {
	if c.isIdle(f.StreamID) {
		return frames.ConnectionError(frames.ErrCodeProtocol)
	}
	open := false
	c.locked(func() {
		if st := c.streams[f.StreamID]; st != nil {
			open, st.closed = true, true
			st.die(errReset)
			c.drop(st)
		}
	})
	if !open {
		return c.control(1)
	}
	return c.resetting()
}

// widen takes note that the client takes more.
func (c *conn) widen(f *frames.WindowUpdateFrame) error {
	if err := c.control(1); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		was := c.window
		if c.window += int64(f.Increment); c.window > mostWindow {
			return frames.ConnectionError(frames.ErrCodeFlowControl)
		}
		for _, st := range c.streams {
			if was <= 0 && st.window > 0 { // others have waited for nothing here, or wait for more
				signal(st.opened)
			}
		}
		return nil
	}
	st := c.streams[f.StreamID]
	switch {
	case c.isIdle(f.StreamID):
		return frames.ConnectionError(frames.ErrCodeProtocol)
	case st == nil:
		return nil
	}
	if st.window += int64(f.Increment); st.window > mostWindow {
		return frames.StreamError{StreamID: st.id, Code: frames.ErrCodeFlowControl}
	}
	signal(st.opened)
	return nil
}

// data takes a part of a body.
func (c *conn) data(f *frames.DataFrame) error {
	if c.isIdle(f.StreamID) {
		return frames.ConnectionError(frames.ErrCodeProtocol)
	}
	size, part := int(f.Length), f.Data()
	late := f.StreamID > c.highest // its client did not know yet that it is not taken
	if late || len(part) == 0 && !f.StreamEnded() {
		if err := c.control(1); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recv -= size; c.recv < 0 {
		return frames.ConnectionError(frames.ErrCodeFlowControl)
	}
	fault := func(code frames.ErrCode) error {
		c.refill(nil, size)
		return frames.StreamError{StreamID: f.StreamID, Code: code}
	}
	if late {
		c.refill(nil, size)
		return nil
	}
	st := c.streams[f.StreamID]
	if st == nil {
		if e := c.past.find(f.StreamID); e != nil && e.left >= 0 {
			if int32(size) > e.left {
				return frames.ConnectionError(frames.ErrCodeFlowControl)
			}
			e.left -= int32(size)
			c.refill(nil, size)
			return nil
		}
		return fault(frames.ErrCodeStreamClosed)
	}
	if st.ended {
		return fault(frames.ErrCodeStreamClosed)
	}
	if st.recv -= size; st.recv < 0 && size > 0 {
		return fault(frames.ErrCodeFlowControl)
	}
	st.came += int64(len(part))
	if st.around += int64(9 + size - len(part)); st.around > bodyCost*st.came+bodySlack {
		return fault(frames.ErrCodeEnhanceYourCalm)
	}
	if n := st.announced; n >= 0 && (st.came > n || f.StreamEnded() && st.came != n) {
		return fault(frames.ErrCodeProtocol)
	}
	c.refill(st, size-len(part))
	if st.ignores {
		c.refill(nil, len(part))
		st.lost = st.lost || len(part) > 0
	} else {
		st.queue = append(st.queue, part...)
	}
	if st.ended = f.StreamEnded(); st.ended || len(part) > 0 {
		signal(st.arrived)
	}
	return nil
}

// refill has the client send so many bytes more, of all bodies and, if it is not nil, of a
// stream's. It needs c.mu.
func (c *conn) refill(st *Stream, n int) {
	if c.credit += n; c.credit >= creditStep {
		c.putWindow(0, c.credit)
		c.recv += c.credit
		c.credit = 0
	}
	if st == nil || st.ended || st.closed {
		if st != nil && len(st.queue)+st.taken == 0 {
			c.narrow(st)
		}
		return
	}
	if st.credit += n; st.credit < st.most/2 {
		return
	}
	// Somebody reads it, and it is long
	const more = streamWindow - firstWindow
	if st.most == firstWindow && c.wide >= more && !c.site.Memory.isShort() {
		st.most = streamWindow
		c.wide -= more
		c.hold(more)
		st.credit += more
	}
	c.putWindow(st.id, st.credit)
	st.recv += st.credit
	st.credit = 0
}

// narrow gives back what a stream has of spareWindow. It needs c.mu.
func (c *conn) narrow(st *Stream) {
	c.wide += st.most - firstWindow
	c.hold(int64(firstWindow - st.most))
	st.most = firstWindow
}

// unread lets go of what nobody will read of a stream's body. It needs c.mu.
func (c *conn) unread(st *Stream) {
	st.ignores = true
	// Or each body that somebody gives up takes something of the connection's window with it
	if n := len(st.queue) + st.taken; n > 0 {
		c.refill(nil, n)
		st.lost = st.lost || len(st.queue) > 0
		st.queue, st.taken = nil, 0
	}
}
