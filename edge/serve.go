package edge

import (
	"bytes"
	"net"
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/counter"
	"sluice/edge/accesslog"
	"sluice/edge/http1"
	"sluice/edge/limiter/shedding"
	"sluice/edge/message"
	"sluice/edge/passage"
	"sluice/edge/rules"
	"sluice/edge/screen"
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

	asker                    // who asks
	decision rules.Decision  // what the rules say
	passage  passage.Passage // to the origin and back
	reply    reply           // what the client gets
	done     bool            // it is counted, as answered or aborted
	status   int             // of the origin's answer, while something waits to be counted; 0: none yet
	tags     []message.Field // what the origin is told of the request

	buf, values []byte // what the reply points to

	number uint64 // of the request, at this edge
	id     []byte // its name, in idText; nil: it has none yet
	idText [maxRequestID]byte
}

// An asker is who a request comes from.
type asker struct {
	client  netip.Addr
	source  counter.Source // the client's
	chain   []netip.Addr   // addresses believed, the nearest first
	trusted bool           // the peer is
	allowed bool           // the client is never limited
	barred  bool           // the client is always refused

	covering []counter.Source // wider ones of which operators have said something
}

func newExchange(s *Server) *exchange {
	x := &exchange{server: s}
	x.passage.Warn, x.passage.Counted, x.passage.Ours = s.warn, x.counted, x.ours
	return x
}

// begin counts a request as received and takes what its life needs.
func (s *Server) begin(on *screen.Screen) *screen.Incoming {
	number := s.stats.received.Add(1)
	x, c := s.pool.Get().(*exchange), on.Conn
	x.screened, x.snap, x.conn, x.now = on, s.snap.Load(), c, time.Now()
	x.number, x.id = number, nil
	x.Incoming.Reset()
	x.asker = asker{chain: x.chain[:0], covering: x.covering[:0]}
	x.values = x.values[:0]
	x.done, x.status = false, 0
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
	if d := &x.decision; d.Held { // a body took longer than its answer, or what is held never was
		d.PriceBody(x.Body.Got)
		s.limiter.Settle(&d.Decision, x.status, time.Now())
	}
	s.limiter.Leave(&x.decision.Decision)
	x.decision.Reset()
	x.passage.Release()
	x.snap, x.conn, x.screened, x.Body.Reader = nil, nil, nil, nil
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
		x.server.limiter.Leave(&x.decision.Decision)
		x.Close = x.Close || x.ExpectContinue // it may have begun to send its body, or not
		return
	}
	status := x.forward()
	x.server.limiter.Arrived(&x.decision.Decision)
	x.Close = x.Close || x.ExpectContinue && !x.BodyRead // nor is that known here
	x.settle(status)
	x.limitHeaders()
	x.verdictHeader()
}

// tagged is what the origin is told of a request that rules tag.
func (x *exchange) tagged() []message.Field {
	x.tags = x.decision.Tags(x.tags[:0])
	return x.tags
}

// settle counts what had to wait for the answer: for its status, 0 if there was none, and what it says of the request's cost. Where a body whose
// length counts is still under way, that is left to release.
func (x *exchange) settle(status int) {
	d := &x.decision
	if !d.Held {
		return
	}
	if x.status = status; status != 0 {
		d.PriceAnswer(&x.passage.Answer().Head)
	}
	if d.AwaitsBody() {
		if !x.passage.BodyDone() {
			return
		}
		d.PriceBody(x.Body.Got)
	}
	x.server.limiter.Settle(&d.Decision, status, time.Now())
}

// forward passes the request on, and begins the reply: with the origin's answer, which is relayed in the end, or with one of the edge's own.
// It returns the status of the origin's answer, or 0 if there is none.
func (x *exchange) forward() int {
	now := x.now
	if x.decision.Delay > 0 {
		now = time.Now() // it has waited for its turn
	}
	if no := x.passage.Pass(x.screened, passage.Order{Origins: x.snap.origins, Now: now, Source: x.source, Free: x.allowed, Chain: x.chain, ID: x.requestID(),
		Counts: x.decision.Held, Tags: x.tagged(), Level: x.level(), Queue: x.decision.Queue}); no != nil {
		x.server.limiter.Leave(&x.decision.Decision)
		x.say(no)
		return 0
	}
	a := x.passage.Answer()
	x.reply = reply{status: a.Status, fields: x.reply.fields[:0], length: a.Length}
	if !a.Dated() {
		x.reply.add("Date", x.server.dateValue(time.Now())) // when it came (RFC 9110, 6.6.1)
	}
	return a.Status
}

