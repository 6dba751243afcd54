package edge

import (
	"bufio"
	"bytes"
	"net/netip"

	"github.com/valyala/fasthttp"
)

const http11 = "HTTP/1.1"

var protocol11 = []byte(http11)

// writeHead writes the head of the request as the origin gets it: the target and the headers as they came, without what ends
// at this hop, and with what only we may say of where the request comes from.
func (x *exchange) writeHead(w *bufio.Writer, ctx *fasthttp.RequestCtx, o *origin) {
	h := &ctx.Request.Header
	_, _ = w.Write(h.Method())
	_ = w.WriteByte(' ')
	_, _ = w.Write(originForm(h.RequestURI()))
	_, _ = w.WriteString(" HTTP/1.1\r\nHost: ")
	if len(x.rawHost) > 0 {
		_, _ = w.Write(x.rawHost)
	} else {
		_, _ = w.WriteString(o.host) // a client of HTTP/1.0 need not say
	}
	_, _ = w.WriteString("\r\n")

	proto, via := false, false
	x.trailers, x.announced = false, x.announced[:0]
	for i := range x.head.lines {
		l := &x.head.lines[i]
		if l.drop {
			if l.kind == lineHopByHop {
				x.wish(l, h.IsHTTP11())
			}
			continue
		}
		switch l.kind {
		case lineHost, lineExpect, lineForwardedFor, lineContentLength:
			continue // Expect has been dealt with; the others are written below
		case lineRealIP, lineForwarded, lineForwardedOther:
			if !x.trusted {
				continue
			}
		case lineForwardedHost, lineForwardedProto:
			if !x.trusted {
				continue
			}
			proto = proto || l.kind == lineForwardedProto
			x.forwardedHost = x.forwardedHost || l.kind == lineForwardedHost
		case lineVia:
			if !x.trusted {
				continue
			}
			via = true
			writeLine(w, "Via", l.value, ", 1.1 sluice")
			continue
		}
		_, _ = w.Write(l.name)
		_, _ = w.WriteString(": ")
		_, _ = w.Write(l.value)
		_, _ = w.WriteString("\r\n")
	}

	_, _ = w.WriteString("X-Forwarded-For: ")
	for i := len(x.chain) - 1; i >= 0; i-- {
		writeAddr(w, x.chain[i])
		_, _ = w.WriteString(", ")
	}
	writeAddr(w, x.conn.peer)
	if !proto {
		_, _ = w.WriteString("\r\nX-Forwarded-Proto: http")
		if x.conn.secure {
			_ = w.WriteByte('s')
		}
	}
	if !x.forwardedHost && len(x.rawHost) > 0 {
		_, _ = w.WriteString("\r\nX-Forwarded-Host: ")
		_, _ = w.Write(x.rawHost)
	}
	if !via {
		_, _ = w.WriteString("\r\nVia: ")
		_, _ = w.Write(h.Protocol()[len("HTTP/"):])
		_, _ = w.WriteString(" sluice")
	}
	if x.upgrade != nil {
		_, _ = w.WriteString("\r\nConnection: Upgrade\r\nUpgrade: ")
		_, _ = w.Write(x.upgrade)
	} else if x.trailers {
		_, _ = w.WriteString("\r\nConnection: TE\r\nTE: trailers")
	}
	switch n := h.ContentLength(); {
	case n == -1:
		_, _ = w.WriteString("\r\nTransfer-Encoding: chunked")
		x.announce(w)
	case n > 0 || n == 0 && !ctx.IsGet() && !ctx.IsHead():
		_, _ = w.WriteString("\r\nContent-Length: ")
		_, _ = w.Write(fasthttp.AppendUint(w.AvailableBuffer(), n))
	}
	_, _ = w.WriteString("\r\n\r\n")
	x.forwardedHost = false
}

func writeLine(w *bufio.Writer, name string, value []byte, more string) {
	_, _ = w.WriteString(name)
	_, _ = w.WriteString(": ")
	_, _ = w.Write(value)
	_, _ = w.WriteString(more)
	_, _ = w.WriteString("\r\n")
}

func writeAddr(w *bufio.Writer, a netip.Addr) {
	_, _ = w.Write(a.AppendTo(w.AvailableBuffer()))
}

// originForm is the target in the form that an origin expects: an absolute one without scheme and authority.
func originForm(target []byte) []byte {
	if len(target) == 0 || target[0] == '/' || target[0] == '*' {
		return target
	}
	_, rest, _ := bytes.Cut(target, []byte("://"))
	i := bytes.IndexAny(rest, "/?")
	switch {
	case i < 0:
		return []byte("/")
	case rest[i] == '?':
		return append([]byte("/"), rest[i:]...)
	}
	return rest[i:]
}

// authority is the host and port of an absolute target, and false if the target is not absolute.
func authority(target []byte) (host []byte, absolute, ok bool) {
	if len(target) == 0 || target[0] == '/' || target[0] == '*' {
		return nil, false, true
	}
	scheme, rest, found := bytes.Cut(target, []byte("://"))
	if !found || !equalFold(scheme, "http") && !equalFold(scheme, "https") {
		return nil, false, false
	}
	if i := bytes.IndexAny(rest, "/?"); i >= 0 {
		rest = rest[:i]
	}
	return rest, true, len(rest) > 0 && bytes.IndexByte(rest, '@') < 0
}

// splitList splits a header value at its commas.
func splitList(value []byte) [][]byte {
	if len(value) == 0 {
		return nil
	}
	parts := bytes.Split(value, []byte{','})
	for i := range parts {
		parts[i] = trimSpace(parts[i])
	}
	return parts
}
