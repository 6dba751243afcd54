package front

import (
	"io"
	"time"

	"sluice/edge/message"
)

// skipLimit is how much of a refused request's body is read so that its connection can stay open.
const skipLimit = 64 << 10

// StartBody begins to wait for the request's body, which the client must send at a pace: see
// Client.StartBody. It may be late at first by as much as a head may take, and by more; all of it
// must be there by due, if that is not zero. The head is not in the buffer any more.
func (e *Exchange) StartBody(more time.Duration, due time.Time) {
	limits := &e.on.Conn.Server.Limits
	e.startBody(limits.HeaderTimeout+more, limits.IdleTimeout, due)
}

func (e *Exchange) startBody(grace, most time.Duration, due time.Time) {
	c, r := e.on.Conn, &e.In
	if r.Length == message.LengthChunked || r.Length > headBuffer {
		c.grow(bodyBuffer)
	}
	e.body.Reader = c.Reader
	c.StartBody(grace, most)
	c.bodyDue = due
}

// AwaitBody waits until the body has begun.
func (e *Exchange) AwaitBody() error { return e.on.Conn.Fill(1) }

// TakeBody begins to read the body: to its end, or to that of the connection. pause, if not nil, is
// called before the client is waited for, and resume after it. An error of pause is that of Next.
func (e *Exchange) TakeBody(pause func() error, resume func()) {
	e.bodyRead, e.pause, e.resume = true, pause, resume
}

// Fill waits until n bytes of the body are in the buffer.
func (e *Exchange) Fill(n int) error {
	c := e.on.Conn
	if c.Reader.Buffered() >= n {
		return nil
	}
	if e.pause != nil {
		if err := e.pause(); err != nil {
			return err
		}
		defer e.resume()
	}
	return c.Fill(n)
}

// Next returns what is there of the body, at least one byte, or io.EOF after its proper end. It is
// valid until the next call.
func (e *Exchange) Next() ([]byte, error) { return e.body.Next() }

// Discard goes on behind n bytes that Next showed.
func (e *Exchange) Discard(n int) { e.body.Discard(n) }

// Got is how many bytes of the body have been discarded.
func (e *Exchange) Got() int64 { return e.body.Got }

// ReadTrailer reads the lines after the body into h.
func (e *Exchange) ReadTrailer(h *message.Head) error { return e.body.ReadTrailer(h) }

// EndBody ends reading the body.
func (e *Exchange) EndBody() {
	c := e.on.Conn
	if c.aborted.Load() {
		c.Linger.Store(true)
	}
	c.EndBody()
}

// AbortBody ends the reading of the body, from another goroutine. It is the last of the connection.
func (e *Exchange) AbortBody() { e.on.Conn.AbortBody() }

// SkipBody is called before an answer. It reads a body that has not been taken, so that the
// connection can stay open; one that is long or slow, or may never come because its client waits to
// be invited, costs the connection instead. It reports whether that took time.
func (e *Exchange) SkipBody() (waited bool) {
	c, r := e.on.Conn, &e.In
	if e.bodyRead || r.Length == 0 {
		return false
	}
	e.bodyRead = true
	r.Close = r.Close || r.ExpectContinue // it may have begun to send its body, or not
	if r.Length <= skipLimit && !r.Close {
		e.startBody(LingerTime, LingerTime, time.Time{})
		defer c.EndBody()
		for e.body.Got+e.body.Around <= skipLimit {
			part, err := e.body.Next()
			if err == io.EOF {
				return true
			}
			if err != nil {
				break
			}
			e.body.Discard(len(part))
		}
		waited = true
	}
	e.Last()
	return waited
}
