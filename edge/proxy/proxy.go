// Package proxy is a request's way to an origin, and the answer's way back.
//
// It is given a request that may go on, and a group of servers; it has no rules, and leaves the
// client's protocol to the client's end (Exchange: what came, the client, what goes). To origins it
// speaks HTTP/1.1. Step by step:
//
//	hold     a small body is read first, so that a client that sends slowly holds nothing of the origin's (upload.go)
//	place    where a group sheds load, the request gets a place, may wait for one, or is refused (slot.go)
//	pass     a server is chosen, and a connection to it taken or made; what could not be sent goes to another (proxy.go)
//	send     the head (originhead.go), and a long body behind it, in a separate goroutine (upload.go)
//	watch    while the origin is at work: is the client still there? (watch.go)
//	answer   interim ones go on at once; the head of the final one is read and kept (answer.go)
//	relay    head, body and trailers go to the client; what has arrived goes out before more is waited for (relay.go, trailer.go)
//	tunnel   or both connections are joined (tunnel.go)
//
// Between answer and relay its owner adds its own lines. Whatever happens, every link that was
// taken goes back to its pool or is closed, and every slot is given back.
package proxy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"sluice/counter"
	"sluice/edge/http1"
	"sluice/edge/limiter/shedding"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

// A Forward is one request's way to an origin and back: Pass, then Relay, and Tunnel where that
// says so, or Cut; at last Release. Then it may be used again. It belongs to the goroutine that
// serves the client's connection.
type Forward struct {
	Bounds *Bounds
	Warn   func(message string, args ...any) // is called with failures of origins
	// A goroutine other than the one that serves the request has panicked
	Fault   func(any)
	Counted func(names *message.Names) // adds the headers by which the request was counted
	// Ours reports which lines of an answer are not for the origin to say to the client, by its
	// status and their names.
	Ours func(status int, name []byte) bool

	order Order
	on    Exchange
	in    *message.Request // what came on it
	body  answerBody       // the answer's, and the link that it comes by
	open  *answerBody      // is it, until it is over
	// The client has, and the exchange with the origin was ended; good after Unwatch
	gone   bool
	answer *http1.Answer // until it is relayed
	sent   time.Time     // when the server that answered was given the request
	// That of a request with a long body at a group that sheds load
	slot        *shedding.Slot
	sourceSlots *upstream.SourceSlots // one of them is this request's; nil: none is
	upgrade     []byte                // the protocol that the request switches to; nil: none
	announced   message.Names         // trailers of the request that may go on
	// The request's body, read before it is sent on; nil: it is not held
	held *[]byte
	left func() // clientLeft
}

// Bounds are what all passages have in common.
type Bounds struct {
	BodyBytes  int           // of a request's body; 0: unlimited
	TunnelTime time.Duration // after which a tunnel ends in which nothing moves
	// By which this edge's PoP is known in Via; "": no request is known to have been here
	Via string
}

// An Order is what a Forward needs to know about a request besides what came.
type Order struct {
	Origins *upstream.Origins
	Now     time.Time       // the request's
	Source  counter.Source  // the source that takes a slot at the origin,
	Free    bool            // or takes none
	Peer    netip.Addr      // the address that the connection comes from,
	Secure  bool            // which is over TLS
	Chain   []netip.Addr    // the addresses believed before the peer's, the nearest first
	ID      []byte          // the request's ID for the origin (X-Request-ID)
	Counts  bool            // the answer's status counts: the exchange goes on without its client
	Tags    []message.Field // further lines for the origin; the request has no such lines
	// Level is its priority when the origin sheds load, and Queue how long it may wait for a slot
	// there.
	Level    shedding.Level
	Queue    time.Duration
	Watchers []Watcher // are told of each attempt
	// Read is called with each part of the answer's body, after it has gone to the client's end;
	// nil: nobody reads it.
	Read func(part []byte)
}

