// Package http2 stands between clients and the edge where HTTP/2 is spoken (RFC 9113). A connection
// is read by one loop, which checks frames and heads as strictly as HTTP/1.1's are, and has each
// request judged as soon as its head is there: what is refused is answered by the loop, what is
// admitted, or may have to wait for its verdict, goes on in a goroutine of its own. So a stream
// that waits holds up no other.
//
//	loop     one frame after the other (loop.go), heads (head.go), and what may come on which stream (streams.go)
//	stream   one request and its answer: the edge's Front (stream.go), the body that comes (body.go), the answer that goes (answer.go)
//	write    frames on their way, one writer at a time, windows and paces (write.go)
//	memory   what streams hold together, and who gives way (memory.go)
//	budget   how often a client may reset, and how much it may say that is no request (budget.go)
//	life     idle, making room, leaving in order: GOAWAY (life.go)
//
// What an HTTP/2 head says is written down as a head of HTTP/1.1, and read by edge/http1: what that
// refuses does not get through here either.
//
// Memory of a connection is bounded: what clients send of bodies by Server.window, heads by
// limits.header_bytes for each of MaxStreams, and what waits to be written by mostUnwritten and one
// frame. No body can take the part of another. What all connections hold is bounded by a Memory.
package http2

import (
	"sync"
	"sync/atomic"
	"time"

	"sluice/edge/front"
	"sluice/edge/metric"
)

const (
	// firstWindow is how much of a body a client may send ahead of who reads it, in bytes, and
	// streamWindow of one that somebody reads. What is more than firstWindow comes out of
	// spareWindow, which all bodies of a connection share; who finds it spent goes on with
	// firstWindow.
	firstWindow  = 16 << 10
	streamWindow = 64 << 10
	spareWindow  = 4 * (streamWindow - firstWindow)
	// creditStep is how much a client may send again, of all bodies together, before it is told.
	creditStep = 64 << 10
	// usualWindow is both windows of whoever has not heard of others (RFC 9113, 6.9.2).
	usualWindow = 64<<10 - 1
	// frameSize is the longest frame that is read or written, in bytes. No client may refuse it.
	frameSize = 16 << 10
	// mostUnwritten is how many bytes may wait to be written before those who bring more wait, too.
	mostUnwritten = 64 << 10
	// mostCopied is how many bytes of refusals may be copied for a connection whose windows do not
	// take them. Pages that are the same for all are not.
	mostCopied = 64 << 10
	// mostKept is how large the buffers of a stream may be that is kept for another request, in
	// bytes.
	mostKept = 8 << 10
	// graceTime is how long a client that is told to go may take to hear of it.
	graceTime = time.Second
)

// A Server is what all connections of a server have in common.
type Server struct {
	*front.Server
	MaxStreams int // of a connection at once
	// Start judges a request. It returns what is left to do, in another goroutine; nil: the request
	// is answered.
	Start func(*Stream) Continuation
	// Tunnels reports whether clients are told that they may ask for WebSockets; nil: they are not.
	Tunnels func() bool
	// Leaving reports whether clients are to go elsewhere.
	Leaving func() bool
	// Abused is told of a client whose connection was ended because it went beyond a bound.
	Abused func(*front.Client, Abuse)

	// Memory bounds what streams hold; nil: nothing does.
	Memory *Memory
	// Awaited is how many bytes a request may hold of the answer that it awaits, besides what every
	// one does: until its origin is known, each is admitted as if it held them. nil: none does.
	Awaited func() int

	Stats   Stats
	streams sync.Pool // of those that are over, and nobody has any more
}

// window is what a client may send of all bodies of a connection, in bytes: so much that the
// windows of its streams are never more together.
func (s *Server) window() int { return s.MaxStreams*firstWindow + spareWindow + creditStep }

// A Continuation is what is left to do of a request once it is read.
type Continuation interface{ Run() }

// Stats counts what comes by HTTP/2.
type Stats struct {
	Connections atomic.Int64
	Streams     atomic.Int64 // requests under way
	Requests    atomic.Uint64
	Abuses      [abuses]atomic.Uint64

	// What gave way to the bound on memory: streams that were refused, or reset, and connections
	// that were ended.
	MemoryRefused, MemoryReset, MemoryCut atomic.Uint64
}

// Collect gives them.
func (s *Server) Collect(to metric.Sink) {
	to.Gauge(float64(s.Stats.Connections.Load()), "sluice_http2_connections",
		"Open connections that speak HTTP/2.")
	to.Gauge(float64(s.Stats.Streams.Load()), "sluice_http2_streams",
		"Requests under way that came by HTTP/2.")
	to.Count(s.Stats.Requests.Load(), "sluice_http2_requests_total",
		"Requests received by HTTP/2, among all.")
	for a := range abuses {
		to.Count(s.Stats.Abuses[a].Load(), "sluice_http2_abuse_total",
			"Connections of HTTP/2 that were ended because their client went beyond a bound, by what it did.", "kind", a.String())
	}
	const gave, help = "sluice_http2_memory_total",
		"What gave way to the bound on memory of HTTP/2, by what became of it."
	to.Count(s.Stats.MemoryRefused.Load(), gave, help, "outcome", "refused")
	to.Count(s.Stats.MemoryReset.Load(), gave, help, "outcome", "reset")
	to.Count(s.Stats.MemoryCut.Load(), gave, help, "outcome", "cut")
	if m := s.Memory; m != nil {
		to.Gauge(float64(m.held.Load()), "sluice_http2_memory_bytes",
			"What streams of HTTP/2 hold, as it is counted.")
		to.Gauge(float64(m.most), "sluice_http2_memory_bound_bytes",
			"Bound on what streams of HTTP/2 hold, which follows from limits.memory.")
	}
}
