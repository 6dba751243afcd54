package edge

import (
	"bytes"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/counter"
	"sluice/edge/accesslog"
	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/edge/screen"
	"sluice/edge/upstream"
)

// An exchange is the life of one request and its answer. It is used again for the next, of whichever connection.
type exchange struct {
	server *Server
	snap   *snapshot
	now    time.Time // the one instant at which the request is judged

	screened        *screen.Screen
	conn            *screen.Client
	ctx             *fasthttp.RequestCtx // while its handler runs
	screen.Incoming                      // the request as it came
	bodyRead        bool                 // somebody has begun to read its body

	asker                   // who asks
	decision rules.Decision // what the rules say
	passage                 // to the origin and back
	reply    reply          // what the client gets
	sent     bool           // the reply, or a part of it
	counted  bool           // as answered or aborted

	buf, values []byte // what the reply points to
}

// An asker is who a request comes from.
type asker struct {
	client  netip.Addr
	source  counter.Source // the client's
	chain   []netip.Addr   // addresses believed, the nearest first
	trusted bool           // the peer is
	allowed bool           // the client is never limited
}

// A passage is a request's way to an origin, and back.
type passage struct {
	body      answerBody       // the answer's, and the link that it comes by
	open      *answerBody      // is it, until it is over
	watch     watch            // of the client, meanwhile
	answer    *http1.Answer    // while it is made the client's
	places    *upstream.Places // one of them is this request's; nil: none is
	upgrade   []byte           // the protocol that the origin is asked to switch to; nil: none
	trailers  bool             // the client takes those of the answer
	announced message.Names    // trailers of the request that may go on
	held      *[]byte          // the request's body, read before it is sent on; nil: it is not held
}

// begin counts a request as received and takes what its life needs.
func (s *Server) begin(on *screen.Screen) *screen.Incoming {
	s.stats.received.Add(1)
	x, c := s.pool.Get().(*exchange), on.Conn
	x.screened, x.snap, x.conn, x.now = on, s.snap.Load(), c, time.Now()
	x.Incoming.Reset()
	x.asker = asker{chain: x.chain[:0]}
	x.values = x.values[:0]
	x.bodyRead, x.sent, x.counted = false, false, false
	c.WriteAt = time.Time{}
	on.Exchange = x
	return &x.Incoming
}

// end is the end of a request whose answer fasthttp has written.
func (s *Server) end(on *screen.Screen, failed bool) {
	x := on.Exchange.(*exchange)
	x.count(failed)
	s.release(x)
}

func (s *Server) release(x *exchange) {
	s.limiter.Settle(&x.decision.Decision, 0, x.now) // what is still held never was
	x.decision.Reset()
	if x.answer != nil {
		answerHeads.Put(x.answer)
		x.answer = nil
	}
	if x.held != nil {
		heldBodies.Put(x.held)
		x.held = nil
	}
	x.snap, x.conn, x.screened, x.open, x.Body.Reader, x.reply.stream = nil, nil, nil, nil, nil, nil
	s.pool.Put(x)
}

// handle is fasthttp's handler: the life of a request, from its checked head to its answer.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	on := screen.Of(ctx)
	x := on.Exchange.(*exchange)
	x.ctx, on.Phase = ctx, screen.Handled
	defer func() {
		if p := recover(); p != nil {
			s.panicked(x, p)
		}
		if x.Close {
			ctx.SetConnectionClose()
		}
		x.ctx = nil
	}()
	if x.Refused == nil && !x.agrees(ctx) {
		x.Refused = http1.BadRequest
	}
	switch {
	case x.Refused == nil:
		x.serve()
	case x.Broken:
		x.turnAway(x.Refused)
	default:
		x.malformed(x.Refused)
	}
	x.finish()
}

// refuse is fasthttp's handler of heads that it does not take although the screen has shown them.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, _ error) {
	screen.Of(ctx).Request.Refused = http1.BadRequest
	s.handle(ctx)
}

// agrees reports whether fasthttp has read the head as the screen has.
func (x *exchange) agrees(ctx *fasthttp.RequestCtx) bool {
	h := &ctx.Request.Header
	x.Close = x.Close || h.ConnectionClose()
	return bytes.Equal(h.Method(), x.Method) && bytes.Equal(h.RequestURI(), x.Target) && bytes.Equal(h.Host(), x.HostLine)
}

// serve is the life of a request up to its answer.
func (x *exchange) serve() {
	if x.Length != 0 {
		x.ctx.Request.SetBodyStream(&x.Body, int(x.Length))
	}
	if !x.admit() {
		x.Close = x.Close || x.ExpectContinue // it may have begun to send its body, or not
		return
	}
	status := x.forward()
	x.Close = x.Close || x.ExpectContinue && !x.bodyRead // nor is that known here
	if x.decision.Held {
		x.server.limiter.Settle(&x.decision.Decision, status, time.Now())
	}
	x.limitHeaders()
	x.verdictHeader()
	if x.reply.stream != nil && x.body.Framing != http1.Fixed {
		x.chunks()
	}
}