// A Watcher is told of a request's attempts at servers, by the goroutine that passes it on.
type Watcher interface {
	// Attempt begins an attempt at a server, scheme://host:port or unix:/path. It may be called
	// once more for the same one, to connect again.
	Attempt(server string)
	// Unreachable is that the attempt has no connection yet: there may be a further one.
	Unreachable(err error)
	// Failed ends the attempt without an answer.
	Failed(err error)
	// Answered is the status of the server's answer, which is relayed then.
	Answered(status int)
	// AppendHead appends header lines for the server, each after the end of the line before.
	AppendHead(b []byte) []byte
}

// ErrGone is why an attempt failed whose client has left.
var ErrGone = errors.New("the client has left")

// Pass passes the request on. If the origin answers, Answer has the head of what Relay then makes
// the client's, and Pass returns nil; otherwise it returns the answer for the client.
func (p *Forward) Pass(on Exchange, order Order) *message.Refusal {
	p.on, p.in, p.order = on, on.Request(), order
	g := order.Origins.Of(p.in.Host)
	if g == nil {
		return message.Refuse(http.StatusMisdirectedRequest, "no_origin",
			"This server does not answer for that host.")
	}
	if p.in.Tunnel && p.wantsUpgrade(g) == nil {
		return noTunnel
	}
	if p.hasBeenHere() {
		p.Warn("a request came back: this server of an origin leads to an edge of this PoP",
			"origin", g.Servers[0].Name)
		return loop
	}
	now, due := order.Now, time.Time{}
	if g.Total > 0 {
		due = now.Add(g.Total)
	}
	if p.in.Length != 0 && !p.in.ExpectContinue && p.talks(g) {
		p.on.StartBody(0, due)
	} else if p.in.Length != 0 && !p.in.ExpectContinue {
		if err := p.await(due); err != nil {
			p.on.Last()
			return bodyRefusal(err)
		}
		now = time.Now() // the client took its time
	}
	if !order.Free && (g.Most > 0 || g.Share > 0) {
		if !g.Enter(order.Source, now) {
			return sourceBusy
		}
		p.sourceSlots = g.SourceSlots
		defer func() {
			if p.open == nil {
				p.leave()
			}
		}()
	}
	if g.Shedding != nil {
		return p.passShedding(g, now, due)
	}
	return p.pass(g, now, due)
}

// talks reports whether client and server may speak by turns, in whatever order: a call of gRPC.
// Neither may be waited for before the other.
func (p *Forward) talks(g *upstream.Group) bool {
	return g.HTTP2 && p.in.Length == message.LengthChunked && p.in.IsGRPC()
}

// Answer is the head of the origin's answer, until it is relayed.
func (p *Forward) Answer() *http1.Answer { return p.answer }

// BodyDone reports whether the request's body has come as far as it ever will.
func (p *Forward) BodyDone() bool {
	return p.open == nil || p.open.upload == nil || p.open.upload.over()
}

// leave gives back the slot that the request has among those of its source.
func (p *Forward) leave() {
	if p.sourceSlots != nil {
		p.sourceSlots.Leave(p.order.Source)
		p.sourceSlots = nil
	}
}

// Release gives back what a Forward holds besides its link and its slot.
func (p *Forward) Release() {
	if p.answer != nil {
		answerHeads.Put(p.answer)
		p.answer = nil
	}
	if p.held != nil {
		heldBodies.Put(p.held)
		p.held = nil
	}
	p.on, p.in, p.open, p.order = nil, nil, nil, Order{}
}

