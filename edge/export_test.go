package edge

import (
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/counter"
	"sluice/counter/buckets"
	"sluice/edge/address"
	"sluice/edge/front"
	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/edge/seen"
	"sluice/edge/top"
)

// This is what tests in this folder see of a server beyond what it exports. Tests in other rooms do without.

const MaxRequestID = maxRequestID

func (s *Server) Limiter() *limiter.Limiter             { return &s.limiter }
func (s *Server) RuleSet() *rules.Set                   { return s.snap.Load().rules }
func (s *Server) Sources() *address.Sources             { return s.snap.Load().sources }
func (s *Server) HTTP() *fasthttp.Server                { return s.listening.http }
func (s *Server) AtLimit() *seen.AtLimit                { return s.heaviest.atLimit }
func (s *Server) Asking() *top.Top                      { return s.heaviest.requests }
func (s *Server) Seconds() *buckets.Histogram           { return s.stats.seconds }
func (s *Server) Wait(replies []<-chan struct{})        { s.wait(replies) }
func (s *Server) LastAccepted() <-chan struct{}         { return s.listening.listeners[0].Ended }
func (s *Server) Shed(peer netip.Addr) counter.Source   { return s.shed(peer) }
func (s *Server) Awaited() int                          { return s.listening.http2.Awaited() }
func (s *Server) Begin(on *front.HeadFilter) *Beginning { return &Beginning{s.beginHTTP1(on)} }

// WithBudget is a server that lets requests wait so long for the tier, and does nothing else.
func WithBudget(d time.Duration) *Server { return &Server{bounds: bounds{wait: d}} }

// A Beginning is a request that has been counted, and no more.
type Beginning struct{ *front.Exchange }

func (b *Beginning) of() *Exchange { return &b.Owner.(*http1Exchange).Exchange }

// Forward passes it on as if it had been received at another time, and returns the status of the answer.
func (b *Beginning) Forward(ago time.Duration) int {
	x := b.of()
	x.now = x.now.Add(-ago)
	return x.forward()
}

func (b *Beginning) Finish() { b.of().finish() }

// AppendRequestName gives names to requests.
func AppendRequestName(b []byte) []byte { return appendRequestName(b) }
