// Package sim is a PoP in virtual time: edges, nodes, the way between them, and what goes wrong. It
// runs the very limiter and the very pop.Machine that edges run, without sockets, goroutines or
// sleep, so that hours of a PoP take seconds and every run gives the same.
package sim

import (
	"fmt"
	"time"

	"sluice/edge/limiter"
	"sluice/pop"
	"sluice/pop/across"
	"sluice/pop/poptest"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// World is a PoP. It is for one goroutine.
type World struct {
	Edges []*Edge
	Nodes []*poptest.Node

	Cost // of all edges, so far

	rtt     time.Duration
	now     time.Time
	batches []*batch // what is under way, in the order of arrival; batches[:arrived] has arrived
	arrived int
	spare   []*batch
	flying  int // commands and answers under way that are not polls
	steps   int // of machines, so far
	lively  time.Time

	presence time.Time // when edges that are not stepped last said that they are there

	rules    []limiter.Rule
	inFlight bool // one of them counts requests in flight
	exact    bool // one of them keeps its requests in the tier
	config   Config
	names    []string    // of the nodes
	held     [][]held    // by node: what it was sent while it hung, in the order of arrival
	died     []time.Time // by node: when it was last killed
	// Until then every machine is stepped at its pace, because something has just broken or come
	// back
	restless time.Time
}

// Config describes a World.
type Config struct {
	Edges, Nodes int
	RTT          time.Duration                // from an edge to a node and back
	Counters     int                          // of each edge's table; 0 means 100,000
	Capacity     int                          // of each node, in items; 0: no bound
	Skew         func(edge int) time.Duration // how far ahead an edge's clock is; nil: not at all
	// Of a request at first sight, at most; 0: it does not
	Wait   time.Duration
	Secret secret.Secret
	// Of each edge, where they differ; nil: all have Secret
	Secrets func(edge int) secret.Secret
	// Its name, under which edges leave marks; "": they do not
	PoP string
	// Edges do not learn how many there are; above the most that there can be they never are
	Learn bool
	// The nodes that edges begin with, by the names node0:11211 and so on; nil: all
	List []string
	// Carry, if not nil, carries out what a node is sent: to see it, or to answer instead of the
	// node.
	Carry func(c wire.Command, node *poptest.Node, now time.Time) wire.Result

	apart bool // every answer has a Step of its own

	// Decided, if not nil, is called with what an edge would send to the PoP's peers (pop.Config),
	// at Now.
	Decided func(across.Block)
	Counted func(across.Count) // likewise
}

// New makes a World that begins at start. Rules are those that every edge learns bits of; requests
// in flight are counted if one of them has a concurrency.
func New(c Config, rules []limiter.Rule, start time.Time) (*World, error) {
	if c.Counters == 0 {
		c.Counters = 100_000
	}
	w := &World{
		rtt: c.RTT, now: start, lively: start, config: c,
		held: make([][]held, c.Nodes), died: make([]time.Time, c.Nodes),
	}
	w.rules = rules
	for _, r := range rules {
		w.inFlight = w.inFlight || r.InFlight != nil
		w.exact = w.exact || r.Exact != nil
	}
	for i := range c.Nodes {
		w.Nodes = append(w.Nodes, poptest.New(c.Capacity))
		w.names = append(w.names, fmt.Sprintf("node%d:11211", i))
	}
	for i := range c.Edges {
		e := &Edge{world: w, index: i}
		if c.Skew != nil {
			e.skew = c.Skew(i)
		}
		if err := e.begin(); err != nil {
			return nil, err
		}
		e.tick = start.Add(pop.Tick * time.Duration(i) / time.Duration(c.Edges))
		w.Edges = append(w.Edges, e)
		e.step(pop.Event{}) // a process that runs has looked at the nodes
	}
	return w, nil
}

// Now is the virtual time.
func (w *World) Now() time.Time { return w.now }

// present lets edges say that they are there, which real ones do while they idle. A later read
// returns values no older than theirs.
func (w *World) present() {
	if w.now.Sub(w.presence) < idle {
		return
	}
	w.presence = w.now
	for _, e := range w.Edges {
		if e.gone || e.cut || w.now.Before(e.paused) {
			continue
		}
		if c, overdue := e.Machine.Presence(e.clock()); overdue {
			w.carry(c, e.node(c.Node))
		}
	}
}

const (
	idle = time.Second // between two steps of a machine while nothing can change
	// After the last line in the mitigation log, all edges that look then have surely read it: each
	// is stepped once more, however long it sleeps
	quiet = 100 * time.Millisecond
)

// Run lets time pass until the given instant. While nothing is under way, and no edge has anything
// to learn, it does not step the machines every few milliseconds as a real edge would, but now and
// then.
func (w *World) Run(until time.Time) {
	for w.step(until) {
	}
	if until.After(w.now) {
		w.now = until
	}
}

// step lets the next thing happen, and reports whether anything was left to happen until the given
// instant.
func (w *World) step(until time.Time) bool {
	if w.arrived < len(w.batches) {
		// Nothing comes before it
		if at := w.batches[w.arrived].at; !at.After(w.now) && !at.After(until) {
			w.next()
			return true
		}
	}
	next, tick, overdue := until, -1, -1
	lively := w.flying > 0 || w.now.Sub(w.lively) < quiet || w.now.Before(w.restless)
	for i, e := range w.Edges {
		at := e.next()
		switch {
		case e.gone:
			continue
		case w.now.Before(e.paused):
			at = e.paused
		case lively || e.Machine.Waiting() || e.ticked.Before(w.lively.Add(quiet)):
		case !e.busy:
			continue
		default:
			at = at.Add(idle)
		}
		if at.Before(w.now) {
			at = w.now
		}
		if at.Before(next) {
			next, tick = at, i
		}
	}
	for node, held := range w.held {
		if len(held) > 0 {
			if at := held[0].sent.Add(patience); at.Before(next) {
				next, tick, overdue = at, -1, node
			}
		}
	}
	switch {
	case w.arrived < len(w.batches) && !w.batches[w.arrived].at.After(next):
		w.next()
	case overdue >= 0:
		w.now = next
		w.lose(w.held[overdue][0])
		w.held[overdue] = w.held[overdue][1:]
	case tick >= 0:
		w.now = next
		w.Tick(tick)
	default:
		return false
	}
	return true
}

// next is when a machine is next stepped for nothing. While nothing was to be learned it was not,
// though a real one is: so it is where its paces have led it.
func (e *Edge) next() time.Time {
	late := e.world.now.Sub(e.tick)
	if late <= 0 || e.pace <= 0 {
		return e.tick
	}
	return e.tick.Add((late + e.pace - 1) / e.pace * e.pace)
}

// next lets what is first happen: commands arrive at their nodes, or answers at their edge.
func (w *World) next() {
	b := w.batches[w.arrived]
	if b.at.After(w.now) {
		w.now = b.at
	}
	if b.answers && w.answer(b) {
		return // there are more
	}
	w.batches[w.arrived] = nil
	if w.arrived++; w.arrived == len(w.batches) {
		w.batches, w.arrived = w.batches[:0], 0
	}
	if b.answers {
		w.spare = append(w.spare, b)
		return
	}
	w.landed(b.results)
	w.arrive(b)
}

// Tick steps one edge because time has passed.
func (w *World) Tick(edge int) {
	e := w.Edges[edge]
	e.ticked, e.tick = w.now, w.now.Add(idle)
	e.step(pop.Event{})
	// A process that wakes up steps before the answers that came meanwhile have been read
	if len(e.late) > 0 {
		late := e.late
		e.late = nil
		e.step(pop.Event{Results: late})
	}
	e.attend()
	e.busy = e.busy && e.Counters.Unreported() > 0
}

// answer gives an edge the first answer of a batch, and of as many more as are as quiet
// (pop.Machine.Quiet), and reports whether any are left.
func (w *World) answer(b *batch) (more bool) {
	e := w.Edges[b.edge]
	if e.gone || e.life != b.life || w.now.Before(e.paused) {
		if !e.gone && e.life == b.life {
			e.late = append(e.late, b.results[b.taken:]...)
		}
		w.landed(b.results[b.taken:])
		return false
	}
	from, now := b.taken, e.clock()
	b.taken++
	if !w.config.apart && e.Machine.Quiet(&b.results[from], now) {
		for b.taken < len(b.results) && e.Machine.Quiet(&b.results[b.taken], now) {
			b.taken++
		}
	}
	w.landed(b.results[from:b.taken])
	e.step(pop.Event{Results: b.results[from:b.taken]})
	e.attend()
	return b.taken < len(b.results)
}

// landed notes that commands or answers are no longer under way.
func (w *World) landed(results []wire.Result) {
	for i := range results {
		if !polls(&results[i].Command) {
			w.flying--
		}
	}
}

// A batch is the commands of a Step, on their way to nodes, or the answers on theirs back.
type batch struct {
	at      time.Time
	edge    int
	life    int       // of the edge when it sent them
	sent    time.Time // when it did
	answers bool
	taken   int   // so many the edge has taken in
	nodes   []int // of commands: their node, of World.Nodes
	results []wire.Result
}

// batch returns an empty one of an edge.
func (w *World) batch(edge, life int) *batch {
	b := new(batch)
	if last := len(w.spare) - 1; last >= 0 {
		b, w.spare = w.spare[last], w.spare[:last]
	}
	*b = batch{edge: edge, life: life, sent: w.now, nodes: b.nodes[:0], results: b.results[:0]}
	return b
}

// push sends a batch, unless it is empty, on its way, which takes half a round trip, for all alike:
// so they arrive as they leave.
func (w *World) push(b *batch) {
	if len(b.results) == 0 {
		w.spare = append(w.spare, b)
		return
	}
	b.at = w.now.Add(w.rtt / 2)
	for i := range b.results {
		if !polls(&b.results[i].Command) {
			w.flying++
		}
	}
	if len(w.batches) == cap(w.batches) && w.arrived > len(w.batches)/2 {
		w.batches, w.arrived = append(w.batches[:0], w.batches[w.arrived:]...), 0
	}
	w.batches = append(w.batches, b)
}
