package edge

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/counter"
	"sluice/edge/accesslog"
	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/edge/upstream"
)

const (
	// headBuffer is what is read at once of a client that sends heads, and bodyBuffer of one that sends a body, in bytes.
	headBuffer = 4 << 10
	bodyBuffer = 32 << 10
)

// crowded is what a connection above the cap is told.
const crowded = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"

// An exchange is the life of one request and its answer. It is used again for the next, of whichever connection.
type exchange struct {
	server *Server
	snap   *snapshot
	conn   *conn
	now    time.Time // the one instant at which the request is judged

	http1.Request
	text []byte // the head, where a body comes after it

	client   netip.Addr
	source   counter.Source // the client's
	chain    []netip.Addr   // addresses believed, the nearest first
	trusted  bool           // the peer is
	allowed  bool           // the client is never limited
	decision rules.Decision

	body      answerBody       // the exchange with the origin
	open      *answerBody      // is it, until it is over
	watch     watch            // of the client, meanwhile
	answer    *http1.Answer    // of the origin, while it is made the client's
	places    *upstream.Places // one of them is this request's; nil: none is
	upgrade   []byte           // the protocol that the origin is asked to switch to; nil: none
	trailers  bool             // the client takes those of the answer
	announced message.Names    // trailers of the request that may go to the origin
	in        http1.Body       // the request's body
	bodyRead  bool             // somebody has begun to read it
	held      *[]byte          // the body, read before it is sent on; nil: it is not held
	reply     reply
	sent      bool // the answer, or a part of it
	counted   bool // as answered or aborted

	screened *screen
	ctx      *fasthttp.RequestCtx // while its handler runs
	refused  *message.Refusal     // why it is no request
	broken   bool                 // no whole head came: it was slow, or its client is gone, which is not its form
	shown    []byte               // the head without what fasthttp is not shown

	forwardedHost bool
	buf, values   []byte
}

// begin counts a request as received and takes what its life needs.
func (s *Server) begin(screen *screen) *exchange {
	s.stats.received.Add(1)
	x, c := s.pool.Get().(*exchange), screen.conn
	x.screened, x.snap, x.conn, x.now = screen, s.snap.Load(), c, time.Now()
	x.Request.Reset()
	x.client, x.chain = netip.Addr{}, x.chain[:0]
	x.refused, x.broken, x.values = nil, false, x.values[:0]
	x.allowed, x.bodyRead, x.sent, x.counted = false, false, false, false
	c.writeAt = time.Time{}
	return x
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
	x.snap, x.conn, x.screened, x.open, x.in.Reader, x.reply.stream = nil, nil, nil, nil, nil, nil
	s.pool.Put(x)
}

// handle is fasthttp's handler: the life of a request, from its checked head to its answer.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	screen := screenOf(ctx)
	x := screen.x
	x.ctx, screen.phase = ctx, handled
	defer func() {
		if p := recover(); p != nil {
			s.panicked(x, p)
		}
		if x.Close {
			ctx.SetConnectionClose()
		}
		x.ctx = nil
	}()
	if x.refused == nil && !x.agrees(ctx) {
		x.refused = http1.BadRequest
	}
	switch {
	case x.refused == nil:
		x.respondTo()
	case x.broken:
		x.turnAway(x.refused)
	default:
		x.malformed(x.refused)
	}
	x.finish()
}

// refuse is fasthttp's handler of heads that it does not take although the screen has shown them.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, _ error) {
	screenOf(ctx).x.refused = http1.BadRequest
	s.handle(ctx)
}

// agrees reports whether fasthttp has read the head as the screen has.
func (x *exchange) agrees(ctx *fasthttp.RequestCtx) bool {
	h := &ctx.Request.Header
	x.Close = x.Close || h.ConnectionClose()
	return bytes.Equal(h.Method(), x.Method) && bytes.Equal(h.RequestURI(), x.Target) && bytes.Equal(h.Host(), x.HostLine)
}

