package edge

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// forward passes the request on and puts the origin's answer into ctx.Response, its body still to be streamed. It returns
// the status of the origin's answer, or 0 if the edge had to answer itself.
//
// An origin sees a request at most twice, and only if all of this holds: the method is safe, there is no body, and the
// first connection had been used before and ended without a byte of an answer, as it does when an origin closes an idle
// connection just when the request is sent. A timeout is never a reason: the origin may be at work.
func (x *exchange) forward(ctx *fasthttp.RequestCtx) int {
	g := x.snap.origins.of(x.host)
	if g == nil {
		answer(ctx, fasthttp.StatusMisdirectedRequest, "no_origin", "This server does not answer for that host.")
		return 0
	}
	o := g.pick(x.source, x.now, nil)
	if o == nil {
		busy(ctx)
		return 0
	}
	x.upgrade = x.wantsUpgrade(ctx, g)
	fresh, moved := x.upgrade != nil, false
	for {
		o.attempts.Add(1)
		l, err := o.acquire(x.now, fresh, g.connect)
		if err != nil {
			o.active.Add(-1)
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				busy(ctx) // it is the edge that lacks something, not the origin
				return 0
			}
			o.failing(x.now)
			x.server.warn("origin unreachable", "origin", o.name, "error", err)
			if !moved && len(g.servers) > 1 {
				// Nothing has been sent: another server may have the request, whatever it is.
				if other := g.pick(x.source, x.now, o); other != nil {
					o, moved = other, true
					continue
				}
			}
			answer(ctx, fasthttp.StatusBadGateway, "origin_unreachable", "The server behind this one cannot be reached.")
			return 0
		}
		if x.spare == nil {
			x.spare = new(answerBody)
		}
		b := x.spare
		*b = answerBody{link: l, client: x.conn, timeout: g.timeout, keep: idleOrigin}
		if g.total > 0 {
			b.due = x.now.Add(g.total)
		}
		x.open = b
		err = x.exchangeOn(ctx, o, b)
		if err == nil {
			o.succeeded()
			status := x.relay(ctx, o, b)
			x.open = nil
			return status
		}
		x.open = nil
		l.Close()
		if err == io.EOF && l.reused && b.upload == nil && isSafe(ctx.Method()) {
			fresh = true
			continue
		}
		o.active.Add(-1)
		x.failed(ctx, o, b, err)
		return 0
	}
}

// failed answers for an origin that did not, or tells the client that its own body was at fault.
func (x *exchange) failed(ctx *fasthttp.RequestCtx, o *origin, b *answerBody, err error) {
	if u := b.upload; u != nil {
		failed := u.failed.Load() // else it is cut off now because the origin has failed, or the time for all of it is up
		late := !failed && !u.taken.Load() && !b.due.IsZero() && !time.Now().Before(b.due)
		u.end()
		x.conn.body = false
		x.conn.linger.Store(true)
		if (failed || late) && u.byClient {
			status, code, message := u.status()
			answer(ctx, status, code, message)
			ctx.SetConnectionClose()
			return
		}
	}
	o.failing(time.Now())
	var timeout net.Error
	if errors.Is(err, fasthttp.ErrTimeout) || errors.As(err, &timeout) && timeout.Timeout() {
		x.server.warn("origin too slow", "origin", o.name, "error", err)
		answer(ctx, fasthttp.StatusGatewayTimeout, "origin_timeout", "The server behind this one did not answer in time.")
	} else {
		x.server.warn("origin failed", "origin", o.name, "error", err)
		answer(ctx, fasthttp.StatusBadGateway, "origin_failed", "The server behind this one gave no valid answer.")
	}
	if b.upload != nil {
		ctx.SetConnectionClose()
	}
}

func isSafe(method []byte) bool {
	switch string(method) {
	case fasthttp.MethodGet, fasthttp.MethodHead, fasthttp.MethodOptions:
		return true
	}
	return false
}

