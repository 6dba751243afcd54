package replay

import (
	"context"
	"strconv"
	"sync"
	"time"

	"sluice/loadgen/socket"
	"sluice/loadgen/trace"
)

// multiplexer is a replay in HTTP/2 under way. One goroutine sends what is due; each connection has
// one that writes and one that reads, since TLS reads until it has a whole record. mu guards all of
// it.
type multiplexer struct {
	run
	ctx     context.Context // when it ends, no more is sent
	mu      sync.Mutex
	pools   []h2pool
	conns   map[*h2conn]struct{}
	busy    int     // requests that wait for an answer
	queued  int     // requests that wait for a stream
	starved []int32 // pools that want a connection, and there are too many
	workers sync.WaitGroup
}

// h2pool is the connections that may carry a source's requests.
type h2pool struct {
	conns  []*h2conn
	queue  []int32 // requests that wait for a stream
	opened uint32
}

func newMultiplexer(ctx context.Context, r *Replay, t *trace.Trace) *multiplexer {
	m := &multiplexer{run: newRun(r, t), ctx: ctx, conns: make(map[*h2conn]struct{})}
	m.pools = make([]h2pool, m.poolsNeeded())
	if r.Carrier == Forwarded {
		r.MaxPerSource = r.MaxConns
	}
	m.out.token = strconv.FormatInt(m.out.Start.UnixNano(), 36)
	return m
}

// loop is the life of a replay: send what is due, sleep until the next is.
func (m *multiplexer) loop(p *socket.Poller) error {
	const (
		burst = 32                     // requests sent before answers are let in
		chore = 100 * time.Millisecond // between two rounds of housekeeping
		last  = time.Millisecond       // between two looks whether the last answers have come
	)
	next, nextChore := 0, time.Duration(0)
	requests := m.trace.Requests
	var stopped error
	step := func() (over bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		now := m.now()
		for range burst {
			if next == len(requests) || m.due(requests[next].At) > now {
				break
			}
			m.dispatch(int32(next), false)
			next++
		}
		if now >= nextChore {
			m.housekeep(now)
			nextChore = now + chore
			if stopped == nil && m.ctx.Err() != nil {
				stopped = m.ctx.Err()
				requests = requests[:next]
				m.dropQueued()
				m.Timeout = min(m.Timeout, time.Second)
			}
		}
		return next == len(requests) && m.busy == 0 && m.queued == 0 && m.leave()
	}
	for !step() {
		wake := min(nextChore, m.now()+last)
		if next < len(requests) {
			wake = min(nextChore, m.due(requests[next].At))
		}
		if _, err := p.Wait(wake-m.now(), nil); err != nil {
			return err
		}
	}
	return stopped
}

// dispatch sends a request on a connection of its pool that has room or on a new one, or queues it
// where the bounds forbid another. A repeat never takes a connection that has been used.
func (m *multiplexer) dispatch(request int32, repeat bool) {
	if source := m.trace.Requests[request].Source; m.route(source) {
		for _, c := range append([]*h2conn{}, m.pools[source].conns...) {
			c.retire()
		}
	}
	id := m.poolOf(request)
	if p := &m.pools[id]; len(p.queue) > 0 || !m.assign(id, request, repeat) {
		p.queue = append(p.queue, request)
		m.queued++
	}
}

// assign finds a stream for a request, and reports whether there is one.
func (m *multiplexer) assign(id, request int32, repeat bool) bool {
	p := &m.pools[id]
	for i := len(p.conns) - 1; i >= 0; i-- { // the last that was made first
		if c := p.conns[i]; c.hasRoom() && !(repeat && c.used > 0) {
			c.send(request)
			return true
		}
	}
	if len(p.conns) >= m.MaxPerSource {
		return false
	}
	if len(m.conns) >= m.MaxConns {
		m.starved = append(m.starved, id)
		return false
	}
	nth := p.opened
	p.opened++
	m.choose(m.trace.Requests[request].Source, id, nth, func(edge int, _ bool) bool {
		m.open(id, edge, request)
		return false // that shows later
	})
	return true
}

// serve gives streams to requests of a pool that wait for one.
func (m *multiplexer) serve(id int32) {
	for p := &m.pools[id]; len(p.queue) > 0 && m.assign(id, p.queue[0], false); {
		p.queue = p.queue[1:]
		m.queued--
	}
}

// elsewhere sends a request once more that its edge has not taken, unless that happens all the
// time.
func (m *multiplexer) elsewhere(request int32, written bool) bool {
	why := m.again[request]
	if why.rerouted++; why.rerouted > 2*len(m.edges) {
		return false
	}
	why.written = why.written || written
	m.again[request] = why
	m.out.Untaken++
	m.dispatch(request, true)
	return true
}

// housekeep retires connections that are idle and gives up what is overdue, and shows how far the
// replay is.
func (m *multiplexer) housekeep(now time.Duration) {
	for c := range m.conns {
		c.housekeep(now)
	}
	m.progress(now)
}

// leave has all connections end, and reports whether they have.
func (m *multiplexer) leave() bool {
	for c := range m.conns {
		c.retire()
	}
	return len(m.conns) == 0
}

// dropQueued forgets requests that were due but not sent.
func (m *multiplexer) dropQueued() {
	for i := range m.pools {
		m.pools[i].queue = nil
	}
	m.starved, m.queued = nil, 0
}

// closeAll ends every connection and waits for what serves it.
func (m *multiplexer) closeAll() {
	m.mu.Lock()
	m.dropQueued()
	for c := range m.conns {
		c.streams, c.resets = nil, nil // nothing is to be sent once more
		c.end(nil)
	}
	m.mu.Unlock()
	m.workers.Wait()
}
