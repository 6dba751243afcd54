package http2

import (
	"io"
	"os"
	"time"

	"sluice/edge/front"
	"sluice/edge/message"
)

// The body of a request waits in its stream until it is read, and the client sends more only then.

// StartBody begins to wait for the body, which the client must send at a pace. It may be late at
// first by as much as a head may take, and by more; all of it must be there by due, if that is not
// zero.
func (st *Stream) StartBody(more time.Duration, due time.Time) {
	l := &st.conn.site.Limits
	grace := l.HeaderTimeout + more
	st.sending, st.bodyDue = front.Pace{Rate: l.BodyRate, Most: max(grace, l.IdleTimeout),
		Left: grace}, due
}

// AwaitBody waits until the body has begun.
func (st *Stream) AwaitBody() error {
	if _, err := st.Next(); err != io.EOF {
		return err
	}
	return nil
}

// TakeBody says that the body is read from now on. pause, if not nil, is called before the client
// is waited for, and resume after it.
func (st *Stream) TakeBody(pause func() error, resume func()) {
	st.pause, st.resume = pause, resume
}

// Next returns what is there of the body, at least one byte, or io.EOF after its proper end. It is
// valid until the next call.
func (st *Stream) Next() ([]byte, error) {
	for {
		if done, err := st.take(); err != nil || done {
			return st.shown, err
		}
		if err := st.await(); err != nil {
			return nil, err
		}
	}
}

// take looks what is there, and reports false if nothing is yet.
func (st *Stream) take() (done bool, err error) {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	if len(st.shown) == 0 && len(st.queue) > 0 {
		// A stream that is open for long keeps no room for what it has not
		st.shown, st.queue = st.queue, nil
		st.taken = len(st.shown)
		st.sending.Waited(0, st.taken)
	}
	switch {
	case st.aborted:
		return false, os.ErrDeadlineExceeded
	case len(st.shown) > 0:
		return true, nil
	case st.ended && !st.lost:
		return false, io.EOF
	case st.ended || st.died != nil:
		return false, io.ErrUnexpectedEOF
	}
	return false, nil
}

// await waits for the client.
func (st *Stream) await() error {
	if st.pause != nil {
		if err := st.pause(); err != nil {
			return err
		}
		defer st.resume()
	}
	if err := st.conn.flush(); err != nil { // it may have to be told that it may go on
		return io.ErrUnexpectedEOF
	}
	began, left := time.Now(), st.sending.Left
	if st.talking() {
		left = st.sending.Most
	}
	if !st.bodyDue.IsZero() {
		left = min(left, st.bodyDue.Sub(began))
	}
	came := wait(st.arrived, left)
	st.sending.Waited(time.Since(began), 0)
	if !came && (!st.talking() || !st.bodyDue.IsZero() && !time.Now().Before(st.bodyDue)) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// talking reports whether the answer has begun.
func (st *Stream) talking() bool {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	return st.answering
}

// Discard goes on behind n bytes that Next showed.
func (st *Stream) Discard(n int) {
	if st.shown = st.shown[n:]; len(st.shown) == 0 {
		st.shown = nil // nor for what it has had
	}
	st.got += int64(n)
	st.conn.mu.Lock()
	n = min(n, st.taken) // it may have been let go of meanwhile
	st.taken -= n
	st.conn.refill(st, n)
	told := len(st.conn.out) > 0
	st.conn.mu.Unlock()
	if told {
		_ = st.conn.flush() // a failure shows in Next
	}
}

// Got is how many bytes of the body have been discarded.
func (st *Stream) Got() int64 { return st.got }

// ReadTrailer reads the fields after the body into h.
func (st *Stream) ReadTrailer(h *message.Head) error {
	h.Reset()
	rest := st.tail
	for i := 0; i+1 < len(st.tailAt); i += 2 {
		name, value := rest[:st.tailAt[i]], rest[st.tailAt[i]:st.tailAt[i]+st.tailAt[i+1]]
		rest = rest[len(name)+len(value):]
		if err := h.Add(name, value, message.MaxLines); err != nil {
			return err
		}
	}
	h.End()
	return nil
}

// AbortBody ends the reading of the body, from another goroutine.
func (st *Stream) AbortBody() {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	st.aborted = true
	signal(st.arrived)
}

// EndBody says that nothing more of the body is read. What the client has sent ahead, and may still
// send, comes to nothing.
func (st *Stream) EndBody() {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	st.conn.unread(st)
}
