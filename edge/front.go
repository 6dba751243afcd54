package edge

import (
	"net"
	"net/netip"
	"time"

	"sluice/edge/message"
	"sluice/edge/passage"
	"sluice/edge/screen"
)

// A Front is the client's end of one request, in whatever protocol the client speaks: what is passed on to an origin and back goes over
// passage.Exchange, the rest is what the edge asks for itself. screen.Exchange is that of HTTP/1.1; Handle takes any.
type Front interface {
	passage.Exchange
	// Peer is whom the connection comes from; not named: a PROXY header says that this is nobody's to know. Secure is over TLS.
	Peer() (peer netip.Addr, named bool)
	Secure() bool
	// Going reports whether the connection is to end so that others have room.
	Going() bool
	// Block says until when whoever sends on the connection is refused; the zero time: he is not.
	Block(until time.Time)
	// Close says that the connection ends with the answer, and Drop that nothing more is read of the request either.
	Close()
	Drop()
	// SkipBody is called before an answer, and gets a body out of the way that nobody has taken. It reports whether that took time.
	SkipBody() (waited bool)
	// Respond sends an answer of the edge's own, or sees to that, and Begun reports whether an answer has begun to go.
	Respond(*message.Reply) error
	Begun() bool
	// Wrote is when the client was last written to.
	Wrote() time.Time
	// Hijack has run called with the connection after an answer that switches protocols, now or when the request is handled.
	Hijack(run func(net.Conn))
}

// Handle is the life of a request that f has brought: it is counted as received, judged, passed on or answered, logged, and counted once its
// answer is over. After it f is not asked anything more, but for what Hijack was told to run.
func (s *Server) Handle(f Front) {
	x := s.exchanges.Get().(*exchange)
	x.begin(f)
	if !x.handle() {
		x.end(x.failed)
	}
}

// A screened exchange is one with its front, a connection of HTTP/1.1.
type screened struct {
	exchange
	end screen.Exchange
}

func newScreened(s *Server) *screened {
	w := new(screened)
	w.exchange.of(s)
	w.whole, w.end.Owner = w, w
	return w
}

// beginScreened, handleScreened and endScreened are Handle in three steps, as fasthttp has them: it writes an answer of the edge's own after its
// handler has returned.
func (s *Server) beginScreened(on *screen.Screen) *screen.Exchange {
	w := s.screened.Get().(*screened)
	w.end.Reset(on)
	w.begin(&w.end)
	return &w.end
}

func handleScreened(e *screen.Exchange) { e.Owner.(*screened).handle() }

func endScreened(e *screen.Exchange, failed bool) { e.Owner.(*screened).exchange.end(failed) }
