// Package edge is the HTTP side of Sluice: a reverse proxy that decides, for every request, whether
// its source may make it.
//
// A request comes by a Front (front.go), which is its client's end in whatever protocol the client
// speaks. That of HTTP/1.1 is a fasthttp.Server behind a guarded connection (package front).
// fasthttp owns the workers, the loop over a connection's requests, keep-alive, and writes the
// edge's own answers; it is shown one checked head after the other and never reads a byte of a
// body, so where a request ends is not for it to decide. Answers of origins are relayed past it,
// with the spelling and order that they came in, and what it would write then is dropped.
//
// The life of a request, top to bottom (handle, in serve.go):
//
//	head     is read once; what two servers could read differently is refused (front, http1), and counts all the same, as far as
//	         its source is known (malformed, in admit.go)
//	source   who: the peer's address, or what a trusted proxy reports, read from right to left (address)
//	lists    deny refuses, allow passes without counting
//	rules    which rules are about this host, method and any reading that origins have of this path (rules, message)
//	decide   mitigated until? else reserve in all counters at once (limiter); a mitigation starts where one is over
//	answer   refused: 429 at once, and the connection stays open (reply.go)
//	         admitted: on to the origin and back, streaming both ways (proxy)
//	settle   rules that count by the answer's status commit or cancel; the answer is counted once it is written (serve.go)
//	leave    what was in flight is not any more, whatever came of it (release, in serve.go)
//
// Nothing in it waits for the tier, but rules with a concurrency, first_sight: wait or check: sync.
// Rules, lists and origins are one immutable snapshot (snapshot.go), swapped whole: a request is
// judged by exactly one version. docs/design/architecture.md has the map of its rooms.
package edge

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/counter"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/edge/address"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/front"
	"sluice/edge/http2"
	"sluice/edge/limiter"
	"sluice/edge/listen"
	"sluice/edge/proxy"
	"sluice/edge/rules/key"
	"sluice/edge/upstream"
	"sluice/mitigation"
)

// Options is what a Server is made of.
type Options struct {
	Config *config.Config
	Table  *counter.Table    // how much each source has done
	Blocks *mitigation.Table // which sources are blocked until when
	Tier   Tier              // the PoP; the zero Tier counts alone
	Name   string            // what operators call this edge
	// By which this edge's PoP knows its own requests in Via; "": as sluice, and none
	Via    string
	Events *events.Log // what has happened, for operators; nil: it is not kept
	Secret [16]byte    // the PoP's: keys the digests of headers and cookies
	// InFlight is where requests under way are counted; nil: in a table of the edge's own.
	InFlight *inflight.Table
	// Exact is the requests whose instants the tier keeps; nil: there are none.
	Exact *exact.Table
	Use   Modules // the features that the edge has beside
	// Warn, if not nil, is called with failures that an operator should know of. It must not block.
	Warn func(message string, args ...any)
}

// Server is one edge.
type Server struct {
	listening listening
	leaving   leaving
	bounds    bounds
	apply     sync.Mutex // one Apply at a time
	snap      atomic.Pointer[snapshot]
	use       Modules
	limiter   limiter.Limiter
	tier      Tier
	secret    key.Secret
	pools     pools

	observed
	reporting

	*control.Admin // what operators see and say
}

// observed is what is seen of requests.
type observed struct {
	stats      *stats
	heaviest   heaviest
	unbelieved address.Unbelieved
}

// reporting is where the edge tells operators what happens.
type reporting struct {
	name   string // what they call it
	events *events.Log
	warn   func(message string, args ...any)
}

// listening is where clients come in.
type listening struct {
	http      *fasthttp.Server
	http2     *http2.Server
	protocols []string // over TLS, those that are liked best first
	open      *listen.Registry
	listeners []*listen.Listener // guarded by Server.apply
}

// leaving is whether the edge is to get no more requests.
type leaving struct {
	draining atomic.Bool
	drained  atomic.Pointer[control.Drained] // by hand; nil: it is not
}

