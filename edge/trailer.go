package edge

import (
	"bufio"
	"bytes"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// Trailers are header lines after a chunked body (RFC 9110, 6.5; RFC 9112, 7.1.2). An answer's are passed on to clients that
// ask for them with TE: trailers, which then is said to the origin as well; a request's if it announces them in Trailer. All
// others are dropped, which a proxy may do with any. Some servers take trailers for headers, so what routes or frames a
// message, says who sent it or how to treat it, or is only ours to say, is never passed on (RFC 9110, 6.5.1), nor a
// line that Connection names.

// untrailed are names that must not stand in a trailer, beside those that have a lineKind; one that ends in * stands
// for all that begin so.
var untrailed = [...]string{
	"authorization", "authentication-info", "proxy-*", "www-authenticate", "set-cookie*", // who
	"content-type", "content-encoding", "content-range", "content-location", "content-language", "content-disposition", // what
	"age", "cache-control", "date", "expires", "location", "pragma", "retry-after", "vary", "warning", // what to do with an answer
	"range", "if-*", "accept*", "max-forwards", "origin", "referer", "server", "user-agent", // what is asked for
	"http2-settings", "x-http-method*", "x-method-override", "x-original-*", "x-rewrite-url", // and how some servers are told otherwise
	"ratelimit*", "x-ratelimit*", "sluice-*",
}

// mayTrail reports whether a line may stand in a trailer that is passed on.
func mayTrail(l *line) bool {
	if l.drop || l.kind != lineOther {
		return false
	}
	for _, name := range untrailed {
		if prefix, all := strings.CutSuffix(name, "*"); all {
			if len(l.name) >= len(prefix) && equalFold(l.name[:len(prefix)], prefix) {
				return false
			}
		} else if equalFold(l.name, name) {
			return false
		}
	}
	return true
}

// wish notes what a hop-by-hop line of the request says about trailers.
func (x *exchange) wish(l *line, http11 bool) {
	switch {
	case !http11:
	case equalFold(l.name, "te"):
		for _, coding := range splitList(l.value) {
			coding, _, _ = bytes.Cut(coding, []byte{';'})
			x.trailers = x.trailers || equalFold(trimSpace(coding), "trailers")
		}
	case equalFold(l.name, "trailer"):
		for _, name := range splitList(l.value) {
			if isToken(name) && len(x.announced) < maxHeaderLines && x.mayAnnounce(name) {
				x.announced = append(x.announced, name)
			}
		}
	}
}

// mayAnnounce reports whether a request's trailer of that name may go to the origin: not if it stands in the head as well, or
// if the request was counted by a header of that name, because then the two could be taken for one another.
func (x *exchange) mayAnnounce(name []byte) bool {
	l := line{name: name, kind: classify(name)}
	if !mayTrail(&l) || among(x.announced, name) {
		return false
	}
	for i := range x.head.lines {
		h := &x.head.lines[i]
		if bytes.EqualFold(h.name, name) || h.kind == lineConnection && among(splitList(h.value), name) {
			return false
		}
	}
	for i := range x.decision.cases {
		for _, p := range x.decision.cases[i].rule.parts {
			if p.kind == keyHeader && bytes.EqualFold(p.name, name) {
				return false
			}
		}
	}
	return true
}

// announce writes which trailers the origin may expect.
func (x *exchange) announce(w *bufio.Writer) {
	for i, name := range x.announced {
		if i == 0 {
			_, _ = w.WriteString("\r\nTrailer: ")
		} else {
			_, _ = w.WriteString(", ")
		}
		_, _ = w.Write(name)
	}
}

// writeTrailers writes those trailers of a request that were announced and have come. The server's parser has put them to the
// headers, where none of these names was.
func writeTrailers(w *bufio.Writer, h *fasthttp.RequestHeader, announced [][]byte) error {
	for _, name := range announced {
		for _, value := range h.PeekAll(string(name)) {
			if bytes.ContainsAny(value, "\r\n\x00") {
				continue // it came as one line, and goes as one
			}
			writeLine(w, string(name), value, "")
		}
	}
	_, err := w.WriteString("\r\n")
	return err
}

// expectTrailers makes an answer's head say which trailers may follow, and its body pass them on.
func (x *exchange) expectTrailers(h *fasthttp.ResponseHeader, b *answerBody) {
	b.head = h
	for i := range x.answer.lines {
		if l := &x.answer.lines[i]; l.kind == lineConnection {
			b.nominated = append(b.nominated, splitList(bytes.Clone(l.value))...)
		}
	}
	for i := range x.answer.lines {
		l := &x.answer.lines[i]
		if l.kind != lineHopByHop || !equalFold(l.name, "trailer") {
			continue
		}
		for _, name := range splitList(l.value) {
			// One that stands in the head as well would be taken out of it.
			if t := (line{name: name, kind: classify(name)}); isToken(name) && mayTrail(&t) && !among(b.nominated, name) && len(h.PeekBytes(name)) == 0 {
				_ = h.AddTrailerBytes(name) // what the server's type does not allow is left out
			}
		}
	}
}

// passTrailers takes the lines after the last chunk. Those that may stand there and are wanted follow the body on its way to
// the client, several of one name as one line.
func (b *answerBody) passTrailers() error {
	var trailer head
	if err := trailer.scan(b.trailers); err != nil {
		return errChunk
	}
	if b.head == nil {
		return nil
	}
	if err := b.head.SetTrailer(""); err != nil { // what was announced need not have come
		return err
	}
	for i := range trailer.lines {
		l := &trailer.lines[i]
		if !mayTrail(l) || among(b.nominated, l.name) {
			continue
		}
		value := l.value
		if before := b.head.PeekBytes(l.name); slices.ContainsFunc(trailer.lines[:i], func(o line) bool { return bytes.EqualFold(o.name, l.name) }) {
			value = slices.Concat(before, []byte(", "), value)
		} else if b.head.AddTrailerBytes(l.name) != nil {
			continue // the server's type does not allow it either
		}
		b.head.DelBytes(l.name) // the head has been sent: only trailers are left to write
		b.head.SetBytesKV(l.name, value)
	}
	return nil
}

// among reports whether a name is in a list.
func among(list [][]byte, name []byte) bool {
	return slices.ContainsFunc(list, func(other []byte) bool { return bytes.EqualFold(other, name) })
}
