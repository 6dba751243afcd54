package screen

import (
	"io"
	"net/http"
	"time"

	"sluice/edge/message"
)

// skipLimit is how much of a refused request's body is read so that its connection can stay open.
const skipLimit = 64 << 10

// StartBody begins to wait for the request's body, which the client must send at a pace: see Client.StartBody. All of it must be there by
// due, if that is not zero. The head is not in the buffer any more.
func (s *Screen) StartBody(grace, most time.Duration, due time.Time) {
	c, r := s.Conn, s.Request
	if r.Length == message.LengthChunked || r.Length > headBuffer {
		c.grow(bodyBuffer)
	}
	r.Body.Reader = c.Reader
	c.StartBody(grace, most)
	c.bodyDue = due
}

// SkipBody reads the body of a request that does not go on, so that the connection can stay open; one that is long or slow
// costs the connection instead.
func (s *Screen) SkipBody() {
	c, r := s.Conn, s.Request
	if r.BodyRead = true; r.Length <= skipLimit && !r.Close {
		s.StartBody(LingerTime, LingerTime, time.Time{})
		c.WriteAt = time.Time{} // it takes its time
		defer c.EndBody()
		for r.Body.Got+r.Body.Around <= skipLimit {
			part, err := r.Body.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				break
			}
			r.Body.Discard(len(part))
		}
	}
	s.Last()
}

// Last says that the request is the last of its connection, which is closed after its answer: what the client still sends is not read as
// another one.
func (s *Screen) Last() {
	s.Conn.Linger.Store(true)
	s.Request.Close = true
}

// Upgrade is the protocol that a request asks to switch to. A request with a body, or one that asks for anything else, is an ordinary
// request: the wish ends at this hop (RFC 9110, 7.8).
func (r *Incoming) Upgrade() (protocol []byte) {
	if r.HTTP10 || string(r.Method) != http.MethodGet || r.Length != 0 || !r.Head.Asks {
		return nil
	}
	for i := range r.Head.Lines {
		if l := &r.Head.Lines[i]; l.Kind == message.HopByHop && message.EqualFold(l.Name, "upgrade") {
			if protocol != nil {
				return nil
			}
			protocol = l.Value
		}
	}
	return protocol
}

// TakesTrailers reports whether a line says that the client takes an answer's trailers.
func (r *Incoming) TakesTrailers(l *message.Line) bool {
	return l.Kind == message.HopByHop && !r.HTTP10 && message.TakesTrailers(l)
}
