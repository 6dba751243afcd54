package memcached

import (
	"bytes"
	"fmt"
	"net"
	"time"

	"sluice/pop/wire"
)

// guard stands between gomemcache and a connection, and lets through only what gomemcache survives.
// On its own it panics on a line that is too short, makes room for whatever length a node names,
// extends its deadline with every line, and takes what is left of one answer for the next one's.
type guard struct {
	net.Conn
	deadline time.Time // of the exchange under way; the zero Time is none
	again    bool      // it was missed, and set again
	refused  error     // what the last answer said, if it was a refusal

	line []byte // of an answer, as far as it has come
	skip int    // bytes still to come of a value and its line end
	open bool   // an answer is expected, or not complete
	err  error  // after an error nothing comes through any more
}

// begin opens an exchange that must end by the deadline.
func (g *guard) begin(deadline time.Time) {
	g.deadline, g.again, g.refused = deadline, false, nil
	g.Conn.SetDeadline(deadline)
}

// SetDeadline sets a deadline no later than that of the exchange.
func (g *guard) SetDeadline(t time.Time) error {
	if t.After(g.deadline) {
		t = g.deadline
	}
	return g.Conn.SetDeadline(t)
}

func (g *guard) Write(b []byte) (int, error) {
	g.open = true
	return g.Conn.Write(b)
}

func (g *guard) Read(b []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.Conn.Read(b)
	if n == 0 && !g.again && late(err, g.deadline) {
		g.again = true
		g.deadline = time.Now().Add(exchange)
		g.Conn.SetDeadline(g.deadline)
		n, err = g.Conn.Read(b)
	}
	if g.err = g.scan(b[:n]); g.err != nil {
		return 0, g.err
	}
	return n, err
}

// scan looks at what came before gomemcache does.
func (g *guard) scan(b []byte) error {
	for len(b) > 0 {
		if g.skip > 0 {
			n := min(g.skip, len(b))
			g.skip -= n
			b = b[n:]
			continue
		}
		if !g.open {
			return fmt.Errorf("%w: unsolicited bytes: %.80q", errAnswer, b)
		}
		n := bytes.IndexByte(b, '\n') + 1
		if n == 0 {
			n = len(b)
		}
		g.line = append(g.line, b[:n]...)
		b = b[n:]
		line, used, err := cutLine(g.line)
		if err != nil {
			return err
		}
		if used == 0 {
			continue
		}
		if bytes.HasPrefix(line, []byte("VALUE ")) {
			_, size, _, ok := parseValueLine(line)
			if !ok {
				return wrongAnswer(wire.Get, line)
			}
			g.skip = size + 2
		} else {
			g.open = false
			g.refused = refusal(line)
		}
		g.line = g.line[:0]
	}
	return nil
}