// exchangeOn sends the request on one connection and reads the head of the answer. io.EOF means that the connection ended
// before any byte of it.
func (x *exchange) exchangeOn(ctx *fasthttp.RequestCtx, o *origin, b *answerBody) error {
	l := b.link
	now := x.now
	if !l.reused { // connecting took its time
		now = time.Now()
	}
	if err := l.begin(now, b.within(now)); err != nil {
		return err
	}
	w := l.writer()
	x.writeHead(w, ctx, o)
	var err error
	if stream := ctx.RequestBodyStream(); stream != nil && ctx.Request.Header.ContentLength() != 0 {
		b.upload = &upload{stream: stream, link: l, w: w, client: x.conn, length: int64(ctx.Request.Header.ContentLength()),
			limit: int64(x.server.limits.BodyBytes), within: b.within, due: b.due,
			header: &ctx.Request.Header, announced: slices.Clone(x.announced)}
		x.bodyRead = true
		x.conn.startBody(x.server.limits.HeaderTimeout, x.server.limits.IdleTimeout)
		if b.upload.length >= 0 && b.upload.length <= inlineBody {
			b.upload.run(false)
			if b.upload.byClient {
				return b.upload.err
			}
			err = b.upload.err
		} else {
			b.upload.start()
		}
	} else {
		err = w.Flush()
		releaseWriter(w)
	}
	if err != nil {
		// The origin may have answered and closed before it read everything: what it said still counts.
		_ = l.SetReadDeadline(time.Now().Add(time.Second))
	}
	if head := x.readAnswerHead(b, ctx); head != nil {
		if err != nil && b.upload != nil {
			return err
		}
		return head
	}
	return nil
}

// relay makes the origin's answer the client's; its body is streamed.
func (x *exchange) relay(ctx *fasthttp.RequestCtx, o *origin, b *answerBody) int {
	resp := &ctx.Response
	h, status, length := &resp.Header, resp.StatusCode(), b.length
	o.answers[status%codes].Add(1)
	h.ResetConnectionClose()
	h.SetProtocol(protocol11)
	if b.upload != nil && !b.upload.taken.Load() && !b.upload.over() {
		ctx.SetConnectionClose() // an answer before the end of the request: the rest of it will not be read
	}

	br := b.link.br
	resp.ImmediateHeaderFlush = br.Buffered() == 0 // nobody knows when the first byte of a streamed body comes
	switch {
	case status == fasthttp.StatusSwitchingProtocols:
		x.tunnel(ctx, b)
	case bodyless(ctx.Method(), status):
		b.done = true
		resp.SkipBody = true
		x.conn.writeAt = b.finish()
	case length >= 0 && length <= int64(br.Buffered()):
		// All there: copying it frees the origin's connection before the client has read a byte.
		body, _ := br.Peek(int(length))
		resp.SetBody(body)
		_, _ = br.Discard(int(length))
		b.done = true
		x.conn.writeAt = b.finish()
	case length >= 0:
		b.framing, b.left = fixed, length
		x.spare = nil // it outlives the handler
		resp.SetBodyStream(b, int(length))
	case length == lengthChunked:
		b.framing = chunked
		if x.trailers {
			x.expectTrailers(h, b)
		}
		x.stream(ctx, b)
	default:
		b.framing, b.reuse = untilClose, false
		x.stream(ctx, b)
	}
	return status
}

// stream sends a body whose length nobody knows: chunked, or, to a client of HTTP/1.0, up to the end of the connection.
func (x *exchange) stream(ctx *fasthttp.RequestCtx, b *answerBody) {
	x.spare = nil // it outlives the handler
	if ctx.Request.Header.IsHTTP11() {
		ctx.Response.SetBodyStream(b, -1)
		return
	}
	c, stats, status := x.conn, x.server.stats, ctx.Response.StatusCode()
	x.hijacked = true
	ctx.Response.Header.SetConnectionClose()
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {
		_, err := c.Write(ctx.Response.Header.Header())
		if err == nil {
			_, err = b.WriteTo(c)
		}
		_ = b.CloseWithError(err)
		c.owe(status, fromOrigin)
		c.settle(stats)
	})
}