// answer is the life of a request up to its answer.
func (x *exchange) respondTo() {
	if x.Length != 0 {
		x.ctx.Request.SetBodyStream(&x.in, int(x.Length))
	}
	if !x.admit() {
		x.Close = x.Close || x.Invite // it may have begun to send its body, or not
		return
	}
	status := x.forward()
	x.Close = x.Close || x.Invite && !x.bodyRead // nor is that known here
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
	if s.draining.Load() || c.going.Load() != 0 {
		x.Close = true
		c.linger.Store(true)
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
	case x.Old:
		r.head = append(r.head, "Connection: keep-alive\r\n"...)
	}
	r.head = append(r.head, "\r\n"...)
	x.screened.phase = relayed
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
	x.screened.x = nil // it lives on in the tunnel
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
		x.conn.writeAt = x.over()
		_, err = x.conn.Write(r.head)
	default:
		if err = b.send(r.head, b.Framing != http1.Fixed && !x.Old); err != nil {
			b.reuse = false
			if x.Old && b.Framing != http1.Fixed {
				x.conn.reset() // where the connection's end is the body's, one in order would pass the part off as the whole
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
		x.conn.linger.Store(true)
		x.say(mistake)
		x.finish()
	}
}

var mistake = message.Refuse(http.StatusInternalServerError, "internal", "This server made a mistake.")

func (s *Server) fault(p any) {
	s.stats.panics.Add(1)
	s.warn("fault in the edge", "panic", p)
}

var (
	errTargetTooLong = errors.New("edge: the first line of a request is longer than limits.header_bytes")
	errHeadTooLong   = errors.New("edge: the head of a request is longer than limits.header_bytes")
	errTLS           = errors.New("edge: a TLS handshake where plain HTTP is spoken")
)

// tlsHandshake is the first byte of a connection over TLS (RFC 8446, 5.1). Its client waits for an answer to what is no head and
// has no end.
const tlsHandshake = 0x16

// nextHead waits for the whole head of the next request, and returns it, perhaps with more behind it. It stays in the buffer. Empty
// lines before it are passed over (RFC 9112, 2.2). The whole of it must come within so long after its first byte.
func (c *conn) nextHead(within time.Duration, most int) ([]byte, error) {
	timed, searched := false, 0
	if c.heading = c.br.Buffered() > 0; c.heading {
		if c.piped++; c.piped%fair == 0 {
			runtime.Gosched()
		}
	}
	for {
		have, _ := c.br.Peek(c.br.Buffered())
		for searched == 0 && (bytes.HasPrefix(have, []byte{'\n'}) || bytes.HasPrefix(have, []byte("\r\n"))) {
			n := bytes.IndexByte(have, '\n') + 1
			_, _ = c.br.Discard(n)
			have = have[n:]
			c.heading = len(have) > 0 // an empty line after a body is not the next request
		}
		if len(have) > 0 && have[0] == tlsHandshake {
			return nil, errTLS
		}
		end := len(have) + 1
		if bytes.HasSuffix(have, []byte("\r\n\r\n")) && len(have) <= most {
			return have, nil // nearly always: one head and nothing else
		} else if i := bytes.Index(have[searched:], []byte("\r\n\r\n")); i >= 0 {
			end = searched + i + 4
		}
		switch {
		case end > most && bytes.IndexByte(have[:most], '\n') < 0:
			return nil, errTargetTooLong
		case end > most:
			return nil, errHeadTooLong
		case end <= len(have):
			return have[:end], nil
		}
		searched = max(0, len(have)-3)
		if len(have) == c.br.Size() {
			c.grow(most)
		}
		if c.heading && !timed {
			now := time.Now()
			if c.readDue, timed = now.Add(within), true; c.blocked.Load() < now.UnixNano() {
				c.idle.Store(0)
			}
		}
		if _, err := c.br.Peek(len(have) + 1); err != nil {
			return nil, err
		}
	}
}

// grow makes the buffer larger. What is in it stays.
func (c *conn) grow(size int) {
	if have, _ := c.br.Peek(c.br.Buffered()); size > c.br.Size() {
		c.br = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(have)), c), size)
		_, _ = c.br.Peek(len(have))
	}
}

// headless is the answer to what is no request.
func headless(err error) *message.Refusal {
	var timeout net.Error
	switch {
	case err == errTLS:
		return message.Refuse(http.StatusBadRequest, "tls", "This port speaks plain HTTP, not TLS.")
	case err == errTargetTooLong:
		return message.Refuse(http.StatusRequestURITooLong, "target_too_long", "The request target is longer than this server accepts.")
	case err == errHeadTooLong:
		return message.Refuse(http.StatusRequestHeaderFieldsTooLarge, "header_too_large", "The head of the request is larger than this server accepts.")
	case errors.As(err, &timeout) && timeout.Timeout():
		return message.Refuse(http.StatusRequestTimeout, "timeout", "The request came too slowly.")
	}
	return http1.BadRequest
}

// log writes the request down.
func (x *exchange) log() {
	e := accesslog.Entry{Client: x.client, At: x.now, Head: &x.Request.Request, Version: x.Version,
		Status: x.reply.status, Length: x.reply.length, From: x.reply.from.String(), Limited: x.reply.from == fromLimit}
	if !e.Client.IsValid() {
		e.Client = x.conn.peer // it was refused before its client was known
	}
	if bodyless(x.IsHead, x.reply.status) {
		e.Length = 0
	}
	if cause := x.decision.Cause; cause != nil {
		e.Rule, e.Verdict = x.decision.RuleOf(cause).Config.Name, x.decision.Verdict.String()
	}
	x.server.note(&e)
}