// finish is the end of every request: its body must not be taken for the next request, and its answer is sent, or handed to
// fasthttp, which sends it.
func (x *exchange) finish() {
	s, c, r := x.server, x.conn, &x.reply
	if !x.bodyRead && x.Length != 0 {
		x.skipBody()
	}
	if s.draining.Load() || c.Going.Load() != 0 {
		x.Close = true
		c.Linger.Store(true)
	}
	if s.note != nil {
		x.log()
	}
	if r.from != fromOrigin {
		x.respond()
		return
	}
	for _, f := range r.fields {
		r.head = append(append(append(append(r.head, f.Name...), ": "...), f.Value...), "\r\n"...)
	}
	switch {
	case r.status == http.StatusSwitchingProtocols:
		r.head = append(r.head, "Connection: Upgrade\r\nUpgrade: "...)
		r.head = append(append(r.head, x.upgrade...), "\r\n"...)
	case x.Close:
		r.head = append(r.head, "Connection: close\r\n"...)
	case x.HTTP10:
		r.head = append(r.head, "Connection: keep-alive\r\n"...)
	}
	r.head = append(r.head, "\r\n"...)
	x.screened.Phase = screen.Relayed
	err := x.send()
	x.count(err != nil)
	x.Close = x.Close || err != nil
	if x.open == nil {
		return
	}
	if err != nil {
		x.over()
		return
	}
	x.screened.Detach() // it lives on in the tunnel
	x.ctx.HijackSetNoResponse(true)
	x.ctx.Hijack(func(net.Conn) {
		defer s.release(x)
		x.tunnel()
	})
}

// count counts the request as answered or aborted, once.
func (x *exchange) count(failed bool) {
	switch {
	case x.counted:
		return
	case failed:
		x.server.stats.aborted.Add(1)
	default:
		x.server.stats.answered(x.reply.status, x.reply.from)
	}
	x.counted = true
}

// send relays the origin's answer. A body that is all there goes with its head, and the connection to the origin is free before the
// client has read a byte.
func (x *exchange) send() (err error) {
	r := &x.reply
	x.sent = true
	switch b := r.stream; {
	case b == nil:
		_, err = x.conn.Write(r.head)
	case b.Framing == http1.Fixed && b.Left <= int64(b.Reader.Buffered()):
		part, _ := b.Reader.Peek(int(b.Left))
		r.head = append(r.head, part...)
		b.Discard(len(part))
		x.conn.WriteAt = x.over()
		_, err = x.conn.Write(r.head)
	default:
		if err = b.send(r.head, b.Framing != http1.Fixed && !x.HTTP10); err != nil {
			b.reuse = false
			if x.HTTP10 && b.Framing != http1.Fixed {
				x.conn.Reset() // where the connection's end is the body's, one in order would pass the part off as the whole
			}
		}
		x.over()
	}
	return err
}

// over ends the exchange with the origin, and returns when that was.
func (x *exchange) over() time.Time {
	x.open = nil
	if x.watch.stop() {
		x.body.reuse = false
	}
	ended := x.body.finish()
	x.leave()
	return ended
}

// panicked keeps a fault within its request. What it used is not used again.
func (s *Server) panicked(x *exchange, p any) {
	s.fault(p)
	defer func() {
		if p := recover(); p != nil { // once more, in what the client was to be told
			s.fault(p)
			x.count(true)
			x.Close, x.screened.Phase = true, screen.Relayed // it is told nothing: not what fasthttp would say of its own
		}
	}()
	s.limiter.Settle(&x.decision.Decision, 0, time.Now())
	if x.open != nil { // between origin and client, and nobody else will end it
		x.body.reuse = false
		x.over()
	}
	x.Close = true
	switch {
	case x.counted:
	case x.sent:
		x.count(true)
	default:
		x.bodyRead = true
		x.conn.Linger.Store(true)
		x.say(mistake)
		x.finish()
	}
}

var mistake = message.Refuse(http.StatusInternalServerError, "internal", "This server made a mistake.")

func (s *Server) fault(p any) {
	s.stats.panics.Add(1)
	s.warn("fault in the edge", "panic", p)
}

// log writes the request down.
func (x *exchange) log() {
	e := accesslog.Entry{Client: x.client, At: x.now, Head: &x.Request.Request, Version: x.Version,
		Status: x.reply.status, Length: x.reply.length, From: x.reply.from.String(), Limited: x.reply.from == fromLimit}
	if !e.Client.IsValid() {
		e.Client = x.conn.Peer // it was refused before its client was known
	}
	if bodyless(x.IsHead, x.reply.status) {
		e.Length = 0
	}
	if cause := x.decision.Cause; cause != nil {
		e.Rule, e.Verdict = x.decision.RuleOf(cause).Config.Name, x.decision.Verdict.String()
	}
	x.server.note(&e)
}
