package replay

import (
	"net/netip"
	"time"

	"sluice/loadgen/answer"
	"sluice/loadgen/socket"
)

// conn is a connection. It carries one request at a time.
type conn struct {
	slot, generation int32
	fd               int
	pool             int32
	edge             int16
	idle             bool
	used             int           // requests answered
	request          int32         // under way
	asked            time.Duration // it was about to be written
	since            time.Duration // the request was written, or the connection fell idle
	rest             []byte        // of the request: not yet written
	buf              []byte        // what rest points into
	answer           answer.Answer
	older, newer     *conn // neighbours among the idle
}

// connect opens a connection and writes the request. It returns an error before anything was
// written, none after.
func (s *sender) connect(id, request int32, edge int) error {
	source := s.address(request)
	var from netip.Addr
	if s.Carrier == Loopback {
		from = source
	}
	fd, err := socket.Dial(from, s.edges[edge])
	if err != nil {
		return err
	}
	c := s.slot()
	c.fd, c.pool, c.edge, c.used, c.idle, c.rest = fd, id, int16(edge), 0, false, c.rest[:0]
	if err := s.poller.Add(fd, socket.Event{Slot: c.slot, Generation: c.generation}); err != nil {
		socket.Close(fd)
		s.free = append(s.free, c.slot)
		return err
	}
	s.live++
	s.pools[id].live++
	s.out.Connections++
	c.buf = c.buf[:0]
	if s.Carrier == Proxy {
		c.buf = appendProxy(c.buf, source, uint16(1024+s.pools[id].opened%60000), s.edges[edge])
	}
	s.prepare(c, request)
	err = s.flush(c)
	if err != nil {
		s.busy--
		s.close(c)
		if err == socket.ErrReset && !s.Walled { // the refusal came in between: nothing was written
			err = socket.ErrRefused
		}
	}
	return err
}

func (s *sender) slot() *conn {
	if n := len(s.free); n > 0 {
		c := s.slots[s.free[n-1]]
		s.free = s.free[:n-1]
		c.generation++
		return c
	}
	c := &conn{slot: int32(len(s.slots))}
	s.slots = append(s.slots, c)
	return c
}

// send writes a request on a connection that was used before.
func (s *sender) send(c *conn, request int32) {
	c.buf = c.buf[:0]
	s.prepare(c, request)
	if err := s.flush(c); err != nil {
		s.broken(c, err)
	}
}

// prepare puts the request behind what c.buf holds and makes c ready for its answer.
func (s *sender) prepare(c *conn, request int32) {
	q := &s.trace.Requests[request]
	var forwarded netip.Addr
	if s.Carrier == Forwarded {
		forwarded = s.address(request)
	}
	c.buf = appendRequest(c.buf, q, forwarded)
	c.rest = c.buf
	c.request, c.asked = request, s.now()
	c.since = c.asked
	c.answer.Reset(knownMethod(q.Method) == "HEAD")
	s.busy++
}

// flush writes what is left of the request.
func (s *sender) flush(c *conn) error {
	var err error
	if c.rest, err = socket.WriteMost(c.fd, c.rest); err != nil || len(c.rest) > 0 {
		return err
	}
	c.since = s.now()
	s.wrote(c.request, c.since)
	return nil
}

// ready takes an event: the rest of a request may be written, or bytes of an answer read.
func (s *sender) ready(e socket.Event) {
	c := s.slots[e.Slot]
	if c.generation != e.Generation || c.fd < 0 {
		return
	}
	if len(c.rest) > 0 && !c.idle {
		if err := s.flush(c); err != nil {
			s.broken(c, err)
			return
		}
	}
	for c.fd >= 0 && c.generation == e.Generation {
		n, err := socket.Read(c.fd, s.scratch[:])
		switch {
		case err == socket.ErrAgain:
			return
		case err != nil:
			s.broken(c, err)
			return
		case n == 0:
			s.ended(c)
			return
		case c.idle:
			s.close(c) // it speaks without being asked (408 of an edge that closes, say)
			return
		}
		if err := c.answer.Feed(s.scratch[:n]); err != nil {
			s.give(c, err)
			return
		}
		if c.answer.Done() {
			s.finish(c)
		}
		if n < len(s.scratch) && !e.Hangup {
			return // that was all; what comes later is another event
		}
	}
}

// finish books an answer and gives its connection the next request that waits.
func (s *sender) finish(c *conn) {
	now := s.now()
	a := &c.answer
	s.answered(c.request, c.edge, a, c.asked, c.since, now)
	s.busy--
	c.used++
	if a.Close || c.used >= s.PerConnection {
		s.close(c)
		return
	}
	p := &s.pools[c.pool]
	if len(p.queue) > 0 {
		request := p.queue[0]
		p.queue = p.queue[1:]
		s.queued--
		s.send(c, request)
		return
	}
	c.idle, c.since = true, now
	p.idle = append(p.idle, c)
	c.older, c.newer = s.newest, nil
	if s.newest != nil {
		s.newest.newer = c
	} else {
		s.oldest = c
	}
	s.newest = c
}

// broken takes a connection that failed under its request, or while idle.
func (s *sender) broken(c *conn, err error) {
	if c.idle {
		s.close(c)
		return
	}
	if c.used > 0 || err != socket.ErrRefused || s.Walled {
		s.give(c, err)
		return
	}
	request, edge := c.request, int(c.edge)
	s.busy--
	s.close(c)
	if !s.turned(request, edge) {
		s.fail(request, edge, err)
		return
	}
	s.dispatch(request, true)
}

// ended takes the end of a connection's stream.
func (s *sender) ended(c *conn) {
	switch {
	case c.idle:
		s.close(c)
	case c.answer.Ended():
		c.answer.Close = true
		s.finish(c)
	case c.answer.Started():
		s.give(c, errCut)
	default:
		s.give(c, errClosedEarly)
	}
}

// give gives a connection up, and its request, unless that may be sent once more.
func (s *sender) give(c *conn, err error) {
	request, edge := c.request, int(c.edge)
	repeat := c.used > 0 && !c.answer.Started() && s.repeat(request, err)
	fresh := c.used == 0 && !c.answer.Started()
	written := len(c.rest) == 0
	s.busy--
	s.close(c)
	if s.Walled && fresh && s.shut(request, edge, err, c.asked) {
		if written {
			s.out.Unread++
		}
		return
	}
	if repeat {
		s.dispatch(request, true)
		return
	}
	s.fail(request, edge, err)
}
