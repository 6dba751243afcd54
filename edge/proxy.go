package edge

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

// forward passes the request on and makes the origin's answer the reply, its body perhaps still to be streamed. It returns
// the status of the origin's answer, or 0 if the edge had to answer itself.
//
// A small body is read first, so that a client that sends slowly holds nothing of the origin's.
func (x *exchange) forward() int {
	g := x.snap.origins.Of(x.Host)
	if g == nil {
		x.say(message.Refuse(http.StatusMisdirectedRequest, "no_origin", "This server does not answer for that host."))
		return 0
	}
	now, due := x.now, time.Time{}
	if g.Total > 0 {
		due = now.Add(g.Total)
	}
	if x.Length > 0 && x.Length <= heldBody && !x.ExpectContinue {
		if r := x.hold(due); r != nil {
			x.turnAway(r)
			return 0
		}
		now = time.Now() // the client took its time
	} else if x.Length != 0 && !x.ExpectContinue {
		// Not all of it is held, but none of it is worth a server's place, or a link that may end meanwhile.
		if err := x.awaitBody(due); err != nil {
			x.turnAway(bodyRefusal(err))
			return 0
		}
		now = time.Now()
	}
	if !x.allowed && (g.Most > 0 || g.Share > 0) {
		if !g.Enter(x.source, now) {
			x.say(sourceBusy)
			return 0
		}
		x.places = g.Places
		defer func() {
			if x.open == nil {
				x.leave()
			}
		}()
	}
	return x.pass(g, now, due)
}

// leave gives back the place that the request has among those of its source.
func (x *exchange) leave() {
	if x.places != nil {
		x.places.Leave(x.source)
		x.places = nil
	}
}

// pass sends the request to one of the group's servers, and gets the answer by due.
//
// An origin sees a request at most twice, and only if all of this holds: the method is idempotent (RFC 9110, 9.2.2), all of the
// body is held, and the first connection had been used before and ended without a byte of an answer, as it does when an origin
// closes an idle connection just when the request is sent. A timeout is never a reason: the origin may be at work. A request of which
// nothing could be written to such a connection has not been seen at all, and goes to a new one whatever it is.
func (x *exchange) pass(g *upstream.Group, now, due time.Time) int {
	o := g.Pick(x.source, now, nil)
	if o == nil {
		x.say(busy)
		return 0
	}
	x.upgrade = x.wantsUpgrade(g)
	fresh, moved := x.upgrade != nil, false
	pause, until := time.Duration(0), time.Time{} // between rounds of connecting
	for {
		l, err := o.Acquire(now, fresh, g.Connect)
		if pause == 0 || err == nil {
			o.Attempts.Add(1)
		}
		if err != nil {
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				o.Active.Add(-1)
				x.say(busy) // it is the edge that lacks something, not the origin
				return 0
			}
			now = time.Now() // trying took its time
			if pause == 0 {
				o.Failing(now)
				x.server.warn("origin unreachable", "origin", o.Name, "error", err)
				if until = now.Add(upstream.RestartTime); !due.IsZero() && due.Before(until) {
					until = due
				}
			}
			// Nothing has been sent: another server may have the request, whatever it is.
			if !moved {
				moved = true
				if other := g.Instead(o, x.source, now); other != o {
					o = other
					continue
				}
			}
			if o.Refuses(err) && now.Before(until) {
				// Mostly it is just being started again.
				pause = min(max(2*pause, upstream.FirstPause), upstream.LastPause, until.Sub(now))
				if time.Sleep(pause); !x.conn.Gone() {
					now = time.Now()
					o = g.Instead(o, x.source, now)
					continue
				}
			}
			o.Active.Add(-1)
			x.say(message.Refuse(http.StatusBadGateway, "origin_unreachable", "The server behind this one cannot be reached."))
			return 0
		}
		b := &x.body
		*b = answerBody{Body: http1.Body{Wait: b}, link: l, client: x.conn, timeout: g.Timeout, keep: upstream.KeepIdle, due: due}
		x.open = b
		if err = x.exchangeOn(o, b, now); err == nil {
			o.Succeeded()
			x.relay(o, b)
			return x.reply.status
		}
		x.open = nil
		gone := x.watch.stop()
		l.Close()
		if gone {
			o.Active.Add(-1)
			x.abandoned(b)
			l.Rest() // the upload is over
			return 0
		}
		if l.Reused && (err == errUnsent || err == io.EOF && b.upload == nil && isIdempotent(x.Method)) {
			l.Rest()
			fresh = true
			continue
		}
		o.Active.Add(-1)
		x.failed(o, b, err)
		l.Rest() // the upload is over
		return 0
	}
}

