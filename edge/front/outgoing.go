package front

import (
	"time"

	"sluice/edge/http1"
	"sluice/edge/message"
)

// An origin's answer goes past fasthttp. Interim answers go at once. The answer itself is put
// together by Begin and Send until End; one that is streamed goes in parts, which the client must
// take at a pace.

// Invite tells the client to send its body (RFC 9110, 10.1.1). A failure shows when the body is
// read.
func (e *Exchange) Invite() { _, _ = e.on.Conn.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")) }

// Interim sends an interim answer (RFC 9110, 15.2), without the lines that only the edge may say. A
// client of HTTP/1.0 gets none. A failure shows when the answer itself is written.
func (e *Exchange) Interim(a *message.Answer, ours func(status int, name []byte) bool) {
	if !e.In.HTTP10 {
		e.out = append(http1.AppendAnswer(e.out[:0], a, ours), "\r\n"...)
		_, _ = e.on.Conn.Write(e.out)
	}
}

// Begin begins the answer: with the lines of a but those that only the edge may say, and then what
// the edge does say. It reports whether the body, whose length a does not know, is to be ended by
// Trailers. (To a client of HTTP/1.0 such a body ends with the connection.)
func (e *Exchange) Begin(a *message.Answer, ours func(status int, name []byte) bool,
	fields []message.Field) (open bool) {
	r := &e.In
	unknown := a.Length < 0 && a.Protocol == nil
	e.chunks, e.ends = unknown && !r.HTTP10, unknown && r.HTTP10
	b := http1.AppendAnswer(e.out[:0], a, ours)
	if e.chunks {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		before := "Trailer: "
		for _, name := range a.Trailers {
			b = append(append(b, before...), name...)
			before = ", "
		}
		if len(a.Trailers) > 0 {
			b = append(b, "\r\n"...)
		}
	}
	for _, f := range fields {
		b = appendField(b, f)
	}
	r.Close = r.Close || e.ends || a.Protocol != nil
	if a.Protocol != nil {
		b = append(b, "Connection: Upgrade\r\nUpgrade: "...)
		b = append(append(b, a.Protocol...), "\r\n"...)
	} else {
		b = e.appendConnection(b)
	}
	e.out = append(b, "\r\n"...)
	return e.chunks
}

// appendConnection appends what becomes of the connection after the answer, where that is not
// HTTP/1.1's default.
func (e *Exchange) appendConnection(b []byte) []byte {
	switch {
	case e.In.Close:
		return append(b, "Connection: close\r\n"...)
	case e.In.HTTP10:
		return append(b, "Connection: keep-alive\r\n"...)
	}
	return b
}

func appendField(b []byte, f message.Field) []byte {
	b = append(append(b, f.Name...), ": "...)
	return append(append(b, f.Value...), "\r\n"...)
}

// Stream sends the body in parts, until End.
func (e *Exchange) Stream() {
	e.on.phase = relayed
	e.stream = http1.WriterTo(e.on.Conn)
	e.on.Conn.StartAnswer()
	_, _ = e.stream.Write(e.out) // a failure shows in the next write, and at last in End
}

// Send adds a part of the body.
func (e *Exchange) Send(part []byte) error {
	if e.stream == nil {
		e.out = append(e.out, part...)
		return nil
	}
	if !e.chunks {
		_, err := e.stream.Write(part)
		return err
	}
	return http1.WriteChunk(e.stream, part)
}

// Trailers ends a body of unknown length, with the lines that come after it.
func (e *Exchange) Trailers(lines []message.Line) error {
	b := append(e.out[:0], "0\r\n"...)
	for i := range lines {
		b = lines[i].Append(b)
	}
	e.out = append(b, "\r\n"...)
	_, err := e.stream.Write(e.out)
	return err
}

// Flush writes what there is of a stream.
func (e *Exchange) Flush() error { return e.stream.Flush() }

// End writes what there is, which is the last of the answer. at is an instant just now, or zero.
func (e *Exchange) End(at time.Time) (err error) {
	if e.stream == nil {
		e.on.phase, e.on.Conn.WriteAt = relayed, at
		_, err = e.on.Conn.Write(e.out)
		return err
	}
	err = e.stream.Flush()
	e.on.Conn.endAnswer()
	http1.ReleaseWriter(e.stream)
	e.stream = nil
	return err
}

// Abort breaks the answer off, and nothing more is sent. Where the end of the connection is the
// body's, one in order would pass the part off as the whole.
func (e *Exchange) Abort() {
	if e.on.phase, e.In.Close = relayed, true; e.ends {
		e.on.Conn.Reset()
	}
}
