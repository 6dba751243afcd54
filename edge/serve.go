package edge

import (
	"net"
	"net/netip"
	"time"

	"sluice/counter"
	"sluice/edge/limiter/shedding"
	"sluice/edge/message"
	"sluice/edge/proxy"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

// An Exchange is the life of one request and its answer. It is used again for the next, of
// whichever connection.
type Exchange struct {
	server *Server
	snap   *snapshot
	now    time.Time // the one instant at which the request is judged

	front            Front // the client's end of it
	*message.Request       // the request as it came
	peer             netip.Addr
	named            bool           // the peer is: see Front
	whole            *http1Exchange // that this is a part of; nil: of nothing
	met              bool           // source, target and rules are known
	judged           bool           // and admitted
	failed           bool           // an answer of the edge's own could not be sent

	sender                    // the exchange that it belongs to
	decision   rules.Decision // what the rules say
	forwarding proxy.Forward  // to the origin and back
	reply      reply          // what the client gets
	done       bool           // it is counted, as answered or aborted
	retry      int64          // what a refusal's Retry-After says
	// Of the origin's answer, while something waits to be counted; 0: none yet
	status int
	tags   []message.Field // what is added for the origin

	buf, values []byte            // what the reply points to
	read        func(part []byte) // decision.ReadAnswer

	told []Told // who is told which status an origin answers with

	watchers []Watcher       // those of the request,
	attempts []proxy.Watcher // and as the proxy knows them
	outcome  *Outcome        // for observers; nil: there were none yet

	id     []byte // its name, in idText; nil: it has none yet
	idText [maxRequestID]byte
}

// A sender is the client that a request comes from, and its source.
type sender struct {
	client  netip.Addr
	source  counter.Source // the client's
	chain   []netip.Addr   // addresses believed, the nearest first
	trusted bool           // the peer is
	allowed bool           // the client is never limited
	barred  bool           // the client is always refused
	spared  string         // a method: rules that do not name it do not count; "": all may
	verdict string         // of a gate; "": none has given one
	checks  bool           // it has another request checked, and nothing is passed on (check_path)

	covering []counter.Source // wider ones of which operators have said something
	keys     []key.Counted    // by which rules count the request
	keyText  []byte           // of one of them
	keyStart []byte
}

func newExchange(s *Server) *Exchange { return new(Exchange).of(s) }

// of makes an exchange one of a server's, once.
func (x *Exchange) of(s *Server) *Exchange {
	x.server, x.read = s, x.decision.ReadAnswer
	x.forwarding.Bounds, x.forwarding.Warn, x.forwarding.Fault, x.forwarding.Counted,
		x.forwarding.Ours = &s.bounds.proxy, s.warn, s.fault, x.counted, x.ours
	return x
}

// begin counts a request as received and takes what its life needs.
func (x *Exchange) begin(f Front) {
	s := x.server
	s.stats.received.Add(1)
	x.id = nil
	x.front, x.snap, x.now = f, s.snap.Load(), time.Now()
	x.Request = f.Request()
	x.peer, x.named = f.Peer()
	x.sender = sender{chain: x.chain[:0], covering: x.covering[:0], keys: x.keys[:0],
		keyText: x.keyText[:0], keyStart: x.keyStart[:0]}
	x.values, x.told = x.values[:0], x.told[:0]
	x.watchers, x.attempts = x.watchers[:0], x.attempts[:0]
	x.done, x.met, x.judged, x.failed, x.status = false, false, false, false, 0
}

// end ends a request whose answer is written, or could not be.
func (x *Exchange) end(failed bool) {
	x.count(failed)
	x.release()
}

func (x *Exchange) release() {
	s := x.server
	if d := &x.decision; d.Held { // a body took longer than its answer, or what is held never was
		d.PriceBody(x.front.Got())
		d.PriceRead(x.status, &s.stats.answerCosts)
		s.limiter.Settle(&d.Decision, x.status, time.Now())
	}
	s.limiter.Leave(&x.decision.Decision)
	x.decision.Reset()
	x.forwarding.Release()
	x.snap, x.front, x.Request = nil, nil, nil
	if x.whole != nil {
		x.whole.end.Release()
		s.pools.http1.Put(x.whole)
		return
	}
	s.pools.exchanges.Put(x)
}

// handle is the life of a request, from its checked head to its answer. It reports whether it is
// ended elsewhere.
func (x *Exchange) handle() (hijacked bool) {
	defer func() {
		if p := recover(); p != nil {
			x.panicked(p)
		}
	}()
	switch {
	case x.Refused == nil:
		x.serve()
	case x.judged: // fasthttp does not take it, although the rules do
		x.server.limiter.Leave(&x.decision.Decision)
		x.turnAway(x.Refused)
	default:
		x.refuseForm()
	}
	return x.finish()
}

// refuseForm answers what is no request.
func (x *Exchange) refuseForm() {
	if x.Broken {
		x.turnAway(x.Refused)
	} else {
		x.malformed(x.Refused)
	}
}

// serve is the life of a request up to its answer.
func (x *Exchange) serve() {
	if !x.judged && !x.admit() {
		x.server.limiter.Leave(&x.decision.Decision)
		return
	}
	// Its client has changed its mind since its stream was judged: it goes to no origin
	if x.judged && x.whole == nil && !x.decision.Held && x.front.Gone() {
		x.server.limiter.Leave(&x.decision.Decision)
		x.respond(clientGone)
		return
	}
	status := x.forward()
	x.server.limiter.Arrived(&x.decision.Decision)
	x.settle(status)
	x.limitHeaders()
	x.verdictHeader()
}

// tagged is what a request that rules tag carries to the origin.
func (x *Exchange) tagged() []message.Field {
	x.tags = x.decision.Tags(x.tags[:0])
	return x.tags
}

// settle counts what had to wait for the answer: for its status, 0 if there was none, and for the
// cost in it. Where a body that counts is still under way, that is left to release.
func (x *Exchange) settle(status int) {
	d := &x.decision
	if !d.Held {
		return
	}
	if x.status = status; status != 0 {
		d.PriceAnswer(&x.forwarding.Answer().Head)
	}
	reads := d.ReadsAnswer()
	if reads && status != 0 {
		d.OpenAnswer(&x.forwarding.Answer().Head)
	}
	if d.AwaitsBody() {
		if !x.forwarding.BodyDone() {
			return
		}
		d.PriceBody(x.front.Got())
	}
	if reads && status != 0 {
		return
	}
	d.PriceRead(status, &x.server.stats.answerCosts)
	x.server.limiter.Settle(&d.Decision, status, time.Now())
}

// forward passes the request on, and begins the reply: with the origin's answer, which is relayed
// in the end, or with one of the edge's own. It returns the status of the origin's answer, or 0 if
// there is none.
func (x *Exchange) forward() int {
	now := x.now
	if x.decision.Delay > 0 {
		now = time.Now() // it has waited for its turn
	}
	if no := x.forwarding.Pass(x.front, proxy.Order{Origins: x.snap.origins, Now: now,
		Source: x.source, Free: x.allowed, Peer: x.peer, Secure: x.front.Secure(), Chain: x.chain,
		ID:     x.requestID(),
		Counts: x.decision.Held, Tags: x.tagged(), Level: x.level(), Queue: x.decision.Queue,
		Watchers: x.attempts, Read: x.reader()}); no != nil {
		x.server.limiter.Leave(&x.decision.Decision)
		x.respond(no)
		return 0
	}
	a := x.forwarding.Answer()
	x.reply = reply{Reply: message.Reply{Status: a.Status, Fields: x.reply.Fields[:0]},
		length: a.Length}
	if !a.Dated() {
		x.reply.add("Date", message.Date(time.Now())) // when it came (RFC 9110, 6.6.1)
	}
	return a.Status
}

// reader takes the answer's body as it passes; nil: no rule needs it.
func (x *Exchange) reader() func(part []byte) {
	if !x.decision.Held || !x.decision.ReadsAnswer() {
		return nil
	}
	return x.read
}

// level is what the request is to an origin that sheds load. Sources that are never limited come
// last.
func (x *Exchange) level() shedding.Level {
	if x.allowed {
		return shedding.Critical
	}
	return x.decision.Level
}

// finish ends every request: its body must not be taken for the next request, and its answer is
// sent, or handed over to be sent. It reports whether the exchange lives on in a tunnel, which ends
// it.
func (x *Exchange) finish() (hijacked bool) {
	s, r := x.server, &x.reply
	if x.front.SkipBody() {
		r.At = time.Time{}
	}
	if s.leaving.draining.Load() || x.front.Going() {
		x.front.Last()
	}
	if r.from != fromOrigin {
		for _, answer := range x.snap.answers {
			answer(x)
		}
	}
	r.add("X-Request-ID", x.requestID())
	if r.from == fromOrigin {
		for _, t := range x.told {
			t.Answered(r.Status)
		}
	}
	if x.snap.hsts != nil && x.front.Secure() {
		r.add("Strict-Transport-Security", x.snap.hsts)
	}
	if len(x.snap.answered) > 0 {
		x.tell()
	}
	if r.from != fromOrigin {
		x.failed = x.front.Respond(x.answered()) != nil
		return false
	}
	tunnel, err := x.forwarding.Relay(r.Fields)
	if x.count(err != nil); err != nil {
		x.front.Abort()
	}
	if !tunnel {
		return false
	}
	x.front.Hijack(func(client net.Conn) {
		defer x.release()
		s.stats.tunnels.Add(1)
		defer s.stats.tunnels.Add(-1)
		x.forwarding.Tunnel(client)
	})
	return true
}

// count counts the request as answered or aborted, once.
func (x *Exchange) count(failed bool) {
	if x.done {
		return
	}
	x.done = true
	if len(x.watchers) > 0 {
		x.endWatch(failed)
	}
	if failed {
		x.server.stats.aborted.Add(1)
		return
	}
	x.server.stats.answered(x.reply.Status, x.reply.from)
	x.server.stats.seconds.Observe(int64(x.front.Wrote().Sub(x.now)))
}

// counted adds the names of headers that rules have looked at.
func (x *Exchange) counted(names *message.Names) {
	x.decision.AddHeaders(names)
	for _, name := range x.snap.tags {
		names.Add(name)
	}
}

// panicked keeps a fault within its request. What it used is not used again.
func (x *Exchange) panicked(p any) {
	s := x.server
	s.fault(p)
	defer func() {
		if p := recover(); p != nil { // once more, in what was to be sent to the client
			s.fault(p)
			x.count(true)
			x.front.Abort() // it gets no answer
		}
	}()
	s.limiter.Settle(&x.decision.Decision, 0, time.Now())
	x.forwarding.Cut()
	x.front.Close()
	switch {
	case x.done:
	case x.front.Begun():
		x.count(true)
	default:
		x.front.Drop()
		x.front.Last()
		x.respond(proxy.Mistake)
		x.finish()
	}
}

func (s *Server) fault(p any) {
	s.stats.panics.Add(1)
	s.warn("fault in the edge", "panic", p)
}
