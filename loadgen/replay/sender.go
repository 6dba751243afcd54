package replay

import (
	"slices"
	"time"

	"sluice/loadgen/socket"
	"sluice/loadgen/trace"
)

// sender is a replay in HTTP/1.1 under way: its connections, and what waits for one. A single
// goroutine owns it.
//
// Connections live in slots and are distinguished by slot and generation, since an event may be
// about a connection that another event of the same batch has closed. Each belongs to a pool.
type sender struct {
	run
	poller  *socket.Poller
	pools   []pool
	slots   []*conn
	free    []int32
	live    int     // connections open
	busy    int     // requests under way
	queued  int     // requests waiting for a connection
	waiting []int32 // of these, those that may go to any new connection
	oldest  *conn   // idle connections, the longest idle first
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

func newSender(r *Replay, trace *trace.Trace, p *socket.Poller) *sender {
	s := &sender{run: newRun(r, trace), poller: p}
	s.pools = make([]pool, s.poolsNeeded())
	if r.Carrier == Forwarded {
		r.MaxPerSource = r.MaxConns
	}
	return s
}

// dispatch sends a request on an idle connection of its pool or on a new one, or queues it where
// the bounds forbid another. A repeat never takes a connection that has been used.
func (s *sender) dispatch(request int32, repeat bool) {
	if source := s.trace.Requests[request].Source; s.route(source) {
		for idle := s.pools[source].idle; len(idle) > 0; idle = s.pools[source].idle {
			s.close(idle[len(idle)-1])
		}
	}
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

// open sends a request on a connection of its own.
func (s *sender) open(id, request int32) {
	p := &s.pools[id]
	nth := p.opened
	p.opened++
	s.choose(s.trace.Requests[request].Source, id, nth, func(edge int, last bool) bool {
		asked := s.now()
		err := s.connect(id, request, edge)
		if s.Walled && s.shut(request, edge, err, asked) {
			return false
		}
		if err != nil && (last || err != socket.ErrRefused) {
			s.fail(request, edge, err)
		}
		return err == socket.ErrRefused
	})
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

// close ends a connection, and lets a request that waits for its place have it when the loop comes
// round: not at once, because that one's connection may fail too, and so on through the queue.
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

// housekeep closes what is idle or overdue, and shows how far the replay is.
func (s *sender) housekeep(now time.Duration) {
	for s.oldest != nil && now-s.oldest.since > s.Idle {
		s.close(s.oldest)
	}
	for _, c := range s.slots {
		if c.fd >= 0 && !c.idle && now-c.since > s.Timeout {
			s.give(c, errTimeout)
		}
	}
	s.progress(now)
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
