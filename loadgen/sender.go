package loadgen

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// sender is a replay under way: its connections, and what waits for one. A single goroutine owns it.
//
// Connections live in slots and are told apart by slot and generation, since an event may speak of a connection that
// another event of the same batch has closed. Each belongs to a pool: a source's, or, where sources share connections, a
// PoP's.
type sender struct {
	*Replay
	trace   *Trace
	poller  *poller
	out     *Outcome
	edges   []netip.AddrPort // of all PoPs in a row
	first   []int            // a PoP's first edge in edges
	popOf   []int            // of a source
	pools   []pool
	slots   []*conn
	free    []int32
	live    int             // connections open
	busy    int             // requests under way
	queued  int             // requests waiting for a connection
	waiting []int32         // of these, those that may go to any new connection
	again   map[int32]again // requests that needed more than one connection
	shunned []time.Duration // per edge: until when it is left out
	oldest  *conn           // idle connections, the longest idle first
	newest  *conn
	scratch [64 << 10]byte
}

// pool is the connections that may carry a source's requests.
type pool struct {
	idle   []*conn // the last used last
	queue  []int32 // requests that wait for one of its connections
	live   int32
	opened uint32
}

// again is why a request needed more than one connection.
type again struct {
	written  bool // it was written before, and its connection died
	rerouted int  // how often an edge refused its connection
}

// conn is a connection. It carries one request at a time.
type conn struct {
	slot, generation int32
	fd               int
	pool             int32
	edge             int16
	idle             bool
	used             int           // requests answered
	request          int32         // under way
	since            time.Duration // the request was written, or the connection fell idle
	rest             []byte        // of the request: not yet written
	buf              []byte        // what rest points into
	answer           answer
	older, newer     *conn // neighbours among the idle
}

func newSender(r *Replay, trace *Trace, p *poller) *sender {
	s := &sender{
		Replay: r,
		trace:  trace,
		poller: p,
		again:  make(map[int32]again),
		popOf:  make([]int, len(trace.Sources)),
		out: &Outcome{
			Decisions: make([]Decision, 0, len(trace.Requests)),
			Addresses: r.Carrier.Addresses(trace),
			Statuses:  make(map[int]int),
			Errors:    make(map[string]int),
			SendError: hdrhistogram.New(100, int64(10*time.Minute), 3),
			Latency:   hdrhistogram.New(1000, int64(10*time.Minute), 3),
		},
	}
	for _, edges := range r.PoPs {
		s.first = append(s.first, len(s.edges))
		s.edges = append(s.edges, edges...)
	}
	s.shunned = make([]time.Duration, len(s.edges))
	for i, source := range trace.Sources {
		s.popOf[i] = min(max(r.Affinity(source.Addr), 0), len(r.PoPs)-1)
	}
	s.pools = make([]pool, len(trace.Sources))
	if r.Carrier == Forwarded {
		s.pools = make([]pool, len(r.PoPs))
		r.MaxPerSource = r.MaxConns
	}
	s.out.Start = time.Now()
	return s
}

// now is the run time.
func (s *sender) now() time.Duration { return time.Since(s.out.Start) }

func (s *sender) poolOf(request int32) int32 {
	source := s.trace.Requests[request].Source
	if s.Carrier == Forwarded {
		return int32(s.popOf[source])
	}
	return source
}

// address is where a request comes from as its edge is to see it: the source's, except that one which rotates through a
// prefix changes it with each request where the carrier can.
func (s *sender) address(request int32) netip.Addr {
	source := s.trace.Requests[request].Source
	if s.Carrier != Loopback && s.trace.Sources[source].Spread > 1 {
		return s.trace.Addr(int(request))
	}
	return s.out.Addresses[source]
}

// dispatch sends a request on an idle connection of its pool or on a new one, or queues it where the bounds forbid
// another. A repeat never takes a connection that has been used.
func (s *sender) dispatch(request int32, repeat bool) {
	id := s.poolOf(request)
	p := &s.pools[id]
	switch n := len(p.idle); {
	case n > 0 && !repeat:
		c := p.idle[n-1]
		s.unidle(c)
		s.send(c, request)
	case int(p.live) >= s.MaxPerSource:
		p.queue = append(p.queue, request)
		s.queued++
	case s.live >= s.MaxConns && s.oldest == nil:
		s.waiting = append(s.waiting, request)
		s.queued++
	default:
		if s.live >= s.MaxConns {
			s.close(s.oldest)
		}
		s.open(id, request)
	}
}