// bounds are those of every request, whatever the configuration in force says.
type bounds struct {
	wait   time.Duration // for the tier
	limits front.Limits
	proxy  proxy.Bounds
}

// pools are what requests use, one after the other.
type pools struct {
	exchanges sync.Pool // of *Exchange
	http1     sync.Pool // of *http1Exchange
}

// New makes a server. Nothing is started yet.
func New(o Options) (*Server, error) {
	c := o.Config
	if err := c.Check(); err != nil {
		return nil, err
	}
	s := &Server{
		limiter: limiter.Limiter{Counters: o.Table, Blocks: o.Blocks, Up: o.Tier.Up,
			Alone: o.Tier.Alone, Fetch: o.Tier.Fetch, InFlight: o.InFlight, Exact: o.Exact},
		tier: o.Tier,
		bounds: bounds{wait: c.PoP.Wait, limits: c.Limits, proxy: proxy.Bounds{
			BodyBytes: c.Limits.BodyBytes, TunnelTime: c.Limits.TunnelTimeout, Via: o.Via}},
		secret:    key.NewSecret(o.Secret),
		observed:  observed{stats: newStats(), heaviest: newHeaviest()},
		reporting: reporting{o.Name, o.Events, o.Warn}, use: o.Use,
	}
	if s.limiter.InFlight == nil {
		s.limiter.InFlight = inflight.New(inflight.Options{})
	}
	s.Admin = control.New(control.Options{
		Limiter: &s.limiter, View: s.view, PoP: o.Tier.PoP, Secret: s.secret,
		Requests: s.heaviest.requests, Refusals: s.heaviest.refusals,
		NotEnforced: s.heaviest.notEnforced, Keys: s.heaviest.keys,
		Events: o.Events,
		Kernel: o.Use.inKernel,
	})
	if s.bounds.wait > 0 {
		s.limiter.Wait = s.wait
	}
	if s.warn == nil {
		s.warn = func(string, ...any) {}
	}
	s.pools.exchanges.New = func() any { return newExchange(s) }
	s.pools.http1.New = func() any { return newHTTP1Exchange(s) }
	if s.events != nil {
		o.Blocks.Observe = s.learned
	}
	err := s.Apply(c)
	if err != nil {
		return nil, err
	}
	s.stats.reloads[1].Store(0) // the first set of rules is not read again
	site := &front.Server{Limits: c.Limits, HalfClosed: 5 * time.Second, Begin: s.beginHTTP1,
		Judge: judgeHTTP1, Handle: handleHTTP1, End: endHTTP1, Fault: s.fault}
	s.listening.http = site.Server()
	s.speakHTTP2(c, site)
	s.listening.open, err = listen.NewRegistry(site, listen.Admission{
		Source: func(peer netip.Addr) (counter.Source, bool) {
			return s.snap.Load().
				sources.Connection(peer)
		},
		Proxied: func(peer netip.Addr) bool { return s.snap.Load().sources.Proxied(peer) },
		Trusted: func(peer netip.Addr) bool {
			return address.IsIn(s.snap.Load().sources.Trust,
				peer)
		},
		Hello: s.hello,
		Shed:  s.shedPeer, ShedNamed: func(client netip.Addr) bool {
			return s.shed(client).
				IsValid()
		},
	})
	if err != nil {
		return nil, err
	}
	if m := s.listening.open.Memory; m != nil { // streams give way before connections do
		s.listening.http2.Memory = http2.NewMemory(max(m.Free, c.Limits.Memory/16),
			s.listening.open.Source)
	}
	return s, nil
}

// Serve accepts connections on ln until Drain. It blocks, and closes ln. It may be called for
// several listeners, whose connections share the caps.
func (s *Server) Serve(ln net.Listener) error {
	return s.ServeEntry(ln, &listen.Entry{Field: "listen", Address: ln.Addr().String()}, nil)
}

// ServeTLS is Serve for clients that speak TLS.
func (s *Server) ServeTLS(ln net.Listener, c *listen.Certificates) error {
	return s.ServeEntry(ln, &listen.Entry{Field: "listen_tls", Address: ln.Addr().String()}, c)
}