// level is what the request is to an origin that sheds load. Who is never limited goes last.
func (x *exchange) level() shedding.Level {
	if x.allowed {
		return shedding.Critical
	}
	return x.decision.Level
}

// finish is the end of every request: its body must not be taken for the next request, and its answer is sent, or handed to
// fasthttp, which sends it.
func (x *exchange) finish() {
	s, c, r := x.server, x.conn, &x.reply
	if !x.BodyRead && x.Length != 0 {
		x.screened.SkipBody()
	}
	if s.draining.Load() || c.Going.Load() != 0 {
		x.Close = true
		c.Linger.Store(true)
	}
	r.add("X-Request-ID", x.requestID())
	if s.note != nil {
		x.log()
	}
	if r.from != fromOrigin {
		x.respond()
		return
	}
	tunnel, err := x.passage.Relay(r.fields)
	x.count(err != nil)
	if x.Close = x.Close || err != nil; !tunnel {
		return
	}
	x.screened.Detach() // it lives on in the tunnel
	x.ctx.HijackSetNoResponse(true)
	x.ctx.Hijack(func(net.Conn) {
		defer s.release(x)
		s.stats.tunnels.Add(1)
		defer s.stats.tunnels.Add(-1)
		x.passage.Tunnel()
	})
}

// count counts the request as answered or aborted, once.
func (x *exchange) count(failed bool) {
	switch {
	case x.done:
		return
	case failed:
		x.server.stats.aborted.Add(1)
	default:
		x.server.stats.answered(x.reply.status, x.reply.from)
		x.server.stats.seconds.Observe(int64(x.conn.Wrote().Sub(x.now)))
	}
	x.done = true
}

// counted adds the names of headers by which rules, or who verifies tokens, have told the request apart.
func (x *exchange) counted(names *message.Names) {
	x.decision.AddHeaders(names)
	if v := x.snap.tokens; v != nil && v.Header() != "" {
		names.Add([]byte(v.Header()))
	}
	for _, name := range x.snap.tags {
		names.Add(name)
	}
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
	x.passage.Cut()
	x.Close = true
	switch {
	case x.done:
	case x.screened.Phase == screen.Relayed:
		x.count(true)
	default:
		x.BodyRead = true
		x.conn.Linger.Store(true)
		x.say(passage.Mistake)
		x.finish()
	}
}

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
	if message.Bodyless(x.IsHead, x.reply.status) {
		e.Length = 0
	}
	e.ID, e.Edge = x.requestID(), x.server.name
	switch d := &x.decision; {
	case x.barred:
		e.Verdict = "denied"
	case d.Cause != nil:
		cause, r := d.Cause, d.RuleOf(d.Cause)
		e.Rule, e.Verdict, e.Limit, e.Window, e.Until = r.Config.Name, d.Verdict.String(), cause.Rule.Counter.Limit, cause.Rule.Counter.Window, cause.Until
		e.Policy = r.PolicyOf(d.LimitOf(cause))
		if cause.Crowded {
			e.Limit, e.Window, e.Estimate = uint32(r.Config.Concurrency), 0, float64(r.Config.Concurrency)
			e.Policy = r.ConcurrencyPolicy()
		} else if cause.Ask != nil {
			e.Estimate = cause.Ask.Estimate
		} else if v, known := x.server.limiter.Peek(cause.Rule, cause.Source, x.now); known { // a blocked source's counter is not asked
			e.Estimate = v.Estimate
		}
	default:
		if r := d.Opened(); r != nil {
			e.Rule, e.Verdict = r.Config.Name, "open"
		}
	}
	x.server.note(&e)
}
