// Package edge is the HTTP side of Sluice: a reverse proxy that asks, for every request, whether its source may make it.
//
// The life of a request, top to bottom (handle in this file):
//
//	head     the header lines are scanned once; what two servers could read differently is refused (head.go)
//	source   who: the peer's address, or what a trusted proxy reports, read from right to left (source.go)
//	lists    deny refuses, allow passes without counting
//	rules    which rules are about this host, path and method, each in one canonical form (ruleset.go, path.go, host.go)
//	decide   mitigated until? else reserve in all counters at once (limiter.go); a mitigation starts where one is over
//	answer   refused: 429 at once, and the connection stays open (answer.go)
//	         admitted: on to the origin, streaming both ways (proxy.go, upload.go, body.go)
//	settle   rules that count by the answer's status commit or cancel; the answer is counted once it is written (conn.go)
//
// Nothing in it waits for the tier, but rules that say first_sight: wait. Rules, lists and origins are one immutable
// snapshot (snapshot.go), swapped whole: a request is judged by exactly one version.
package edge

import (
	"crypto/tls"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/counter"
	"sluice/mitigation"
)

// Options is what a Server is made of.
type Options struct {
	Config *Config
	Table  *counter.Table    // who has done how much
	Bits   *mitigation.Table // who is blocked until when
	Tier   Tier              // the PoP; the zero Tier counts alone
	Access *AccessLog        // nil: none
	Secret [16]byte          // the PoP's: keys the digests of headers and cookies
	// Warn, if not nil, is told of failures that an operator should know of. It must not block.
	Warn func(message string, args ...any)
}

// Server is one edge.
type Server struct {
	http     *fasthttp.Server
	open     *registry
	ears     []*listener // guarded by apply
	limiter  limiter
	limits   Limits
	secret   secret
	stats    *stats
	warn     func(message string, args ...any)
	snap     atomic.Pointer[snapshot]
	draining atomic.Bool
	requests *top // who asks most
	refusals *top // who is refused most
	access   *AccessLog
	faded    atomic.Int64
	apply    sync.Mutex // one Apply at a time
	pool     sync.Pool  // of *exchange
}

// spareConnections are accepted above the cap: the server answers those with 503. Only tunnels, which it does not count, can
// fill them up; then a connection is closed unanswered.
const spareConnections = 16

// New makes a server. Nothing is started yet.
func New(o Options) (*Server, error) {
	c := o.Config
	if err := c.Check(); err != nil {
		return nil, err
	}
	s := &Server{
		limiter:  limiter{table: o.Table, bits: o.Bits, tier: o.Tier, budget: c.PoP.Wait},
		limits:   c.Limits,
		secret:   newSecret(o.Secret),
		stats:    newStats(),
		access:   o.Access,
		requests: newTop(), refusals: newTop(),
		warn: o.Warn,
	}
	if s.warn == nil {
		s.warn = func(string, ...any) {}
	}
	s.pool.New = func() any { return &exchange{server: s} }
	if err := s.Apply(c); err != nil {
		return nil, err
	}
	s.stats.reloads[1].Store(0) // the first set of rules is not read again
	memory, err := newMemoryCap(c.Limits.Memory)
	if err != nil {
		return nil, err
	}
	s.open = &registry{
		memory: memory,
		stats:  s.stats, most: c.Limits.Connections + spareConnections, perSource: c.Limits.PerSource,
		header: c.Limits.HeaderTimeout, write: c.Limits.IdleTimeout, bodies: c.Limits.BodyRate, answers: c.Limits.AnswerRate,
		slack:   min(c.Limits.HeaderTimeout, c.Limits.IdleTimeout) / 64,
		source:  func(peer netip.Addr) (counter.Source, bool) { return s.snap.Load().sources.connection(peer) },
		shed:    s.shed,
		proxied: func(peer netip.Addr) bool { return s.snap.Load().sources.proxied(peer) },
		alone:   runtime.GOMAXPROCS(0) == 1,
		conns:   make(map[*conn]struct{}), counts: make(map[counter.Source]int),
	}
	s.http = &fasthttp.Server{
		Handler:        s.handle,
		ErrorHandler:   s.malformed,
		HeaderReceived: withoutOldExpect,
		ExpectHandler:  s.expect,
		ConnState:      s.connState,
		Logger:         discardLog{}, // connections end in all kinds of ways; what matters is counted

		Concurrency:           c.Limits.Connections,
		ReadBufferSize:        c.Limits.HeaderBytes,
		WriteBufferSize:       8 << 10,
		ReadTimeout:           c.Limits.HeaderTimeout,
		IdleTimeout:           c.Limits.IdleTimeout,
		CloseOnShutdown:       true,
		ReduceMemoryUsage:     true, // who waits for a request holds no buffer for the answer: the next answer finds one in the cache
		SecureErrorLogMessage: true,

		// One byte of a body may be read before the handler decides; the rest is streamed. The server takes no less.
		StreamRequestBody:            true,
		MaxRequestBodySize:           1,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultDate:                true,
		NoDefaultContentType:         true,
	}
	return s, nil
}

