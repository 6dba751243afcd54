package http2

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/message"
)

// Invite tells the client to send its body. A failure shows when that is read.
func (st *Stream) Invite() { st.interim(appendStatus(nil, http.StatusContinue)) }

// Interim sends an interim answer. A failure shows when the answer itself is sent.
func (st *Stream) Interim(a *message.Answer, ours func(status int, name []byte) bool) {
	if a.Status != http.StatusSwitchingProtocols { // there is nothing to switch (RFC 9113, 8.6)
		st.interim(appendAnswer(nil, a, ours))
	}
}

func (st *Stream) interim(block []byte) {
	c := st.conn
	c.mu.Lock()
	if !st.closed && st.able() == nil {
		c.putHead(st.id, block, false)
	}
	c.mu.Unlock()
	_ = c.flush()
}

// Begin begins the answer: with the lines of a but those that only the edge may say, and then what
// the edge does say. It reports whether the body, whose length a does not know, is to be ended by
// Trailers.
func (st *Stream) Begin(a *message.Answer, ours func(status int, name []byte) bool,
	fields []message.Field) (open bool) {
	b := appendAnswer(st.block[:0], a, ours)
	if len(a.Trailers) > 0 {
		b = appendField(b, "trailer", bytes.Join(a.Trailers, []byte(", ")))
	}
	st.block = appendFields(b, fields)
	st.switching = a.Protocol != nil
	st.left, st.ahead = max(a.Length, -1), a.Ahead
	st.leave()
	return a.Length < 0
}

// leave has the connection end where the edge is to.
func (st *Stream) leave() {
	if c := st.conn; c.site.Leaving != nil && c.site.Leaving() {
		c.mu.Lock()
		c.client.Linger.Store(true)
		c.announce(time.Now())
		c.mu.Unlock()
	}
}

// Stream sends the body in parts, until End.
func (st *Stream) Stream() {
	st.streaming = true
	st.startTaking()
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !st.closed && st.able() == nil { // a failure shows in the next write
		c.putHead(st.id, st.block, false)
	}
}

// Send adds a part of the body.
func (st *Stream) Send(part []byte) error {
	if !st.streaming {
		st.out = append(st.out, part...)
		return nil
	}
	if st.left > 0 {
		st.left -= int64(len(part))
		return st.send(part, st.left == 0)
	}
	return st.send(part, false)
}

// send sends a part of the body as fast as the client takes it.
func (st *Stream) send(part []byte, last bool) error {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(part) > 0 {
		n, err := c.open(st, len(part))
		if err != nil {
			return err
		}
		c.sendNow(st, part[:n], last && n == len(part))
		if n == len(part) { // what the client's own windows cut into pieces gives it none
			c.earn(messageControls)
		}
		part = part[n:]
	}
	return nil
}

// sendNow sends a part of the body for which windows are open. It needs c.mu, as ending does.
func (c *conn) sendNow(st *Stream, part []byte, last bool) {
	c.window -= int64(len(part))
	st.window -= int64(len(part))
	c.sent += len(part)
	c.earn(c.sent >> 10)
	c.sent &= 1<<10 - 1
	c.putData(st.id, part, last)
	if last {
		c.ending(st)
	}
}

// ending ends a stream whose answer is over. If the client still sends, it need not go on.
func (c *conn) ending(st *Stream) {
	if code := st.resetWith; code != frames.ErrCodeNo || !st.ended {
		c.putLateReset(st.id, code)
	}
	st.closed = true
	c.drop(st)
}

// Trailers ends a body of unknown length, with the lines that come after it.
func (st *Stream) Trailers(lines []message.Line) error {
	var block []byte
	for i := range lines {
		block = appendField(block, lines[i].Name, lines[i].Value)
	}
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := st.able(); err != nil {
		return err
	}
	if len(block) == 0 {
		c.putData(st.id, nil, true)
	} else {
		c.putHead(st.id, block, true)
	}
	c.ending(st)
	return nil
}

// able waits until there is room for a frame, and returns why there will be none. It needs conn.mu.
func (st *Stream) able() error {
	if err := st.conn.room(st); err != nil {
		return err
	}
	return st.died
}

