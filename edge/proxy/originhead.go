package proxy

import (
	"bytes"
	"net/http"
	"strconv"

	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

// appendHead appends the head of the request as the origin gets it: the target and the headers as
// they came, without what ends at this hop, and with what only we may say of where the request
// comes from.
func (p *Forward) appendHead(b []byte, o *upstream.Origin) []byte {
	b = append(b, p.in.Method...)
	b = append(b, ' ')
	b = append(b, http1.OriginForm(p.in.Target)...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	if len(p.in.RawHost) > 0 {
		b = append(b, p.in.RawHost...)
	} else {
		b = append(b, o.Host...) // a client of HTTP/1.0 need not say
	}
	b = append(b, "\r\n"...)

	proto, via, host := false, false, false
	for i := range p.in.Head.Lines {
		l := &p.in.Head.Lines[i]
		if l.Drop {
			continue
		}
		switch l.Kind {
		case message.Host, message.Expect, message.ForwardedFor, message.ContentLength,
			message.RequestID:
			continue // they are written below
		case message.ForwardedHost, message.ForwardedProto:
			proto = proto || l.Kind == message.ForwardedProto
			host = host || l.Kind == message.ForwardedHost
		case message.Via:
			via = true
			b = append(append(b, "Via: "...), l.Value...)
			b = append(append(append(b, ", 1.1 "...), p.via()...), "\r\n"...)
			continue
		}
		b = l.Append(b)
	}

	b = append(b, "X-Forwarded-For: "...)
	for i := len(p.order.Chain) - 1; i >= 0; i-- {
		b = p.order.Chain[i].AppendTo(b)
		b = append(b, ", "...)
	}
	b = p.order.Peer.AppendTo(b)
	if !proto {
		b = append(b, "\r\nX-Forwarded-Proto: http"...)
		if p.order.Secure {
			b = append(b, 's')
		}
	}
	if !host && len(p.in.RawHost) > 0 {
		b = append(b, "\r\nX-Forwarded-Host: "...)
		b = append(b, p.in.RawHost...)
	}
	if !via {
		b = append(b, "\r\nVia: "...)
		b = append(b, p.in.Version[len("HTTP/"):]...)
		b = append(append(b, ' '), p.via()...)
	}
	if len(p.order.ID) > 0 {
		b = append(b, "\r\nX-Request-ID: "...)
		b = append(b, p.order.ID...)
	}
	for _, f := range p.order.Tags {
		b = append(append(append(b, "\r\n"...), f.Name...), ": "...)
		b = append(b, f.Value...)
	}
	for _, w := range p.order.Watchers {
		b = w.AppendHead(b)
	}
	if p.upgrade != nil {
		b = append(b, "\r\nConnection: Upgrade\r\nUpgrade: "...)
		b = append(b, p.upgrade...)
	} else if p.in.TakesTrailers {
		b = append(b, "\r\nConnection: TE\r\nTE: trailers"...)
	}
	if p.in.ExpectContinue {
		b = append(b, "\r\nExpect: 100-continue"...)
	}
	switch n := p.in.Length; {
	case n == message.LengthChunked:
		b = append(b, "\r\nTransfer-Encoding: chunked"...)
		b = p.announce(b)
	case n > 0 || n == 0 && string(p.in.Method) != http.MethodGet &&
		string(p.in.Method) != http.MethodHead:
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, n, 10)
	}
	return append(b, "\r\n\r\n"...)
}

// via is this edge's name in Via: a pseudonym, as RFC 9110, 7.6.3 has it, from which nobody learns
// a host's name.
func (p *Forward) via() string {
	if p.Bounds.Via == "" {
		return "sluice"
	}
	return p.Bounds.Via
}

// hasBeenHere reports whether an edge of this PoP has passed the request on before. Whoever sent it
// counts for nothing here: an edge does not trust itself, and a client that writes this name, which
// only origins are told, ends its own request.
func (p *Forward) hasBeenHere() bool {
	if p.Bounds.Via == "" {
		return false
	}
	for i := range p.in.Head.Lines {
		l := &p.in.Head.Lines[i]
		if l.Kind == message.Via && bytes.Contains(l.Value, []byte(p.Bounds.Via)) {
			return true
		}
	}
	return false
}

var loop = message.Refuse(http.StatusLoopDetected, "loop",
	"The request came back to this server: the server behind it leads here.")