type discardLog struct{}

func (discardLog) Printf(string, ...any) {}

// Serve accepts connections on ln until Drain. It blocks, and closes ln. It may be called for several listeners, whose
// connections share the caps.
func (s *Server) Serve(ln net.Listener) error { return s.serve(ln, nil) }

// ServeTLS is Serve for clients that speak TLS.
func (s *Server) ServeTLS(ln net.Listener, c *Certificates) error { return s.serve(ln, c.config()) }

func (s *Server) serve(ln net.Listener, secure *tls.Config) error {
	l := &listener{Listener: ln, registry: s.open, tls: secure, ended: make(chan struct{})}
	s.apply.Lock()
	if s.draining.Load() {
		s.apply.Unlock()
		return ln.Close() // drained before it began
	}
	s.ears = append(s.ears, l)
	s.apply.Unlock()
	boundUnsent(ln)
	return s.http.Serve(l)
}

// Sweep forgets what is over: ended mitigations and idle connections to origins. Call it about once a second.
func (s *Server) Sweep(now time.Time) {
	s.limiter.bits.Sweep(now)
	s.open.memory.sweep(now)
	switch at := s.faded.Load(); {
	case at == 0:
		s.faded.Store(now.UnixNano())
	case now.UnixNano()-at >= int64(topHalf):
		s.faded.Store(now.UnixNano())
		s.requests.fade()
		s.refusals.fade()
	}
	for _, o := range s.snap.Load().origins.all {
		o.sweep(now)
	}
}

// An exchange is the life of one request and its answer. It is used again; nothing of it outlives the handler.
type exchange struct {
	server    *Server
	snap      *snapshot
	conn      *conn
	now       time.Time // the one instant at which the request is judged
	head      head
	client    netip.Addr
	source    counter.Source // the client's
	chain     []netip.Addr   // addresses believed, the nearest first
	trusted   bool           // the peer is
	method    []byte         // as rules see it
	target    []byte         // the path's, before it was made canonical
	rawHost   []byte         // as it came, and as the origin gets it
	host      []byte         // as rules see it
	path      []byte
	decision  decision
	from      from
	open      *answerBody // the exchange with the origin, until it is over or the server streams its answer
	upgrade   []byte      // the protocol that the origin is asked to switch to; nil: none
	trailers  bool        // the client takes those of the answer
	announced [][]byte    // trailers of the request that may go to the origin
	spare     *answerBody // for an exchange with the origin that ends within the handler
	bodyRead  bool
	unread    bool // the server's parser did not take it
	hijacked  bool // the answer is written by other means

	forwardedHost    bool
	hostBuf, pathBuf []byte
	buf              []byte
	answer           *answerHead // of the origin, while it is made the client's
}

