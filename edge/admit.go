package edge

import (
	"bytes"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"time"

	"github.com/valyala/fasthttp"
)

// skipLimit is how much of a refused request's body is read so that its connection can stay open.
const skipLimit = 64 << 10

// admit takes a request up to its verdict. It reports whether the request goes on to the origin; else the answer is made.
func (x *exchange) admit(ctx *fasthttp.RequestCtx) bool {
	h := &ctx.Request.Header
	if !x.understand(ctx) {
		ctx.SetConnectionClose() // what comes next may not be what we take it for
		return false
	}
	x.client, x.chain, x.trusted = x.snap.sources.identify(x.conn.peer, &x.head, x.chain)
	x.source = x.snap.sources.of(x.client)
	x.server.requests.hit(x.source)
	check := x.snap.check.is(x.path, x.target)
	if check && x.trusted && x.ask(x.snap.check) != nil {
		answer(ctx, fasthttp.StatusBadRequest, "bad_check", "The request to be judged is malformed, or told in two ways.")
		return false
	}
	switch {
	case isIn(x.snap.deny, x.client):
		x.server.refusals.hit(x.source)
		answer(ctx, fasthttp.StatusForbidden, "denied", "Requests from this address are not accepted.")
		return false
	case isIn(x.snap.allow, x.client):
	default:
		x.judge(x.method)
		if x.decision.refused() {
			x.server.refusals.hit(x.source)
			x.from = fromLimit
			x.conn.writeAt = x.now
			x.refuse(ctx)
			if len(x.snap.sheds) > 0 && !x.decision.Rule.until.IsZero() && !x.trusted && slices.Contains(x.snap.sheds, x.decision.Rule.rule) {
				ctx.SetConnectionClose()
			}
			return false
		}
	}
	if check {
		x.grant(ctx)
		return false
	}
	if limit := x.server.limits.BodyBytes; limit > 0 && h.ContentLength() > limit {
		answer(ctx, fasthttp.StatusRequestEntityTooLarge, "body_too_large", "The body is larger than this server accepts.")
		return false
	}
	return true
}

// judge finds the rules that the request falls under and decides.
func (x *exchange) judge(method []byte) {
	d, rules := &x.decision, x.snap.rules
	d.found = rules.match(d.found[:0], x.host, x.path, method)
	if len(d.found) == 0 {
		return
	}
	for _, r := range d.found {
		s := x.source
		if r.parts != nil {
			s, d.buf = x.server.secret.digest(r.parts, &x.head, x.source, d.buf)
		}
		d.add(r, s)
	}
	if x.now.Nanosecond()>>4%sampling != 0 || x.snap.waits {
		x.server.limiter.decide(d, x.now)
		return
	}
	start := time.Now()
	x.server.limiter.decide(d, x.now)
	x.server.stats.deciding.Observe(time.Since(start).Seconds())
}

// understand reads the head and refuses what is not plain: anything that this edge and the origin could read differently.
func (x *exchange) understand(ctx *fasthttp.RequestCtx) bool {
	h := &ctx.Request.Header
	x.method, x.target, x.rawHost = h.Method(), h.RequestURI(), h.Host()
	refuse := func(status int, code, message string) bool {
		answer(ctx, status, code, message)
		return false
	}
	if err := x.head.scan(h.RawHeaders()); errors.Is(err, errHeaderCount) {
		return refuse(fasthttp.StatusRequestHeaderFieldsTooLarge, "too_many_headers", "The request has too many headers.")
	} else if err != nil {
		return refuse(fasthttp.StatusBadRequest, "bad_header", "A header of the request is malformed.")
	}
	if p := h.Protocol(); string(p) != http11 && string(p) != "HTTP/1.0" {
		return refuse(fasthttp.StatusHTTPVersionNotSupported, "bad_version", "This server speaks HTTP/1.1.")
	}
	method, target := x.method, x.target
	if string(method) == fasthttp.MethodConnect || string(method) == fasthttp.MethodTrace {
		refuse(fasthttp.StatusMethodNotAllowed, "bad_method", "This server does not do that.")
		ctx.Response.Header.Set("Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH")
		return false
	}
	if !isMethod(method) {
		return refuse(fasthttp.StatusBadRequest, "bad_method", "The method is malformed: methods are in capitals.")
	}
	host, absolute, ok := authority(target)
	if !ok || bytes.IndexByte(target, '#') >= 0 || target[0] == '*' && (len(target) > 1 || string(method) != fasthttp.MethodOptions) {
		return refuse(fasthttp.StatusBadRequest, "bad_target", "The request target is malformed.")
	}
	if len(x.rawHost) > 0 {
		if x.hostBuf, ok = appendCanonicalHost(x.hostBuf[:0], x.rawHost); !ok {
			return refuse(fasthttp.StatusBadRequest, "bad_host", "The Host header is malformed.")
		}
		x.host = x.hostBuf
	}
	if absolute && !bytes.EqualFold(host, x.rawHost) {
		return refuse(fasthttp.StatusBadRequest, "bad_host", "The request target and the Host header name different hosts.")
	}
	x.path = appendCanonicalPath(x.pathBuf, target)
	if cap(x.path) > cap(x.pathBuf) && !isCanonical(rawPath(target)) {
		x.pathBuf = x.path
	}
	if bytes.IndexByte(x.path, 0) >= 0 { // an origin may take it for the end of the path
		return refuse(fasthttp.StatusBadRequest, "bad_target", "The request target is malformed.")
	}
	return x.framed(ctx, refuse)
}