// abandoned ends a request whose client has gone. If it has closed one direction only, it hears that this took too long.
func (x *exchange) abandoned(b *answerBody) {
	if b.upload != nil {
		b.upload.end()
		x.conn.Body = false
	}
	x.say(clientGone)
	x.Close = true
}

// clientGone has the status that nginx gives it, for logs and metrics.
var clientGone = message.Refuse(499, "client_closed", "The connection was closed before the answer was there.")

// failed answers for an origin that did not, or tells the client that its own body was at fault.
func (x *exchange) failed(o *upstream.Origin, b *answerBody, err error) {
	if u := b.upload; u != nil {
		failed := u.failed.Load() // else it is cut off now because the origin has failed, or the time for all of it is up
		late := !failed && !u.taken.Load() && !x.ExpectContinue && !b.due.IsZero() && !time.Now().Before(b.due)
		u.end()
		x.conn.Body = false
		x.conn.Linger.Store(true)
		if (failed || late) && u.byClient {
			x.say(bodyRefusal(u.err))
			x.Close = true
			return
		}
	}
	if x.blames(b, err) {
		o.Failing(time.Now())
	}
	if timedOut(err) {
		x.server.warn("origin too slow", "origin", o.Name, "error", err)
		x.say(message.Refuse(http.StatusGatewayTimeout, "origin_timeout", "The server behind this one did not answer in time."))
	} else {
		x.server.warn("origin failed", "origin", o.Name, "error", err)
		x.say(message.Refuse(http.StatusBadGateway, "origin_failed", "The server behind this one gave no valid answer."))
	}
	if b.upload != nil {
		x.Close = true
	}
}

// commonHead is how long a head every server takes, in bytes.
const commonHead = 8 << 10

// blames reports whether a failure speaks against the server. One that a client can bring about does not: else a few requests
// would take a sound server out of its group.
func (x *exchange) blames(b *answerBody, err error) bool {
	u := b.upload
	switch {
	case err == bufio.ErrBufferFull, err == message.ErrSyntax, err == message.ErrCount, err == http1.ErrFraming, err == http1.ErrInterim:
		return false // it answered, perhaps with too much of what the client had said
	case timedOut(err):
		// The client may have used up the time for the whole with its body.
		return b.due.IsZero() || x.Length == 0 || time.Now().Before(b.due)
	case err == http1.ErrAnswer, err == errUpgrade:
		return true
	case b.link.Reused && err == io.EOF:
		return false // it was idle for too long
	case u != nil && (!u.taken.Load() || u.failed.Load()):
		return false // who has enough of a body, or of waiting for it, may close without an answer
	}
	return x.Size <= commonHead && isCommon(x.Method) // so may who does not like the head
}

