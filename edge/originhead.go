package edge

import (
	"net/http"
	"strconv"
)

// appendHead appends the head of the request as the origin gets it: the target and the headers as they came, without what ends
// at this hop, and with what only we may say of where the request comes from.
func (x *exchange) appendHead(b []byte, o *origin) []byte {
	b = append(b, x.method...)
	b = append(b, ' ')
	b = append(b, originForm(x.target)...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	if len(x.rawHost) > 0 {
		b = append(b, x.rawHost...)
	} else {
		b = append(b, o.host...) // a client of HTTP/1.0 need not say
	}
	b = append(b, "\r\n"...)

	proto, via := false, false
	x.trailers = false
	for i := range x.head.lines {
		l := &x.head.lines[i]
		if l.drop {
			x.trailers = x.trailers || l.kind == lineHopByHop && !x.old && takesTrailers(l)
			continue
		}
		switch l.kind {
		case lineHost, lineExpect, lineForwardedFor, lineContentLength:
			continue // they are written below
		case lineForwardedHost, lineForwardedProto:
			proto = proto || l.kind == lineForwardedProto
			x.forwardedHost = x.forwardedHost || l.kind == lineForwardedHost
		case lineVia:
			via = true
			b = append(append(b, "Via: "...), l.value...)
			b = append(b, ", 1.1 sluice\r\n"...)
			continue
		}
		b = append(b, l.name...)
		b = append(b, ": "...)
		b = append(b, l.value...)
		b = append(b, "\r\n"...)
	}

	b = append(b, "X-Forwarded-For: "...)
	for i := len(x.chain) - 1; i >= 0; i-- {
		b = x.chain[i].AppendTo(b)
		b = append(b, ", "...)
	}
	b = x.conn.peer.AppendTo(b)
	if !proto {
		b = append(b, "\r\nX-Forwarded-Proto: http"...)
		if x.conn.secure {
			b = append(b, 's')
		}
	}
	if !x.forwardedHost && len(x.rawHost) > 0 {
		b = append(b, "\r\nX-Forwarded-Host: "...)
		b = append(b, x.rawHost...)
	}
	if !via {
		b = append(b, "\r\nVia: "...)
		b = append(b, x.version[len("HTTP/"):]...)
		b = append(b, " sluice"...)
	}
	if x.upgrade != nil {
		b = append(b, "\r\nConnection: Upgrade\r\nUpgrade: "...)
		b = append(b, x.upgrade...)
	} else if x.trailers {
		b = append(b, "\r\nConnection: TE\r\nTE: trailers"...)
	}
	if x.invite {
		b = append(b, "\r\nExpect: 100-continue"...)
	}
	switch n := x.length; {
	case n == lengthChunked:
		b = append(b, "\r\nTransfer-Encoding: chunked"...)
		b = x.announce(b)
	case n > 0 || n == 0 && string(x.method) != http.MethodGet && string(x.method) != http.MethodHead:
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, n, 10)
	}
	x.forwardedHost = false
	return append(b, "\r\n\r\n"...)
}
