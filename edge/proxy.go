package edge

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// maxInterim bounds the answers with a status of 1xx before the real one.
const maxInterim = 8

var (
	errUpgrade = errors.New("edge: the origin switched protocols unasked")
	errInterim = errors.New("edge: the origin sent too many interim answers")
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
	o := g.pick()
	o.active.Add(1)
	fresh := false
	for {
		o.attempts.Add(1)
		l, err := o.acquire(x.now, fresh)
		if err != nil {
			o.active.Add(-1)
			x.server.warn("origin unreachable", "origin", o.name, "error", err)
			answer(ctx, fasthttp.StatusBadGateway, "origin_unreachable", "The server behind this one cannot be reached.")
			return 0
		}
		if x.spare == nil {
			x.spare = new(answerBody)
		}
		b := x.spare
		*b = answerBody{link: l, client: x.conn, timeout: g.timeout, keep: idleOrigin}
		x.open = b
		err = x.exchangeOn(ctx, o, b)
		if err == nil {
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
		u.end()
		x.conn.body, x.conn.linger = false, true
		if u.clients {
			status, code, message := u.status()
			answer(ctx, status, code, message)
			ctx.SetConnectionClose()
			return
		}
	}
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
	due := time.Now().Add(b.timeout)
	if err := l.SetDeadline(due); err != nil {
		return err
	}
	x.writeHead(l.bw, ctx, o)
	var err error
	if stream := ctx.RequestBodyStream(); stream != nil && ctx.Request.Header.ContentLength() != 0 {
		b.upload = &upload{stream: stream, link: l, client: x.conn, length: int64(ctx.Request.Header.ContentLength()),
			limit: int64(x.server.limits.BodyBytes), timeout: b.timeout}
		x.bodyRead = true
		x.conn.startBody(x.now, x.server.limits.HeaderTimeout)
		if b.upload.length >= 0 && b.upload.length <= inlineBody {
			b.upload.run(false)
			if b.upload.clients {
				return b.upload.err
			}
			err = b.upload.err
		} else {
			b.upload.start()
		}
	} else {
		err = l.bw.Flush()
	}
	if err != nil {
		// The origin may have answered and closed before it read everything: what it said still counts.
		_ = l.SetReadDeadline(time.Now().Add(time.Second))
	}
	if head := readAnswerHead(l.br, &ctx.Response); head != nil {
		if err != nil && b.upload != nil {
			return err
		}
		return head
	}
	return nil
}

// readAnswerHead reads up to the final answer's head.
func readAnswerHead(br *bufio.Reader, resp *fasthttp.Response) error {
	for range maxInterim {
		if err := resp.Header.Read(br); err != nil {
			return err
		}
		switch status := resp.StatusCode(); {
		case status == fasthttp.StatusSwitchingProtocols:
			return errUpgrade // we never ask for it: Upgrade is not passed on
		case status >= 200:
			return nil
		}
	}
	return errInterim
}

// relay makes the origin's answer the client's: headers that end at this hop go, and so do those of the names that are
// ours, and the body is streamed.
func (x *exchange) relay(ctx *fasthttp.RequestCtx, o *origin, b *answerBody) int {
	resp := &ctx.Response
	h := &resp.Header
	status := resp.StatusCode()
	o.answers[status%codes].Add(1)
	length := h.ContentLength()
	b.reuse = !h.ConnectionClose()
	if seconds, ok := keepAliveTimeout(h.Peek("Keep-Alive")); ok {
		b.keep = min(b.keep, seconds)
	}
	x.cleanAnswer(h)
	h.ResetConnectionClose()
	h.SetProtocol(protocol11)
	if b.upload != nil && !b.upload.over() {
		ctx.SetConnectionClose() // an answer before the end of the request: the rest of it will not be read
	}

	br := b.link.br
	switch {
	case bodyless(ctx.Method(), status):
		b.done = true
		if status == fasthttp.StatusNoContent {
			h.Del(fasthttp.HeaderContentLength)
		}
		resp.SkipBody = true
		b.finish()
	case length >= 0 && length <= br.Buffered():
		// All there: copying it frees the origin's connection before the client has read a byte.
		body, _ := br.Peek(length)
		resp.SetBody(body)
		_, _ = br.Discard(length)
		b.done = true
		b.finish()
	case length >= 0:
		b.framing, b.left = fixed, int64(length)
		x.spare = nil // it outlives the handler
		resp.SetBodyStream(b, length)
	case length == -1:
		b.framing = chunked
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

// cleanAnswer removes what is between the origin and this edge alone, and what only the edge may say.
func (x *exchange) cleanAnswer(h *fasthttp.ResponseHeader) {
	x.doomed = x.doomed[:0]
	for name, value := range h.All() {
		switch len(name) {
		case 2, 7, 9, 10, 14, 15, 16, 17, 19, 21, 22:
		default:
			continue
		}
		switch {
		case equalFold(name, "connection"):
			for _, nominated := range splitList(value) {
				if k := classify(nominated); k == lineOther && !equalFold(nominated, "content-type") {
					x.doomed = append(x.doomed, string(nominated))
				}
			}
			x.doomed = append(x.doomed, "Connection")
		case classify(name) == lineHopByHop, equalFold(name, "transfer-encoding"),
			equalFold(name, "ratelimit"), equalFold(name, "ratelimit-policy"), equalFold(name, "sluice-verdict"),
			equalFold(name, "x-ratelimit-limit"), equalFold(name, "x-ratelimit-remaining"), equalFold(name, "x-ratelimit-reset"):
			x.doomed = append(x.doomed, string(name))
		}
	}
	for _, name := range x.doomed {
		h.Del(name)
	}
}

// keepAliveTimeout reads how long an origin keeps an idle connection, less a second for the way.
func keepAliveTimeout(value []byte) (time.Duration, bool) {
	for _, part := range splitList(value) {
		if len(part) > 8 && equalFold(part[:8], "timeout=") {
			n, err := strconv.Atoi(string(part[8:]))
			if err != nil || n < 0 || n > 86400 {
				return 0, false
			}
			return max(0, time.Duration(n-1)*time.Second), true
		}
	}
	return 0, false
}