// begin counts a request as received and takes what its life needs.
func (s *Server) begin(c *conn, now time.Time) *exchange {
	s.stats.received.Add(1)
	x := s.pool.Get().(*exchange)
	x.snap, x.conn, x.now = s.snap.Load(), c, now
	x.client, c.writeAt = netip.Addr{}, time.Time{}
	x.chain, x.rawHost, x.host, x.path = x.chain[:0], nil, nil, nil
	x.bodyRead, x.hijacked, x.from, x.open = false, false, fromEdge, nil
	return x
}

func (s *Server) release(x *exchange) {
	s.limiter.settle(&x.decision, 0, x.now) // what is still held never was
	x.decision.reset()
	if x.answer != nil {
		answerHeads.Put(x.answer)
		x.answer = nil
	}
	x.snap, x.conn, x.open = nil, nil, nil
	s.pool.Put(x)
}

// handle is the life of a request.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	c := ctx.Conn().(*conn)
	x := c.exchange
	defer func() {
		if p := recover(); p != nil {
			s.panicked(ctx, c, x, p)
		}
	}()
	if x != nil {
		c.exchange = nil // admitted before it was invited to send its body
	} else if x = s.begin(c, ctx.Time()); !x.admit(ctx) {
		s.finish(ctx, x)
		return
	}
	status := x.forward(ctx)
	if status != 0 {
		x.from = fromOrigin
	}
	if x.decision.held {
		s.limiter.settle(&x.decision, status, time.Now())
	}
	x.limitHeaders(&ctx.Response.Header)
	x.verdictHeader(&ctx.Response.Header)
	s.finish(ctx, x)
}

// withoutOldExpect hides from the server that a client of HTTP/1.0 waits to be invited: it would not understand the invitation
// (RFC 9110, 10.1.1).
func withoutOldExpect(h *fasthttp.RequestHeader) (none fasthttp.RequestConfig) {
	if !h.IsHTTP11() {
		h.Del(fasthttp.HeaderExpect)
	}
	return none
}

// expect is asked in place of handle when a client waits to be invited to send its body: one that is refused is not.
func (s *Server) expect(ctx *fasthttp.RequestCtx) (status int) {
	c := ctx.Conn().(*conn)
	x := s.begin(c, time.Now())
	defer func() {
		if p := recover(); p != nil {
			s.panicked(ctx, c, x, p)
			status = fasthttp.StatusInternalServerError
		}
	}()
	if x.admit(ctx) {
		c.exchange = x
		return fasthttp.StatusContinue
	}
	x.bodyRead = true // none will come
	s.finish(ctx, x)
	return ctx.Response.StatusCode()
}

// finish is the end of every request: its body must not be taken for the next request, and its answer is to be counted.
func (s *Server) finish(ctx *fasthttp.RequestCtx, x *exchange) {
	if x.head.close { // the server's parser takes only a line of its own in lower case for it
		ctx.SetConnectionClose()
	}
	if !x.bodyRead && ctx.RequestBodyStream() != nil && ctx.Request.Header.ContentLength() != 0 {
		x.skipBody(ctx)
	}
	if s.draining.Load() {
		ctx.SetConnectionClose()
		x.conn.linger.Store(true)
	}
	if s.access != nil {
		s.access.note(ctx, x)
	}
	if !x.hijacked {
		x.conn.owe(ctx.Response.StatusCode(), x.from)
	}
	s.release(x)
}

// panicked keeps a fault within its request.
func (s *Server) panicked(ctx *fasthttp.RequestCtx, c *conn, x *exchange, p any) {
	s.stats.panics.Add(1)
	s.warn("fault in the edge", "panic", p)
	answer(ctx, fasthttp.StatusInternalServerError, "internal", "This server made a mistake.")
	ctx.SetConnectionClose()
	c.owe(fasthttp.StatusInternalServerError, fromEdge)
	if x == nil {
		return
	}
	s.limiter.settle(&x.decision, 0, time.Now())
	if b := x.open; b != nil { // between origin and client, and nobody else will end it
		b.reuse = false
		b.finish()
	}
}
