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

// takesTrailers reports whether a line is a TE that asks for trailers.
func takesTrailers(l *line) bool {
	if !equalFold(l.name, "te") {
		return false
	}
	for _, coding := range splitList(l.value) {
		coding, _, _ = bytes.Cut(coding, []byte{';'})
		if equalFold(trimSpace(coding), "trailers") {
			return true
		}
	}
	return false
}

// announce appends which trailers the origin may expect: those that Trailer names, but none that stands in the head as well, or
// by which the request was counted, because then the two could be taken for one another.
func (x *exchange) announce(b []byte) []byte {
	x.announced = nil
	if len(trailerNames(&x.head)) == 0 {
		return b
	}
	taken := x.head.taken()
	for _, r := range x.decision.rules {
		for _, p := range r.parts {
			if p.kind == keyHeader {
				taken.add(p.name)
			}
		}
	}
	before := "\r\nTrailer: "
	for _, name := range trailerNames(&x.head) {
		if taken.has(name) {
			continue
		}
		x.announced.add(name)
		taken.add(name)
		b = append(append(b, before...), name...)
		before = ", "
	}
	return b
}

// trailerNames are the names in a head's Trailer that may stand in a trailer at all.
func trailerNames(h *head) (list [][]byte) {
	for i := range h.lines {
		if l := &h.lines[i]; l.kind == lineHopByHop && equalFold(l.name, "trailer") {
			for _, name := range splitList(l.value) {
				if t := (line{name: name, kind: classify(name)}); isToken(name) && mayTrail(&t) {
					list = append(list, name)
				}
			}
		}
	}
	return list
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
func writeTrailers(w *bufio.Writer, trailer *head, announced nameSet) error {
	for i := range trailer.lines {
		l := &trailer.lines[i]
		if name, found := announced.get(l.name); found {
			writeLine(w, name, l.value)
		}
	}
	_, err := w.WriteString("\r\n")
	return err
}

// expectTrailers makes an answer's head say which trailers may follow, and its body pass them on.
func (x *exchange) expectTrailers(b *answerBody) {
	b.pass, b.nominated = true, x.answer.nominated
	list := trailerNames(&x.answer.head)
	if len(list) == 0 {
		return
	}
	taken := x.answer.taken()
	h, before := x.reply.head, "Trailer: "
	for _, name := range list {
		if !taken.has(name) {
			h = append(append(h, before...), name...)
			before = ", "
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
	if err := trailer.scan(b.trailers, maxHeaderLines); err != nil {
		return errChunk
	}
	_, _ = w.WriteString("0\r\n")
	var kept []line
	at := make(map[string]int) // in kept, by name in small letters
	for _, l := range trailer.lines {
		if !b.pass || !mayTrail(&l) || b.nominated.has(l.name) {
			continue
		}
		lower := strings.ToLower(string(l.name))
		if i, again := at[lower]; again {
			kept[i].value = append(append(kept[i].value, ", "...), l.value...)
			continue
		}
		l.value = slices.Clip(l.value) // it may grow, and not over the line behind it
		at[lower], kept = len(kept), append(kept, l)
	}
	for _, l := range kept {
		writeLine(w, string(l.name), l.value)
	}
	_, err := w.WriteString("\r\n")
	return err
}

func writeLine(w *bufio.Writer, name string, value []byte) {
	_, _ = w.WriteString(name)
	_, _ = w.WriteString(": ")
	_, _ = w.Write(value)
	_, _ = w.WriteString("\r\n")
}
