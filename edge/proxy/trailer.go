package proxy

import (
	"bufio"
	"slices"
	"strings"

	"sluice/edge/http1"
	"sluice/edge/message"
)

// Trailers are header lines after a chunked body (RFC 9110, 6.5; RFC 9112, 7.1.2). An answer's are
// passed on to clients that request them with TE: trailers, which then is sent to the origin as
// well; a request's if it announces them in Trailer. All others are dropped, which a proxy may do
// with any. Some servers take trailers for headers, so what routes or frames a message, names its
// sender or how to treat it, or may only be written by the edge, is never passed on (RFC 9110,
// 6.5.1), nor a line that Connection names.

// announce appends which trailers the origin may expect: those that Trailer names, but none that
// stands in the head as well, or by which the request was counted, because then the two could be
// taken for one another.
func (p *Forward) announce(b []byte) []byte {
	p.announced = nil
	if len(message.TrailerNames(&p.in.Head)) == 0 {
		return b
	}
	taken := p.in.Head.Taken()
	p.Counted(&taken)
	before := "\r\nTrailer: "
	for _, name := range message.TrailerNames(&p.in.Head) {
		if taken.Has(name) {
			continue
		}
		p.announced.Add(name)
		taken.Add(name)
		b = append(append(b, before...), name...)
		before = ", "
	}
	return b
}

// writeTrailers writes those trailers of a request that were announced and have come. A failure
// shows in Flush.
func writeTrailers(w *bufio.Writer, trailer *message.Head, announced message.Names) {
	for i := range trailer.Lines {
		l := &trailer.Lines[i]
		if name, found := announced.Get(l.Name); found {
			_, _ = w.WriteString(name)
			_, _ = w.WriteString(": ")
			_, _ = w.Write(l.Value)
			_, _ = w.WriteString("\r\n")
		}
	}
	_, _ = w.WriteString("\r\n")
}

// expectTrailers makes an answer say which trailers may follow.
func expectTrailers(a *message.Answer) {
	list := message.TrailerNames(&a.Head)
	if len(list) == 0 {
		return
	}
	taken := a.Head.Taken()
	a.Trailers = slices.DeleteFunc(list, taken.Has)
}

// passTrailers ends an answer's body with the lines after it, those that may stand there and are
// wanted, several of one name as one line.
func (p *Forward) passTrailers() error {
	var trailer message.Head
	if err := p.body.ReadTrailer(&trailer); err != nil {
		return http1.ErrChunk
	}
	if !p.in.TakesTrailers {
		trailer.Lines = nil
	}
	var kept []message.Line
	at := make(map[string]int) // in kept, by name in small letters
	for _, l := range trailer.Lines {
		if !message.MayTrail(&l) || p.answer.Head.Nominated.Has(l.Name) ||
			p.Ours(p.answer.Status, l.Name) {
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
	return p.on.Trailers(kept)
}