// ServeEntry is Serve on a socket of a listener of which more is said; with certificates its
// clients speak TLS.
func (s *Server) ServeEntry(ln net.Listener, e *listen.Entry, c *listen.Certificates) error {
	l := s.listening.open.NewListener(e)
	if l.Listener = ln; c != nil {
		l.TLS = c.Config(s.listening.protocols...)
	}
	s.apply.Lock()
	if s.leaving.draining.Load() {
		s.apply.Unlock()
		return ln.Close() // drained before it began
	}
	s.listening.listeners = append(s.listening.listeners, l)
	s.apply.Unlock()
	listen.BoundUnsent(ln)
	return s.listening.http.Serve(l)
}

// speakHTTP2 has clients served that speak HTTP/2: those that agree on it over TLS, and, where that
// is configured, trusted proxies that know it.
func (s *Server) speakHTTP2(c *config.Config, site *front.Server) {
	s.listening.protocols = []string{"http/1.1"}
	// The handshake was all there is to it
	s.listening.http.NextProto(listen.ProofProtocol, func(net.Conn) error { return nil })
	s.listening.http2 = &http2.Server{Server: site, MaxStreams: c.HTTP2.MaxStreams,
		Start: func(st *http2.Stream) http2.Continuation { return s.Start(st) }, Tunnels: s.offersTunnels,
		Leaving: s.leaving.draining.Load, Abused: s.abused,
		Awaited: func() int { return s.snap.Load().origins.Ahead }}
	if !c.HTTP2.Enabled {
		return
	}
	s.listening.protocols = []string{"h2", "http/1.1"}
	s.listening.http.NextProto("h2", func(nc net.Conn) error {
		client := front.TakeOver(nc)
		// Of its own: fasthttp's has the stack that a handshake takes, for as long as the
		// connection is open
		go func() {
			defer client.Close()
			s.listening.http2.Serve(client)
		}()
		return nil
	})
	if c.HTTP2.Cleartext {
		site.Switch = func(client *front.Client) bool {
			if client.Secure || !address.IsIn(s.snap.Load().sources.Trust, client.From()) {
				return false
			}
			s.listening.http2.Serve(client)
			return true
		}
	}
}

// offersTunnels reports whether some origin takes WebSockets.
func (s *Server) offersTunnels() bool {
	return slices.ContainsFunc(s.snap.Load().origins.Groups, func(g *upstream.Group) bool {
		return slices.ContainsFunc(g.Upgrades,
			func(protocol string) bool { return strings.EqualFold(protocol, "websocket") })
	})
}

// Watch keeps an eye on the origins until ctx is done: it looks their names up, reads their files
// for TLS again, and checks those that are configured to be checked. Modules do beside requests what
// they do meanwhile. It blocks until all that it started has ended.
func (s *Server) Watch(ctx context.Context) {
	defer s.use.run(ctx)()
	upstream.Watch(ctx, func() []*upstream.Origin { return s.snap.Load().origins.All }, s.warn,
		s.originMoved)
}

// Registry has the connections that are open. Upstreams are the origins in force: a reload has
// others. Both are for tests of those rooms, which have a whole edge around them.
func (s *Server) Registry() *listen.Registry   { return s.listening.open }
func (s *Server) Upstreams() *upstream.Origins { return s.snap.Load().origins }

// ServeConn serves one connection that was admitted, until it is over.
func (s *Server) ServeConn(c *front.Client) { _ = s.listening.http.ServeConn(front.New(c)) }

// Sweep forgets what is over: ended mitigations and idle connections to origins. Call it about once
// a second.
func (s *Server) Sweep(now time.Time) {
	for s.limiter.Blocks.Sweep(now) {
	}
	s.listening.open.Memory.Sweep(now)
	s.warnUnbelieved(now)
	s.heaviest.fade(now)
	origins := s.snap.Load().origins
	for _, o := range origins.All {
		o.Sweep(now)
	}
	s.recordShedding(origins.Groups, now)
}
