package front

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/edge/http1"
	"sluice/edge/message"
)

// An Exchange is a request and its answer, at the end of a client that speaks HTTP/1.1. It belongs
// to the goroutine that serves the connection; but what is said of a body's reader holds here as
// for Client. It may be used again after Reset.
type Exchange struct {
	In    http1.RequestHead // what came
	Owner any               // what its server keeps with it

	on       *HeadFilter
	ctx      *fasthttp.RequestCtx // while its handler runs
	text     []byte               // the head, where a body comes after it
	shown    []byte               // the head without what fasthttp is not shown
	body     http1.Body
	bodyRead bool         // the body has a reader, or will have none
	pause    func() error // called before a read waits for the client,
	resume   func()       // and after; nil: nothing is
	watch    watch

	out    []byte        // of an origin's answer, what has not been written, but of a stream
	stream *bufio.Writer // nil: there is none
	chunks bool          // the answer's body is sent in chunks,
	ends   bool          // or ends with the connection
}

// Reset makes e ready for the next request, of this connection. It keeps nothing of the one before.
func (e *Exchange) Reset(on *HeadFilter) {
	e.In.Reset()
	e.In.Hello = on.Conn.Hello
	e.on, e.body, e.bodyRead, e.pause, e.resume = on, http1.Body{}, false, nil, nil
	e.stream, e.chunks, e.ends = nil, false, false
}

// Release lets go of the connection.
func (e *Exchange) Release() { e.on, e.body.Reader = nil, nil }

// Conn is the client's connection.
func (e *Exchange) Conn() *Client { return e.on.Conn }

// Request is what came.
func (e *Exchange) Request() *message.Request { return &e.In.Request }

// Peer is the address that the connection comes from. It is not named if a PROXY header withholds
// it.
func (e *Exchange) Peer() (peer netip.Addr, named bool) {
	return e.on.Conn.Peer, !e.on.Conn.Unnamed
}

// Secure reports whether the client speaks TLS.
func (e *Exchange) Secure() bool { return e.on.Conn.Secure }

// Redirect is the port of the https address that the listener sends requests to; 0: none.
func (e *Exchange) Redirect() uint16 { return e.on.Conn.Redirect }

// Gone reports whether the client has gone while its request waits.
func (e *Exchange) Gone() bool { return e.on.Conn.Gone() }

// Going reports whether the connection is to make room for others.
func (e *Exchange) Going() bool { return e.on.Conn.Going.Load() != 0 }

// Block notes that this connection's client is refused until then; the zero time: it is not. A
// connection of several clients has some that are, so that what comes next is judged first.
func (e *Exchange) Block(until time.Time, shared bool) {
	if shared {
		if !until.IsZero() {
			e.on.early = judgedEarly
		}
		return
	}
	at := int64(0)
	if !until.IsZero() {
		at = until.UnixNano()
	}
	if b := &e.on.Conn.Blocked; at != 0 || b.Load() != 0 {
		b.Store(at)
	}
}

// Close ends the connection with the answer.
func (e *Exchange) Close() { e.In.Close = true }

// Last is Close for a client that may go on sending: what it sends is not read as another request,
// and does not reset the connection before the answer is there.
func (e *Exchange) Last() {
	e.on.Conn.Linger.Store(true)
	e.In.Close = true
}

// Drop is Close for a request of which nothing more is read.
func (e *Exchange) Drop() { e.In.Close, e.bodyRead = true, true }

// Begun reports whether the answer has begun to go.
func (e *Exchange) Begun() bool { return e.on.phase == relayed }

// Wrote is when the client was last written to.
func (e *Exchange) Wrote() time.Time { return e.on.Conn.Wrote() }

// Hijack gives run the connection, once the handler has returned. The exchange is over when run is:
// nothing else ends it.
func (e *Exchange) Hijack(run func(net.Conn)) {
	c := e.on.Conn
	e.on.Exchange = nil
	e.ctx.HijackSetNoResponse(true)
	e.ctx.Hijack(func(net.Conn) {
		early, _ := c.Reader.Peek(c.Reader.Buffered()) // sent before the answer
		run(&hijacked{c.Conn, bytes.NewReader(early)})
	})
}

// A hijacked connection is a client's from which a part has been read ahead.
type hijacked struct {
	net.Conn
	early *bytes.Reader
}

func (h *hijacked) Read(p []byte) (int, error) {
	if h.early.Len() > 0 {
		return h.early.Read(p)
	}
	return h.Conn.Read(p)
}

// UnsafeConn is the connection below.
func (h *hijacked) UnsafeConn() net.Conn { return h.Conn }
