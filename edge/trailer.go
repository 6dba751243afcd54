package edge

import (
	"bufio"
	"slices"
	"strings"
)

// Trailers are header lines after a chunked body (RFC 9110, 6.5; RFC 9112, 7.1.2). An answer's are passed on to clients that
// ask for them with TE: trailers, which then is said to the origin as well; a request's if it announces them in Trailer. All
// others are dropped, which a proxy may do with any. Some servers take trailers for headers, so what routes or frames a
// message, says who sent it or how to treat it, or is only ours to say, is never passed on (RFC 9110, 6.5.1), nor a
// line that Connection names.

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
	if _, err := scanHead(&trailer, b.trailers, maxHeaderLines); err != nil {
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