// pass sends the request to one of the group's servers, and gets the answer by due.
//
// An origin sees a request at most twice, and only if all of this holds: the method is idempotent
// (RFC 9110, 9.2.2), all of the body is held, and the first connection had been used before and
// ended without a byte of an answer, as it does when an origin closes an idle connection just when
// the request is sent. A timeout is never a reason: the origin may be at work. A request of which
// nothing could be written to such a connection has not been seen at all, and goes to a new one
// whatever it is.
func (p *Forward) pass(g *upstream.Group, now, due time.Time) *message.Refusal {
	o := g.Pick(p.order.Source, now, nil)
	if o == nil {
		return busy
	}
	p.upgrade = p.wantsUpgrade(g)
	fresh, moved := false, false
	pause, until := time.Duration(0), time.Time{} // between rounds of connecting
	for {
		for _, w := range p.order.Watchers {
			w.Attempt(o.Name)
		}
		l, err := o.Acquire(now, fresh, g.Connect)
		if pause == 0 || err == nil {
			o.Attempts.Add(1)
		}
		if err != nil {
			for _, w := range p.order.Watchers {
				w.Unreachable(err)
			}
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				o.Active.Add(-1)
				return busy // it is the edge that lacks something, not the origin
			}
			now = time.Now() // trying took its time
			if pause == 0 {
				o.Failing(now)
				p.Warn("origin unreachable", "origin", o.Name, "error", err)
				if until = now.Add(upstream.RestartTime); !due.IsZero() && due.Before(until) {
					until = due
				}
			}
			// Nothing has been sent: another server may have the request, whatever it is.
			if !moved {
				moved = true
				if other := g.Instead(o, p.order.Source, now); other != o {
					o = other
					continue
				}
			}
			if o.Refuses(err) && now.Before(until) {
				// Mostly it is just being started again.
				pause = min(max(2*pause, upstream.FirstPause), upstream.LastPause, until.Sub(now))
				time.Sleep(pause)
				if now = time.Now(); !p.on.Gone() {
					o = g.Instead(o, p.order.Source, now)
					continue
				}
			}
			o.Active.Add(-1)
			return message.Refuse(http.StatusBadGateway, "origin_unreachable",
				"The server behind this one cannot be reached.")
		}
		b := &p.body
		*b = answerBody{Body: http1.Body{Wait: b}, link: l, timeout: g.Timeout,
			keep: upstream.KeepIdle, due: due}
		p.open, p.sent = b, now
		if err = p.exchangeOn(o, b, now); err == nil {
			o.Succeeded()
			p.answered(o, b)
			for _, w := range p.order.Watchers {
				w.Answered(p.answer.Status)
			}
			return nil
		}
		p.open = nil
		gone := p.unwatch()
		l.Close()
		for _, w := range p.order.Watchers {
			if gone {
				w.Failed(ErrGone)
			} else {
				w.Failed(err)
			}
		}
		if gone {
			o.Active.Add(-1)
			p.abandoned(b)
			l.Rest() // the upload is over
			return clientGone
		}
		if l.Kept() && (err == errUnsent || err == io.EOF && b.upload == nil &&
			isIdempotent(p.in.Method)) {
			l.Rest()
			fresh = true
			continue
		}
		o.Active.Add(-1)
		no := p.failed(o, b, err)
		l.Rest() // the upload is over
		return no
	}
}

// failed answers for an origin that did not, or tells the client that its body was at fault.
func (p *Forward) failed(o *upstream.Origin, b *answerBody, err error) *message.Refusal {
	if err == errNotSwitched {
		return notSwitched
	}
	if u := b.upload; u != nil {
		// Else it is cut off now because the origin has failed, or the time for all of it is up
		failed := u.failed.Load()
		late := !failed && !u.taken.Load() && !p.in.ExpectContinue && !b.due.IsZero() &&
			!time.Now().Before(b.due)
		u.end()
		p.on.Last()
		if (failed || late) && u.byClient {
			return bodyRefusal(u.err)
		}
	}
	if p.blames(b, err) {
		o.Failing(time.Now())
	}
	if http1.TimedOut(err) {
		p.Warn("origin too slow", "origin", o.Name, "error", err)
		return message.Refuse(http.StatusGatewayTimeout, "origin_timeout",
			"The server behind this one did not answer in time.")
	}
	p.Warn("origin failed", "origin", o.Name, "error", err)
	return message.Refuse(http.StatusBadGateway, "origin_failed",
		"The server behind this one gave no valid answer.")
}

// commonHead is how long a head every server takes, in bytes.
const commonHead = 8 << 10

// blames reports whether a failure speaks against the server. One that a client can bring about
// does not: else a few requests would take a sound server out of its group.
func (p *Forward) blames(b *answerBody, err error) bool {
	u := b.upload
	switch {
	case err == bufio.ErrBufferFull, err == message.ErrSyntax, err == message.ErrCount,
		err == http1.ErrFraming, err == http1.ErrInterim:
		return false // it answered, perhaps with too much of what the client had said
	case http1.TimedOut(err):
		// The client may have used up the time for the whole with its body.
		return b.due.IsZero() || p.in.Length == 0 || time.Now().Before(b.due)
	case err == http1.ErrAnswer, err == errUpgrade:
		return true
	case b.link.Kept() && err == io.EOF:
		return false // it was idle for too long
	case u != nil && (!u.taken.Load() || u.failed.Load()):
		// An origin that has enough of a body, or of waiting for it, may close without an answer
		return false
	}
	// So may one that does not like the head
	return p.in.Size <= commonHead && isCommon(p.in.Method)
}

