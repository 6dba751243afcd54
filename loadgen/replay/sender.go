package replay

import (
	"net/netip"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/loadgen/judge"
	"sluice/loadgen/socket"
	"sluice/loadgen/trace"
)

// sender is a replay under way: its connections, and what waits for one. A single goroutine owns it.
//
// Connections live in slots and are told apart by slot and generation, since an event may speak of a connection that
// another event of the same batch has closed. Each belongs to a pool: a source's, or, where sources share connections, a
// PoP's.
type sender struct {
	*Replay
	trace   *trace.Trace
	poller  *socket.Poller
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
	ejected []time.Duration // per edge: until when it is left out
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

func newSender(r *Replay, trace *trace.Trace, p *socket.Poller) *sender {
	s := &sender{
		Replay: r,
		trace:  trace,
		poller: p,
		again:  make(map[int32]again),
		popOf:  make([]int, len(trace.Sources)),
		out: &Outcome{
			Decisions: make([]judge.Decision, 0, len(trace.Requests)),
			Addresses: r.Carrier.Addresses(trace),
			Statuses:  make(map[int]int),
			Errors:    make(map[string]int),
			Unjudged:  make(map[string]int),
			SendError: hdrhistogram.New(100, int64(10*time.Minute), 3),
			Latency:   hdrhistogram.New(1000, int64(10*time.Minute), 3),
			Decided:   hdrhistogram.New(1000, int64(10*time.Minute), 3),
		},
	}
	for _, edges := range r.PoPs {
		s.first = append(s.first, len(s.edges))
		s.edges = append(s.edges, edges...)
	}
	s.ejected = make([]time.Duration, len(s.edges))
	for i, source := range trace.Sources {
		s.popOf[i] = min(max(r.Affinity(source.Addr, 0), 0), len(r.PoPs)-1)
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
	s.route(s.trace.Requests[request].Source)
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

// route finds the PoP of a source anew.
func (s *sender) route(source int32) {
	if len(s.PoPs) == 1 {
		return
	}
	pop := min(max(s.Affinity(s.trace.Sources[source].Addr, s.now()), 0), len(s.PoPs)-1)
	if pop == s.popOf[source] {
		return
	}
	s.popOf[source] = pop
	if s.Carrier != Forwarded { // there a pool is a PoP's
		for idle := s.pools[source].idle; len(idle) > 0; idle = s.pools[source].idle {
			s.close(idle[len(idle)-1])
		}
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
		if try < n-1 && s.ejected[edge] > s.now() {
			continue
		}
		err := s.connect(id, request, edge)
		if err == nil {
			return
		}
		if err != socket.ErrRefused || try == n-1 {
			s.fail(request, edge, err)
			return
		}
		s.ejected[edge] = s.now() + time.Second
		s.out.Rerouted++
	}
}

func (s *sender) unidle(c *conn) {
	p := &s.pools[c.pool]
	if last := len(p.idle) - 1; p.idle[last] == c { // as a rule: the last used is the next used
		p.idle = p.idle[:last]
	} else if i := slices.Index(p.idle, c); i >= 0 {
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
	socket.Close(c.fd)
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
			socket.Close(c.fd)
			c.fd = -1
		}
	}
}