// framed checks how the body is delimited, and what the client expects before it sends one.
func (x *exchange) framed(ctx *fasthttp.RequestCtx, refuse func(int, string, string) bool) bool {
	length, coded := false, false
	for i := range x.head.lines {
		switch l := &x.head.lines[i]; l.kind {
		case lineContentLength:
			length = true
		case lineTransferEncoding:
			if coded = true; !equalFold(l.value, "chunked") {
				return refuse(fasthttp.StatusNotImplemented, "bad_encoding", "The only transfer encoding here is chunked.")
			}
		case lineExpect:
			if !equalFold(l.value, "100-continue") {
				return refuse(fasthttp.StatusExpectationFailed, "bad_expect", "The only expectation here is 100-continue.")
			}
		}
	}
	if length && coded {
		return refuse(fasthttp.StatusBadRequest, "bad_length", "A request has a Content-Length or a Transfer-Encoding, not both.")
	}
	return true
}

// skipBody reads the body of a request that does not go on, so that the connection can stay open; one that is long or slow
// costs the connection instead.
func (x *exchange) skipBody(ctx *fasthttp.RequestCtx) {
	stream, length := ctx.RequestBodyStream(), ctx.Request.Header.ContentLength()
	if length <= skipLimit && !ctx.Response.ConnectionClose() {
		x.conn.startBody(lingerTime, lingerTime)
		n, err := io.CopyN(io.Discard, stream, skipLimit+1)
		x.conn.body = false
		if err == io.EOF && n <= skipLimit {
			return
		}
	}
	x.conn.linger.Store(true)
	ctx.SetConnectionClose()
}

// otherVersion is a version of HTTP that is none of ours. What else may stand in its place is not HTTP at all.
var otherVersion = regexp.MustCompile(`unsupported http version "HTTP/[0-9](\.[0-9])?"$`)

// malformed answers what the server's parser did not take.
func (s *Server) malformed(ctx *fasthttp.RequestCtx, err error) {
	c, ok := ctx.Conn().(*conn)
	if !ok {
		return
	}
	if c.exchange != nil { // it was counted when it was invited to send its body
		s.release(c.exchange)
		c.exchange = nil
	} else {
		s.stats.received.Add(1)
	}
	status, code, message := fasthttp.StatusBadRequest, "bad_request", "The request is malformed."
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	switch {
	case errors.As(err, &small) && !c.sawLine:
		status, code, message = fasthttp.StatusRequestURITooLong, "target_too_long", "The request target is longer than this server accepts."
	case errors.As(err, &small):
		status, code, message = fasthttp.StatusRequestHeaderFieldsTooLarge, "header_too_large", "The head of the request is larger than this server accepts."
	case errors.As(err, &timeout) && timeout.Timeout():
		status, code, message = fasthttp.StatusRequestTimeout, "timeout", "The request came too slowly."
	case errors.Is(err, fasthttp.ErrUnsupportedTransferEncoding):
		status, code, message = fasthttp.StatusNotImplemented, "bad_encoding", "The only transfer encoding here is chunked."
	case otherVersion.MatchString(err.Error()): // the parser has no other sign for it
		status, code, message = fasthttp.StatusHTTPVersionNotSupported, "bad_version", "This server speaks HTTP/1.1."
	}
	answer(ctx, status, code, message)
	if s.access != nil {
		s.access.note(ctx, &exchange{conn: c, now: time.Now(), from: fromEdge, unread: true})
	}
	c.linger.Store(true)
	c.owe(status, fromEdge)
}