// open sends a request on a connection of its own: to the edge that the connection hashes to, or, while that one
// refuses, to the next of its PoP.
func (s *sender) open(id, request int32) {
	p := &s.pools[id]
	source := s.trace.Requests[request].Source
	pop := s.popOf[source]
	n := len(s.PoPs[pop])
	choice := s.edgeOf(pop, id, p.opened)
	p.opened++
	for try := range n {
		edge := s.first[pop] + (choice+try)%n
		if try < n-1 && s.shunned[edge] > s.now() {
			continue
		}
		err := s.connect(id, request, edge)
		if err == nil {
			return
		}
		if err != errRefused || try == n-1 {
			s.fail(request, edge, err)
			return
		}
		s.shunned[edge] = s.now() + time.Second
		s.out.Rerouted++
	}
}

// connect opens a connection and writes the request. It returns an error before anything was written, none after.
func (s *sender) connect(id, request int32, edge int) error {
	source := s.address(request)
	var from netip.Addr
	if s.Carrier == Loopback {
		from = source
	}
	fd, err := dial(from, s.edges[edge])
	if err != nil {
		return err
	}
	c := s.slot()
	c.fd, c.pool, c.edge, c.used, c.idle, c.rest = fd, id, int16(edge), 0, false, c.rest[:0]
	if err := s.poller.add(fd, event{slot: c.slot, generation: c.generation}); err != nil {
		closeSocket(fd)
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
		if err == errReset { // the refusal came in between: nothing was written
			err = errRefused
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
	c.request, c.since = request, s.now()
	c.answer.reset(knownMethod(q.Method) == "HEAD")
	s.busy++
}

// flush writes what is left of the request.
func (s *sender) flush(c *conn) error {
	for len(c.rest) > 0 {
		n, err := write(c.fd, c.rest)
		if err == errAgain {
			return nil
		}
		if err != nil {
			return err
		}
		c.rest = c.rest[n:]
	}
	c.since = s.now()
	if !s.again[c.request].written {
		s.out.Sent++
		late := c.since - s.due(s.trace.Requests[c.request].At)
		observe(s.out.SendError, late)
	}
	return nil
}

func observe(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d), 0), h.HighestTrackableValue())) // cannot fail within the bounds
}

