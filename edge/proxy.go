package edge

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// forward passes the request on and makes the origin's answer the reply, its body perhaps still to be streamed. It returns
// the status of the origin's answer, or 0 if the edge had to answer itself.
//
// An origin sees a request at most twice, and only if all of this holds: the method is safe, there is no body, and the
// first connection had been used before and ended without a byte of an answer, as it does when an origin closes an idle
// connection just when the request is sent. A timeout is never a reason: the origin may be at work.
func (x *exchange) forward() int {
	g := x.snap.origins.of(x.host)
	if g == nil {
		x.say(refuse(http.StatusMisdirectedRequest, "no_origin", "This server does not answer for that host."))
		return 0
	}
	o := g.pick(x.source, x.now, nil)
	if o == nil {
		x.say(busy)
		return 0
	}
	x.upgrade = x.wantsUpgrade(g)
	fresh, moved, now := x.upgrade != nil, false, x.now
	for {
		o.attempts.Add(1)
		l, err := o.acquire(now, fresh, g.connect)
		if err != nil {
			o.active.Add(-1)
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				x.say(busy) // it is the edge that lacks something, not the origin
				return 0
			}
			now = time.Now() // trying took its time
			o.failing(now)
			x.server.warn("origin unreachable", "origin", o.name, "error", err)
			if !moved && len(g.servers) > 1 {
				// Nothing has been sent: another server may have the request, whatever it is.
				if other := g.pick(x.source, now, o); other != nil {
					o, moved = other, true
					continue
				}
			}
			x.say(refuse(http.StatusBadGateway, "origin_unreachable", "The server behind this one cannot be reached."))
			return 0
		}
		b := &x.body
		*b = answerBody{stream: stream{waiter: b}, link: l, client: x.conn, timeout: g.timeout, keep: idleOrigin}
		if g.total > 0 {
			b.due = x.now.Add(g.total)
		}
		x.open = b
		err = x.exchangeOn(o, b, now)
		if err == nil {
			o.succeeded()
			x.relay(o, b)
			return x.reply.status
		}
		x.open = nil
		l.Close()
		l.rest()
		if err == io.EOF && l.reused && b.upload == nil && isSafe(x.method) {
			fresh = true
			continue
		}
		o.active.Add(-1)
		x.failed(o, b, err)
		return 0
	}
}

// failed answers for an origin that did not, or tells the client that its own body was at fault.
func (x *exchange) failed(o *origin, b *answerBody, err error) {
	if u := b.upload; u != nil {
		failed := u.failed.Load() // else it is cut off now because the origin has failed, or the time for all of it is up
		late := !failed && !u.taken.Load() && !b.due.IsZero() && !time.Now().Before(b.due)
		u.end()
		x.conn.body = false
		x.conn.linger.Store(true)
		if (failed || late) && u.byClient {
			x.say(u.refusal())
			x.close = true
			return
		}
	}
	o.failing(time.Now())
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		x.server.warn("origin too slow", "origin", o.name, "error", err)
		x.say(refuse(http.StatusGatewayTimeout, "origin_timeout", "The server behind this one did not answer in time."))
	} else {
		x.server.warn("origin failed", "origin", o.name, "error", err)
		x.say(refuse(http.StatusBadGateway, "origin_failed", "The server behind this one gave no valid answer."))
	}
	if b.upload != nil {
		x.close = true
	}
}

func isSafe(method []byte) bool {
	switch string(method) {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return false
}

// requestHeads hold heads on their way to origins.
var requestHeads = sync.Pool{New: func() any { return new([]byte) }}

// exchangeOn sends the request on one connection and reads the head of the answer. io.EOF means that the connection ended
// before any byte of it.
func (x *exchange) exchangeOn(o *origin, b *answerBody, now time.Time) error {
	l := b.link
	if !l.reused { // connecting took its time
		now = time.Now()
	}
	if err := l.begin(now, b.within(now)); err != nil {
		return err
	}
	head := requestHeads.Get().(*[]byte)
	*head = x.appendHead((*head)[:0], o)
	var err error
	if x.length == 0 {
		err = l.ask(*head)
		requestHeads.Put(head)
	} else {
		l.listen()
		w := writerTo(l.Conn)
		_, _ = w.Write(*head)
		requestHeads.Put(head)
		u := &upload{body: x.requestBody(), link: l, w: w, client: x.conn, limit: int64(x.server.limits.BodyBytes),
			within: b.within, due: b.due, announced: x.announced}
		u.body.waiter = u
		b.upload, x.bodyRead = u, true
		x.conn.startBody(x.server.limits.HeaderTimeout, x.server.limits.IdleTimeout)
		if x.length != lengthChunked && x.length <= inlineBody {
			u.run()
			if u.byClient {
				return u.err
			}
			err = u.err
		} else {
			u.start()
		}
	}
	if err != nil {
		// The origin may have answered and closed before it read everything: what it said still counts.
		_ = l.SetReadDeadline(time.Now().Add(time.Second))
	}
	b.br = l.br
	failed := x.readAnswerHead(b)
	b.reuse = b.reuse && err == nil // else the origin waits for the rest of this request, and would take the next one for it
	if failed != nil && err != nil && b.upload != nil {
		return err
	}
	return failed
}

// relay makes the origin's answer the client's.
func (x *exchange) relay(o *origin, b *answerBody) {
	r := &x.reply
	o.answers[r.status%codes].Add(1)
	if b.upload != nil && !b.upload.taken.Load() {
		x.close = true // an answer before the end of the request: the rest of it will not be read
		x.conn.linger.Store(true)
	}
	switch {
	case r.status == http.StatusSwitchingProtocols:
		b.reuse, x.close = false, true
		return
	case bodyless(x.method, r.status):
		b.framing, b.left = fixed, 0
	case b.length >= 0:
		b.framing, b.left = fixed, b.length
	case b.length == lengthChunked:
		b.framing = chunked
	default:
		b.framing = untilClose
	}
	r.stream = b
}

// chunks says how the client gets a body whose length nobody knows: chunked, or, to a client of HTTP/1.0, up to the end of the
// connection.
func (x *exchange) chunks() {
	if x.old {
		x.close = true
		return
	}
	x.reply.head = append(x.reply.head, "Transfer-Encoding: chunked\r\n"...)
	if x.trailers && x.body.framing == chunked {
		x.expectTrailers(&x.body)
	}
}