// isIdempotent reports whether a request may be sent again when it is unknown what became of it.
func isIdempotent(method []byte) bool {
	switch string(method) {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// isCommon reports whether every server knows the method.
func isCommon(method []byte) bool {
	return isIdempotent(method) || string(method) == http.MethodPost ||
		string(method) == http.MethodPatch
}

// errUnsent means that nothing of a request could be written to a connection that had been used
// before.
var errUnsent = errors.New("edge: the origin has closed a kept connection")

// requestHeads hold heads on their way to origins.
var requestHeads = sync.Pool{New: func() any { return new([]byte) }}

// exchangeOn sends the request on one connection and reads the head of the answer. io.EOF means
// that the connection ended before any byte of it.
func (p *Forward) exchangeOn(o *upstream.Origin, b *answerBody, now time.Time) error {
	l := b.link
	if !l.Reused { // connecting took its time
		now = time.Now()
	}
	if err := l.SetDeadline(now.Add(b.within(now))); err != nil {
		return err
	}
	p.on.Expect(o.Ahead())
	head := requestHeads.Get().(*[]byte)
	*head = p.appendHead(slices.Grow((*head)[:0], p.in.Size+commonHead/8), o)
	var err error
	if p.in.Length == 0 || p.held != nil {
		if p.held != nil {
			*head = append(*head, *p.held...)
		}
		p.watch(b)
		var sent int
		sent, err = l.Ask(*head)
		requestHeads.Put(head)
		if err != nil && sent == 0 && l.Reused {
			return errUnsent
		}
	} else {
		// The body may be long in coming. So the head goes first: what comes on the connection from
		// then on answers it.
		l.Look()
		sent, failed := l.Conn.Write(*head)
		requestHeads.Put(head)
		if failed != nil && sent == 0 && l.Reused {
			return errUnsent
		}
		wait := b.due
		// The origin's answer to the head decides whether the client sends its body
		if p.in.ExpectContinue {
			p.on.StartBody(inviteTime, time.Time{})
			if wait = time.Now().Add(inviteTime); !b.due.IsZero() && b.due.Before(wait) {
				wait = b.due
			}
		}
		u := &upload{on: p.on, length: p.in.Length, link: l, w: http1.WriterTo(l.Conn),
			fault: p.Fault, limit: int64(p.Bounds.BodyBytes),
			within: b.within, due: b.due, announced: p.announced, slot: p.slot}
		p.on.TakeBody(u.pause, u.resume)
		b.upload = u
		if !p.in.ExpectContinue && p.in.Length != message.LengthChunked &&
			p.in.Length <= inlineBody {
			if u.run(); u.byClient {
				return u.err
			}
			err = u.err
		} else {
			u.start(wait)
		}
		l.Listen()
		p.watch(b)
	}
	if err != nil {
		// The origin may have answered and closed before it read everything: what it said still
		// counts.
		_ = l.SetReadDeadline(time.Now().Add(time.Second))
	}
	b.Reader = l.Reader
	failed := p.readAnswer(b)
	// Else the origin waits for the rest of this request, and would take the next one for it
	b.reuse = b.reuse && !l.Early && err == nil
	if failed != nil && err != nil && b.upload != nil {
		return err
	}
	return failed
}

// sourceBusy is the answer to a request of a source that has used up its share of the slots.
var sourceBusy = message.Refuse(http.StatusServiceUnavailable, "origin_busy",
	"Too many requests from this address are under way.").With("Retry-After", "1")

// busy is the answer to a request for which no server has room.
var busy = message.Refuse(http.StatusServiceUnavailable, "origin_busy",
	"The servers behind this one are busy.").With("Retry-After", "1")