// ready takes an event: the rest of a request may be written, or bytes of an answer read.
func (s *sender) ready(e event) {
	c := s.slots[e.slot]
	if c.generation != e.generation || c.fd < 0 {
		return
	}
	if len(c.rest) > 0 && !c.idle {
		if err := s.flush(c); err != nil {
			s.broken(c, err)
			return
		}
	}
	for c.fd >= 0 && c.generation == e.generation {
		n, err := read(c.fd, s.scratch[:])
		switch {
		case err == errAgain:
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
		if err := c.answer.feed(s.scratch[:n]); err != nil {
			s.give(c, err)
			return
		}
		if c.answer.done() {
			s.finish(c)
		}
		if n < len(s.scratch) && !e.hangup {
			return // that was all; what comes later is another event
		}
	}
}

// finish books an answer and gives its connection the next request that waits.
func (s *sender) finish(c *conn) {
	now := s.now()
	a := &c.answer
	d := a.decision(s.out.Start, c.since, now)
	d.Source, d.Edge, d.Role = s.trace.Requests[c.request].Source, c.edge, s.trace.Role(int(c.request))
	s.out.Decisions = append(s.out.Decisions, d)
	s.out.Statuses[a.status]++
	if a.status >= 500 && d.Verdict != Closed {
		s.out.Troubled++
	}
	s.out.Answered++
	observe(s.out.Latency, now-c.since)
	s.busy--
	c.used++
	if a.close || c.used >= s.PerConnection {
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

func (s *sender) unidle(c *conn) {
	p := &s.pools[c.pool]
	if i := slices.Index(p.idle, c); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	if c.older != nil {
		c.older.newer = c.newer
	} else {
		s.oldest = c.newer
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		s.newest = c.older
	}
	c.older, c.newer, c.idle = nil, nil, false
}

// close ends a connection, and lets a request that waits for its place have it when the loop comes round: not at once,
// because that one's connection may fail too, and so on through the queue.
func (s *sender) close(c *conn) {
	if c.idle {
		s.unidle(c)
	}
	closeSocket(c.fd)
	c.fd = -1
	c.rest = nil
	s.free = append(s.free, c.slot)
	s.live--
	p := &s.pools[c.pool]
	p.live--
	if len(p.queue) > 0 {
		s.waiting = append(s.waiting, p.queue[0])
		p.queue = p.queue[1:]
	}
}

// drain sends what waited for a connection, as far as there are some now.
func (s *sender) drain() {
	for n := len(s.waiting); n > 0 && (s.live < s.MaxConns || s.oldest != nil); n-- {
		request := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.queued--
		s.dispatch(request, false)
	}
}

// broken takes a connection that failed under its request, or while idle.
func (s *sender) broken(c *conn, err error) {
	if c.idle {
		s.close(c)
		return
	}
	if c.used > 0 || err != errRefused {
		s.give(c, err)
		return
	}
	// The connection never stood, so nothing was written. A router that checks health would have sent it elsewhere.
	request, edge := c.request, int(c.edge)
	s.busy--
	s.close(c)
	s.shunned[edge] = s.now() + time.Second
	why := s.again[request]
	if why.rerouted++; why.rerouted >= len(s.PoPs[s.popOf[s.trace.Requests[request].Source]]) {
		s.fail(request, edge, err)
		return
	}
	s.again[request] = why
	s.out.Rerouted++
	s.dispatch(request, true)
}

// ended takes the end of a connection's stream.
func (s *sender) ended(c *conn) {
	switch {
	case c.idle:
		s.close(c)
	case c.answer.ended():
		c.answer.close = true
		s.finish(c)
	case c.answer.started():
		s.give(c, errCut)
	default:
		s.give(c, errClosedEarly)
	}
}

// give gives a connection up, and its request, unless that may be sent once more.
func (s *sender) give(c *conn, err error) {
	request, edge := c.request, int(c.edge)
	repeat := c.used > 0 && !c.answer.started() && !s.again[request].written &&
		(err == errReset || err == errClosedEarly) && idempotent(s.trace.Requests[request].Method)
	s.busy--
	s.close(c)
	if repeat {
		s.again[request] = again{written: true}
		s.out.Retried++
		s.dispatch(request, true)
		return
	}
	s.fail(request, edge, err)
}

func (s *sender) fail(request int32, edge int, err error) {
	known := false
	for _, sentinel := range []error{errRefused, errReset, errExhausted, errClosedEarly, errCut, errTimeout,
		errBadAnswer, errExtra, errTooLong} {
		known = known || errors.Is(err, sentinel)
	}
	reason := "connection failed"
	if known {
		reason = err.Error()
	}
	s.out.Errors[reason]++
	s.out.Decisions = append(s.out.Decisions, Decision{
		At: s.now(), Source: s.trace.Requests[request].Source, Edge: int16(edge), Verdict: Failed, Estimate: math.NaN(),
		Role: s.trace.Role(int(request)),
	})
}

// housekeep closes what is idle or overdue, and tells how far the replay is.
func (s *sender) housekeep(now time.Duration, next int) {
	for s.oldest != nil && now-s.oldest.since > s.Idle {
		s.close(s.oldest)
	}
	for _, c := range s.slots {
		if c.fd >= 0 && !c.idle && now-c.since > s.Timeout {
			s.give(c, errTimeout)
		}
	}
	if s.Progress == nil {
		return
	}
	p := Progress{Elapsed: now, Requests: len(s.trace.Requests), Sent: s.out.Sent, Answered: s.out.Answered,
		Refused: s.out.Statuses[429]}
	if n := len(s.trace.Requests); n > 0 {
		p.Total = s.due(s.trace.Requests[n-1].At)
	}
	for _, n := range s.out.Errors {
		p.Failed += n
	}
	s.Progress(p)
}

// dropQueued forgets requests that were due but not sent.
func (s *sender) dropQueued() {
	for i := range s.pools {
		s.pools[i].queue = nil
	}
	s.waiting, s.queued = nil, 0
}

// closeAll closes every connection, also those whose request was given up.
func (s *sender) closeAll() {
	for _, c := range s.slots {
		if c.fd >= 0 {
			closeSocket(c.fd)
			c.fd = -1
		}
	}
}