// Flush sends what there is.
func (st *Stream) Flush() error { return st.conn.flush() }

// End sends what there is, the last of the answer. at is an instant just now, or zero.
func (st *Stream) End(at time.Time) error {
	if st.wrote = at; at.IsZero() {
		st.wrote = time.Now()
	}
	if st.switching {
		return st.switches()
	}
	if !st.streaming {
		st.ahead = 0
		if err := st.whole(st.out); err != nil {
			return err
		}
		st.conn.gather()
	}
	return st.conn.flush()
}

// whole sends an answer that is all there.
func (st *Stream) whole(body []byte) error {
	c := st.conn
	c.mu.Lock()
	err := st.able()
	if err == nil {
		c.putHead(st.id, st.block, len(body) == 0)
		if len(body) == 0 {
			c.ending(st)
		}
	}
	c.mu.Unlock()
	if err != nil || len(body) == 0 {
		return err
	}
	st.startTaking()
	return st.send(body, true)
}

// Abort says that the answer has broken off.
func (st *Stream) Abort() {
	c := st.conn
	c.mu.Lock()
	c.reset(st, frames.ErrCodeInternal)
	c.mu.Unlock()
	_ = c.flush()
}

// Respond sends an answer of the edge's own. The loop waits for no client: what cannot go now is
// sent by the goroutine that has the stream after it, or, where too much waits already, not at all:
// the head says what the client needs to know.
func (st *Stream) Respond(r *message.Reply) error {
	if st.wrote = r.At; r.At.IsZero() {
		st.wrote = time.Now()
	}
	c := st.conn
	if st.silent {
		c.mu.Lock()
		c.reset(st, st.resetWith)
		c.mu.Unlock()
		return errSilent
	}
	st.ahead = 0
	st.begin(r, r.ContentType, len(r.Body))
	st.leave()
	body := r.Body
	if st.in.IsHead {
		body = nil
	}
	if !st.looped {
		if err := st.whole(body); err != nil {
			return err
		}
		return c.flush()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil || st.died != nil {
		return errGone
	}
	open := int64(len(body)) <= min(st.window, c.window)
	now := open && len(body) <= mostUnwritten
	if len(body) > 0 && !now && !c.maySend(st, r, open) {
		st.begin(r, "", 0)
		body = nil
	}
	c.putHead(st.id, st.block, len(body) == 0)
	switch {
	case len(body) == 0:
		c.ending(st)
	case now:
		for len(body) > 0 {
			n := min(len(body), frameSize)
			c.sendNow(st, body[:n], n == len(body))
			body = body[n:]
		}
	}
	return nil
}

// maySend reports whether a refusal's body may wait for its client, which then is the stream's to
// send. open: windows take it, and it is only too long for the loop. What is not the same for all
// is copied, since it is lent. It needs c.mu.
func (c *conn) maySend(st *Stream, r *message.Reply, open bool) bool {
	if st.unsent = r.Body; r.Shared {
		return true
	}
	if !open && c.copied+len(r.Body) > mostCopied {
		st.unsent = nil
		return false
	}
	st.unsent, st.copied = slices.Clone(r.Body), len(r.Body)
	c.copied += st.copied
	return true
}

// begin begins an answer of the edge's own, with a body of such a type and length.
func (st *Stream) begin(r *message.Reply, contentType string, length int) {
	b := appendStatus(st.block[:0], r.Status)
	if r.Common != nil && r.Common.Block != nil {
		b = append(b, r.Common.Block...)
	} else if r.Common != nil {
		b = appendFields(b, r.Common.Fields)
	}
	if contentType != "" {
		b = appendField(b, "content-type", []byte(contentType))
	}
	var digits [20]byte
	b = appendField(b, "content-length", strconv.AppendInt(digits[:0], int64(length), 10))
	b = appendField(b, "date", message.Date(st.wrote))
	st.block = appendFields(b, r.Fields)
}

// sendUnsent sends what is left of an answer.
func (st *Stream) sendUnsent() {
	c, body := st.conn, st.unsent
	if st.unsent = nil; st.send(body, true) == nil {
		_ = c.flush()
	}
	c.locked(func() { c.copied -= st.copied })
}
