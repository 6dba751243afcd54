package screen

import (
	"bufio"

	"sluice/edge/http1"
	"sluice/edge/message"
)

// An Outgoing is an origin's answer on its way to the client: what goes, as Incoming is what came. Interim answers go at once. The answer
// itself is put together by Head and Body until Flush; one whose body comes in parts is streamed, from Stream to Done.
type Outgoing struct {
	On     *Screen
	buf    []byte        // what has not been written, but of a stream
	stream *bufio.Writer // nil: there is none
	chunks bool          // the body is sent in chunks,
	ends   bool          // or ends with the connection
}

// Invite tells the client to send its body (RFC 9110, 10.1.1). A failure shows when the body is read.
func (o *Outgoing) Invite() { _, _ = o.On.Conn.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")) }

// Interim sends an interim answer (RFC 9110, 15.2), without the lines that only the edge may say. A client of HTTP/1.0 gets none. A failure
// shows when the answer itself is written.
func (o *Outgoing) Interim(a *message.Answer, ours func(status int, name []byte) bool) {
	if !o.On.Request.HTTP10 {
		o.buf = append(http1.AppendAnswer(o.buf[:0], a, ours), "\r\n"...)
		_, _ = o.On.Conn.Write(o.buf)
	}
}

// Head begins the answer: with the lines of a but those that only the edge may say, and then what the edge does say. It reports whether
// the body, whose length a does not know, is to be ended by Trailers. (To a client of HTTP/1.0 such a body ends with the connection.)
func (o *Outgoing) Head(a *message.Answer, ours func(status int, name []byte) bool, fields []message.Field) (open bool) {
	r := o.On.Request
	unknown := a.Length < 0 && a.Protocol == nil
	o.chunks, o.ends = unknown && !r.HTTP10, unknown && r.HTTP10
	b := http1.AppendAnswer(o.buf[:0], a, ours)
	if o.chunks {
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
		b = append(append(append(append(b, f.Name...), ": "...), f.Value...), "\r\n"...)
	}
	r.Close = r.Close || o.ends
	switch {
	case a.Protocol != nil:
		b = append(b, "Connection: Upgrade\r\nUpgrade: "...)
		b = append(append(b, a.Protocol...), "\r\n"...)
	case r.Close:
		b = append(b, "Connection: close\r\n"...)
	case r.HTTP10:
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	o.buf = append(b, "\r\n"...)
	return o.chunks
}

// Stream sends a body in parts, which the client must take at a pace, until Done.
func (o *Outgoing) Stream() {
	o.On.Phase = Relayed
	o.stream = http1.WriterTo(o.On.Conn)
	o.On.Conn.startAnswer()
	_, _ = o.stream.Write(o.buf) // a failure shows in the next write, and at last in Flush
}

// Done ends a stream. What has not been flushed is lost.
func (o *Outgoing) Done() {
	o.On.Conn.endAnswer()
	http1.ReleaseWriter(o.stream)
	o.stream = nil
}

// Body adds a part of the body.
func (o *Outgoing) Body(part []byte) error {
	if o.stream == nil {
		o.buf = append(o.buf, part...)
		return nil
	}
	if !o.chunks {
		_, err := o.stream.Write(part)
		return err
	}
	return http1.WriteChunk(o.stream, part)
}

// Trailers ends a body of unknown length, with the lines that come after it.
func (o *Outgoing) Trailers(lines []message.Line) error {
	b := append(o.buf[:0], "0\r\n"...)
	for i := range lines {
		b = lines[i].Append(b)
	}
	o.buf = append(b, "\r\n"...)
	_, err := o.stream.Write(o.buf)
	return err
}

// Flush writes what there is.
func (o *Outgoing) Flush() error {
	if o.stream != nil {
		return o.stream.Flush()
	}
	o.On.Phase = Relayed
	_, err := o.On.Conn.Write(o.buf)
	return err
}

// Abort says that the body broke off. Where the end of the connection is the body's, one in order would pass the part off as the whole.
func (o *Outgoing) Abort() {
	if o.ends {
		o.On.Conn.Reset()
	}
}