// isIdempotent reports whether a request may be sent again when nobody knows what became of it.
func isIdempotent(method []byte) bool {
	switch string(method) {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// isCommon reports whether every server knows the method.
func isCommon(method []byte) bool {
	return isIdempotent(method) || string(method) == http.MethodPost || string(method) == http.MethodPatch
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// errUnsent means that nothing of a request could be written to a connection that had been used before.
var errUnsent = errors.New("edge: the origin has closed a kept connection")

// requestHeads hold heads on their way to origins.
var requestHeads = sync.Pool{New: func() any { return new([]byte) }}

// exchangeOn sends the request on one connection and reads the head of the answer. io.EOF means that the connection ended
// before any byte of it.
func (x *exchange) exchangeOn(o *upstream.Origin, b *answerBody, now time.Time) error {
	l := b.link
	if !l.Reused { // connecting took its time
		now = time.Now()
	}
	if err := l.Begin(now, b.within(now)); err != nil {
		return err
	}
	head := requestHeads.Get().(*[]byte)
	*head = x.appendHead((*head)[:0], o)
	var err error
	if x.Length == 0 || x.held != nil {
		if x.held != nil {
			*head = append(*head, *x.held...)
		}
		x.watch.start(x.conn, b, x.decision.Held)
		var sent int
		sent, err = l.Ask(*head)
		requestHeads.Put(head)
		if err != nil && sent == 0 && l.Reused {
			return errUnsent
		}
	} else {
		// The body may be long in coming. So the head goes first: what comes on the connection from then on has been asked for.
		l.Look()
		sent, failed := l.Conn.Write(*head)
		requestHeads.Put(head)
		if failed != nil && sent == 0 && l.Reused {
			return errUnsent
		}
		grace, wait := x.server.limits.HeaderTimeout, b.due
		if x.ExpectContinue { // what the origin says to the head decides whether the client sends its body
			grace += inviteTime
			if wait = time.Now().Add(inviteTime); !b.due.IsZero() && b.due.Before(wait) {
				wait = b.due
			}
		}
		w := http1.WriterTo(l.Conn)
		u := &upload{body: &x.Body, link: l, w: w, client: x.conn, limit: int64(x.server.limits.BodyBytes),
			within: b.within, due: b.due, announced: x.announced}
		x.Body.Wait = u
		b.upload = u
		x.startBody(grace, x.server.limits.IdleTimeout)
		if !x.ExpectContinue && x.Length != message.LengthChunked && x.Length <= inlineBody {
			x.conn.BodyDue = b.due
			u.run()
			x.conn.BodyDue = time.Time{}
			if u.byClient {
				return u.err
			}
			err = u.err
		} else {
			u.start(wait)
		}
		l.Listen()
		x.watch.start(x.conn, b, x.decision.Held)
	}
	if err != nil {
		// The origin may have answered and closed before it read everything: what it said still counts.
		_ = l.SetReadDeadline(time.Now().Add(time.Second))
	}
	b.Reader = l.Reader
	failed := x.readAnswerHead(b)
	b.reuse = b.reuse && !l.Early && err == nil // else the origin waits for the rest of this request, and would take the next one for it
	if failed != nil && err != nil && b.upload != nil {
		return err
	}
	return failed
}

// relay makes the origin's answer the client's.
func (x *exchange) relay(o *upstream.Origin, b *answerBody) {
	r := &x.reply
	x.watch.begun()
	o.Answers[r.status%message.Codes].Add(1)
	if b.upload != nil && !b.upload.taken.Load() {
		x.Close = true // an answer before the end of the request: the rest of it will not be read
		x.conn.Linger.Store(true)
	}
	switch {
	case r.status == http.StatusSwitchingProtocols:
		b.reuse, x.Close = false, true
		return
	case bodyless(x.IsHead, r.status):
		b.Framing, b.Left = http1.Fixed, 0
		if b.length > 0 || b.length == message.LengthChunked {
			b.reuse = false // some origins send the body that they announce all the same, perhaps not before the next request
		}
	case b.length >= 0:
		b.Framing, b.Left = http1.Fixed, b.length
	case b.length == message.LengthChunked:
		b.Framing = http1.Chunked
	default:
		b.Framing = http1.UntilClose
	}
	r.stream = b
}

// chunks says how the client gets a body whose length nobody knows: chunked, or, to a client of HTTP/1.0, up to the end of the
// connection.
func (x *exchange) chunks() {
	if x.HTTP10 {
		x.Close = true
		return
	}
	x.reply.head = append(x.reply.head, "Transfer-Encoding: chunked\r\n"...)
	if x.trailers && x.body.Framing == http1.Chunked {
		x.expectTrailers(&x.body)
	}
}

// sourceBusy is the answer to a request of a source that has its share of the places taken.
var sourceBusy = message.Refuse(http.StatusServiceUnavailable, "origin_busy", "Too many requests from this address are under way.").With("Retry-After", "1")

// busy is the answer to a request for which no server has room.
var busy = message.Refuse(http.StatusServiceUnavailable, "origin_busy", "The servers behind this one are busy.").With("Retry-After", "1")
