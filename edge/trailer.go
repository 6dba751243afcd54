package edge

import (
	"bufio"
	"slices"
	"strings"

	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/rules"
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
	if len(message.TrailerNames(&x.Head)) == 0 {
		return b
	}
	taken := x.Head.Taken()
	for _, r := range x.decision.Rules {
		for _, p := range r.Parts {
			if p.Kind == rules.KeyHeader {
				taken.Add(p.Name)
			}
		}
	}
	before := "\r\nTrailer: "
	for _, name := range message.TrailerNames(&x.Head) {
		if taken.Has(name) {
			continue
		}
		x.announced.Add(name)
		taken.Add(name)
		b = append(append(b, before...), name...)
		before = ", "
	}
	return b
}

// writeTrailers writes those trailers of a request that were announced and have come.
func writeTrailers(w *bufio.Writer, trailer *message.Head, announced message.Names) error {
	for i := range trailer.Lines {
		l := &trailer.Lines[i]
		if name, found := announced.Get(l.Name); found {
			writeLine(w, name, l.Value)
		}
	}
	_, err := w.WriteString("\r\n")
	return err
}

// expectTrailers makes an answer's head say which trailers may follow, and its body pass them on.
func (x *exchange) expectTrailers(b *answerBody) {
	b.pass, b.nominated = true, x.answer.Nominated
	list := message.TrailerNames(&x.answer.Head)
	if len(list) == 0 {
		return
	}
	taken := x.answer.Taken()
	h, before := x.reply.head, "Trailer: "
	for _, name := range list {
		if !taken.Has(name) {
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
	var trailer message.Head
	if err := b.ReadTrailer(&trailer); err != nil {
		return http1.ErrChunk
	}
	_, _ = w.WriteString("0\r\n")
	var kept []message.Line
	at := make(map[string]int) // in kept, by name in small letters
	for _, l := range trailer.Lines {
		if !b.pass || !message.MayTrail(&l) || b.nominated.Has(l.Name) {
			continue
		}
		lower := strings.ToLower(string(l.Name))
		if i, again := at[lower]; again {
			kept[i].Value = append(append(kept[i].Value, ", "...), l.Value...)
			continue
		}
		l.Value = slices.Clip(l.Value) // it may grow, and not over the line behind it
		at[lower], kept = len(kept), append(kept, l)
	}
	for _, l := range kept {
		writeLine(w, string(l.Name), l.Value)
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
