package edge

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"sluice/edge/front"
	"sluice/edge/http2"
	"sluice/edge/message"
	"sluice/edge/proxy"
	"sluice/edge/rules"
)

// A Front is the client's end of one request, in whatever protocol the client speaks: what is
// passed on to an origin and back goes over proxy.Exchange, the rest is what the edge itself needs.
// front.Exchange is that of HTTP/1.1; Handle takes any.
type Front interface {
	proxy.Exchange
	// Peer is the address that the connection comes from; not named: a PROXY header withholds it.
	// Secure is over TLS.
	Peer() (peer netip.Addr, named bool)
	Secure() bool
	// Redirect is the port of the https address that the listener sends every request to; 0: it
	// serves them.
	Redirect() uint16
	// Going reports whether the connection is to end so that others have room.
	Going() bool
	// Block notes until when the client is refused; the zero time: it is not. Of several clients that
	// share a connection, the next request may be another's.
	Block(until time.Time, shared bool)
	// Close ends the connection after the answer and after what else is under way on it, in order.
	// Drop reads nothing more of the request; a connection that carries only this one ends as well.
	Close()
	Drop()
	// SkipBody is called before an answer, and skips a body that has not been taken. It reports
	// whether that took time.
	SkipBody() (waited bool)
	// Respond sends an answer of the edge's own, or sees to that, and Begun reports whether an
	// answer has begun to go.
	Respond(*message.Reply) error
	Begun() bool
	// Wrote is when the client was last written to.
	Wrote() time.Time
	// Hijack has run called with the connection after an answer that switches protocols, now or
	// when the request is handled.
	Hijack(run func(net.Conn))
}

// Handle is the life of a request that f has brought: it is counted as received, judged, passed on
// or answered, logged, and counted once its answer is over. After it f is not called any more,
// except for the function given to Hijack.
func (s *Server) Handle(f Front) {
	x := s.pools.exchanges.Get().(*Exchange)
	x.begin(f)
	x.Run()
}

// Start is the first half of Handle, for a front that reads requests that come together: up to the
// verdict and, where that is a refusal, to the end. What it returns is the other half, which may
// have to wait; nil: there is none. A request whose verdict may have to wait is served there from
// beginning to end.
func (s *Server) Start(f Front) http2.Continuation {
	x := s.pools.exchanges.Get().(*Exchange)
	x.begin(f)
	if !x.settled() {
		return x
	}
	x.end(x.failed)
	return nil
}

// settled judges a request whose verdict need not wait, and reports whether it is answered. The
// caller ends it then.
func (x *Exchange) settled() (ended bool) {
	defer func() {
		if p := recover(); p != nil {
			x.panicked(p)
			ended = true
		}
	}()
	switch {
	case x.Refused != nil && slices.ContainsFunc(x.snap.rules.Everything, (*rules.Rule).Stalls):
		return false
	case x.Refused != nil:
		x.refuseForm()
	case x.gatesWait():
		return false
	case !x.meet():
	case x.stalls():
		return false
	case x.decide():
		x.judged = true
		return false
	default:
		x.server.limiter.Leave(&x.decision.Decision)
	}
	x.finish()
	return true
}

// Run is the other half.
func (x *Exchange) Run() {
	if !x.handle() {
		x.end(x.failed)
	}
}

// An http1Exchange is an exchange with its front, a connection of HTTP/1.1.
type http1Exchange struct {
	Exchange
	end front.Exchange
}

func newHTTP1Exchange(s *Server) *http1Exchange {
	w := new(http1Exchange)
	w.Exchange.of(s)
	w.whole, w.end.Owner = w, w
	return w
}

// beginHTTP1, judgeHTTP1, handleHTTP1 and endHTTP1 are Handle in steps, as fasthttp has them: it
// writes an answer of the edge's own after its handler has returned. Only a client that is blocked
// is judged before.
func (s *Server) beginHTTP1(on *front.HeadFilter) *front.Exchange {
	w := s.pools.http1.Get().(*http1Exchange)
	w.end.Reset(on)
	w.begin(&w.end)
	return &w.end
}

func judgeHTTP1(e *front.Exchange) (answered bool) { return e.Owner.(*http1Exchange).settled() }

func handleHTTP1(e *front.Exchange) { e.Owner.(*http1Exchange).handle() }

func endHTTP1(e *front.Exchange, failed bool) { e.Owner.(*http1Exchange).Exchange.end(failed) }
