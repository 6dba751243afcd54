package edge

import (
	"bufio"
	"bytes"
	"slices"
	"strings"
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
	"http2-settings",
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
func (x *exchange) wish(l *line) {
	switch {
	case x.old:
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
	for _, r := range x.decision.rules {
		for _, p := range r.parts {
			if p.kind == keyHeader && bytes.EqualFold(p.name, name) {
				return false
			}
		}
	}
	return true
}

// announce appends which trailers the origin may expect.
func (x *exchange) announce(b []byte) []byte {
	before := "\r\nTrailer: "
	for _, name := range x.announced {
		b = append(append(b, before...), name...)
		before = ", "
	}
	return b
}

// forged reports whether a line may stand in no trailer at all, because some servers would take it for a header that frames or
// routes the request, or says who sent it: a request with one is refused.
func forged(l *line) bool {
	switch l.kind {
	case lineOther:
		return equalFold(l.name, "authorization") || equalFold(l.name, "proxy-authorization")
	case lineVia, lineForwarded, lineOverride:
		return false
	}
	return true
}

// writeTrailers writes those trailers of a request that were announced and have come.
func writeTrailers(w *bufio.Writer, trailer *head, announced [][]byte) error {
	for _, name := range announced {
		for i := range trailer.lines {
			if l := &trailer.lines[i]; bytes.EqualFold(l.name, name) {
				writeLine(w, name, l.value)
			}
		}
	}
	_, err := w.WriteString("\r\n")
	return err
}

// expectTrailers makes an answer's head say which trailers may follow, and its body pass them on.
func (x *exchange) expectTrailers(b *answerBody) {
	b.pass = true
	for i := range x.answer.lines {
		if l := &x.answer.lines[i]; l.kind == lineConnection {
			b.nominated = append(b.nominated, splitList(bytes.Clone(l.value))...)
		}
	}
	h, before := x.reply.head, "Trailer: "
	for i := range x.answer.lines {
		l := &x.answer.lines[i]
		if l.kind != lineHopByHop || !equalFold(l.name, "trailer") {
			continue
		}
		for _, name := range splitList(l.value) {
			t := line{name: name, kind: classify(name)}
			if isToken(name) && mayTrail(&t) && !among(b.nominated, name) && !x.answer.has(name) {
				h = append(append(h, before...), name...)
				before = ", "
			}
		}
	}
	if len(h) > len(x.reply.head) {
		x.reply.head = append(h, "\r\n"...)
	}
}

// passTrailers writes the last chunk and the lines after it, those that may stand there and are wanted, several of one name as
// one line.
func (b *answerBody) passTrailers(w *bufio.Writer) error {
	var trailer head
	if err := trailer.scan(b.trailers); err != nil {
		return errChunk
	}
	_, _ = w.WriteString("0\r\n")
	for i := range trailer.lines {
		l := &trailer.lines[i]
		same := func(o line) bool { return bytes.EqualFold(o.name, l.name) }
		if !b.pass || !mayTrail(l) || among(b.nominated, l.name) || slices.ContainsFunc(trailer.lines[:i], same) {
			continue
		}
		value := l.value
		for _, o := range trailer.lines[i+1:] {
			if same(o) {
				value = slices.Concat(value, []byte(", "), o.value)
			}
		}
		writeLine(w, l.name, value)
	}
	_, err := w.WriteString("\r\n")
	return err
}

func writeLine(w *bufio.Writer, name, value []byte) {
	_, _ = w.Write(name)
	_, _ = w.WriteString(": ")
	_, _ = w.Write(value)
	_, _ = w.WriteString("\r\n")
}

// among reports whether a name is in a list.
func among(list [][]byte, name []byte) bool {
	return slices.ContainsFunc(list, func(other []byte) bool { return bytes.EqualFold(other, name) })
}
