package edge

import (
	"net/http"
	"strconv"

	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

// appendHead appends the head of the request as the origin gets it: the target and the headers as they came, without what ends
// at this hop, and with what only we may say of where the request comes from.
func (x *exchange) appendHead(b []byte, o *upstream.Origin) []byte {
	b = append(b, x.Method...)
	b = append(b, ' ')
	b = append(b, http1.OriginForm(x.Target)...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	if len(x.RawHost) > 0 {
		b = append(b, x.RawHost...)
	} else {
		b = append(b, o.Host...) // a client of HTTP/1.0 need not say
	}
	b = append(b, "\r\n"...)

	proto, via, host := false, false, false
	x.trailers = false
	for i := range x.Head.Lines {
		l := &x.Head.Lines[i]
		if l.Drop {
			x.trailers = x.trailers || l.Kind == message.HopByHop && !x.HTTP10 && message.TakesTrailers(l)
			continue
		}
		switch l.Kind {
		case message.Host, message.Expect, message.ForwardedFor, message.ContentLength:
			continue // they are written below
		case message.ForwardedHost, message.ForwardedProto:
			proto = proto || l.Kind == message.ForwardedProto
			host = host || l.Kind == message.ForwardedHost
		case message.Via:
			via = true
			b = append(append(b, "Via: "...), l.Value...)
			b = append(b, ", 1.1 sluice\r\n"...)
			continue
		}
		b = l.Append(b)
	}

	b = append(b, "X-Forwarded-For: "...)
	for i := len(x.chain) - 1; i >= 0; i-- {
		b = x.chain[i].AppendTo(b)
		b = append(b, ", "...)
	}
	b = x.conn.Peer.AppendTo(b)
	if !proto {
		b = append(b, "\r\nX-Forwarded-Proto: http"...)
		if x.conn.Secure {
			b = append(b, 's')
		}
	}
	if !host && len(x.RawHost) > 0 {
		b = append(b, "\r\nX-Forwarded-Host: "...)
		b = append(b, x.RawHost...)
	}
	if !via {
		b = append(b, "\r\nVia: "...)
		b = append(b, x.Version[len("HTTP/"):]...)
		b = append(b, " sluice"...)
	}
	if x.upgrade != nil {
		b = append(b, "\r\nConnection: Upgrade\r\nUpgrade: "...)
		b = append(b, x.upgrade...)
	} else if x.trailers {
		b = append(b, "\r\nConnection: TE\r\nTE: trailers"...)
	}
	if x.ExpectContinue {
		b = append(b, "\r\nExpect: 100-continue"...)
	}
	switch n := x.Length; {
	case n == message.LengthChunked:
		b = append(b, "\r\nTransfer-Encoding: chunked"...)
		b = x.announce(b)
	case n > 0 || n == 0 && string(x.Method) != http.MethodGet && string(x.Method) != http.MethodHead:
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, n, 10)
	}
	return append(b, "\r\n\r\n"...)
}
