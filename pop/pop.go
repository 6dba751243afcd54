// Package pop makes one limiter of the edges of a point of presence: it carries what they count to a small tier of memcached
// nodes, and back what the others have counted.
//
// A source's counters and bits are on one node, chosen by a hash of the source. An edge counts at once, in memory; then
// it reports its new hits with incr, whose answer is the PoP's total, so the report is also the query. What gathers for
// a counter while a report is under way is the next report: a source costs at most one increment per edge and round
// trip. When a total, or an edge's own verdict, says that a source is over its limit, a mitigation bit is set and
// written to a log of numbered items, of which every edge keeps reading the next.
//
// Machine decides all this without sockets, goroutines or clock, in the manner of etcd's raft: Step takes in what
// happened, works on the two tables it shares with the request path, and returns what to send. pop/memcached runs a
// Machine against real nodes; a simulation runs the same Machine in virtual time.
//
// # The rooms
//
// The Machine itself does three things: it steps, and polls nodes (pop.go, poll.go); it knows what was sent and not yet answered
// (flights.go); and it reports (report.go). All else is in rooms that know nothing of it. Arrows point down and are imports;
// those to secret and wire are left out, and so are those that others imply.
//
//	                 pop: step, flights, report
//	          ┌─────────────────┼──────────────────┐
//	      exchange              │                marks
//	what requests wait for      │        who is there under another secret
//	          └──────────── announcement
//	               what edges tell each other of
//	               a source, and learn of it
//	      ┌────────────────┬────┴───────────┬────────────────┐
//	  operators        placement           log            across
//	their list, and    which node       the mitigation    what PoPs
//	what is in force   has a source     log               tell each other
//	      │                                 │
//	  presence                           record
//	who shares the tier                what is in the log
//	      │
//	    words
//	the list itself
//
// wire is the commands to a node, and its answers; secret is keys and MACs. Each of these packages takes the time and
// answers, and returns commands, or sends them by the one function that it was given (announcement, exchange: what they
// send may follow from an answer deep in them).
//
// A command goes out through Machine.send, which gives it a tag and notes the flight. Its answer comes back through
// Step, and Machine.answered hands it to the package that sent the command.
package pop

import (
	"fmt"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/counter/buckets"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/mitigation"
	"sluice/pop/across"
	"sluice/pop/announcement"
	"sluice/pop/exchange"
	"sluice/pop/log"
	"sluice/pop/marks"
	"sluice/pop/operatorlog"
	"sluice/pop/operators"
	"sluice/pop/placement"
	"sluice/pop/presence"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// Config is what a Machine works with. All fields but PoP, Edges, Rules, Received, Decided, Counted and Viewed are required.
type Config struct {
	PoP      string   // its name, under which its edges leave marks on the nodes; "": they do not
	Nodes    []string // host:port of the memcached nodes; every edge of the PoP must have the same, in any order and spelling
	Secret   secret.Secret
	ID       uint64 // of this edge, random
	Name     string // of this edge, for operators; the first 64 bytes are used
	Edges    int    // how many edges share the tier; 0: learned from their presence
	Rules    bool   // changes of rules travel: the secret cannot be guessed
	Counters *counter.Table
	Bits     *mitigation.Table
	// Received is called with operators' orders about sources at other edges, as they come into force here. It must not
	// block, or call the Machine.
	Received func(operatorlog.Order)
	// Decided is called with each block that this edge announces to the PoP as the first, for PoPs that are its peers;
	// nil: there are none. It must not block, or call the Machine.
	Decided func(across.Block)
	// Counted is called likewise, with what the PoP has counted of a source near its limit.
	Counted func(across.Count)
	// Viewed is told, about once a second, at which node edges meet, and what is there that says that somebody looks at the whole PoP; nil:
	// nothing. It must not block, or call the Machine.
	Viewed func(node int, item []byte)
	// InFlight is the requests in flight on this edge, which it reports to the tier; nil: it does not.
	InFlight *inflight.Table
	// Exact is the requests of this edge under rules whose instants are kept in the tier; nil: there are none.
	Exact *exact.Table
}

// Machine is the PoP as one edge sees it. Step and Flush belong to one goroutine; SetRules, Alone, Unreported and Stats
// may be called from anywhere. Each of its packages says which of its methods may be, and all others belong to Step.
type Machine struct {
	Operators *operators.List         // what operators have said
	Nodes     *placement.Nodes        // which of them has a source, and which are up
	Announcer *announcement.Announcer // what edges send each other about sources
	Exchanges *exchange.Exchanges     // what requests wait for
	Marks     *marks.Board            // edges that count under another secret

	config   Config
	counters counter.Reports
	presence presence.Slots
	logs     *log.Logs

	nodes     []node
	unplaced  queue // to be reported when a node is up
	flights   flights
	out       []wire.Command
	arena     wire.Arena // of what is in out
	dirty     []counter.Counter
	backs     []counter.Back
	random    uint64
	ending    bool // Flush was called
	confirmed bool // and hits have been confirmed since the last sweep
	swept     time.Time
	cleaned   time.Time
	edges     atomic.Int64  // that share the tier
	forged    atomic.Uint64 // values that the rooms have not seen
}

// NewMachine makes a Machine that holds all nodes up until they prove otherwise.
func NewMachine(c Config, now time.Time) (*Machine, error) {
	if c.Edges > counter.MaxEdges {
		return nil, fmt.Errorf("pop: %d edges: at most %d share a tier", c.Edges, counter.MaxEdges)
	}
	nodes, err := placement.New(c.Nodes, c.Secret, now)
	if err != nil {
		return nil, err
	}
	m := &Machine{
		Nodes: nodes, Marks: marks.New(c.PoP, c.Secret, c.ID, now), config: c, counters: c.Counters.Reports(),
		presence: presence.New(c.Secret, c.ID), logs: log.New(c.Secret), swept: now, cleaned: now,
	}
	m.Operators = operators.New(operators.Config{Secret: c.Secret, ID: c.ID, Name: c.Name, Changes: c.Rules, Counters: c.Counters, Bits: c.Bits,
		Received: c.Received, Jitter: m.jitter}, now)
	m.Announcer = announcement.New(announcement.Config{
		Secret: c.Secret, ID: c.ID, Edges: c.Edges, Counters: m.counters, Bits: c.Bits, Operators: m.Operators, Nodes: nodes, Logs: m.logs, Decided: c.Decided, Counted: c.Counted,
		Send: func(c wire.Command, b *announcement.Bit) { m.send(c, flight{what: aBit, bit: b}) },
	})
	m.Exchanges = exchange.New(exchange.Config{
		Secret: c.Secret, Counters: m.counters, InFlight: c.InFlight, Exact: c.Exact, Operators: m.Operators, Nodes: nodes, Announcer: m.Announcer,
		Send: func(c wire.Command, a exchange.Request) {
			m.send(c, flight{what: anExchange, request: a, paid: !a.Read()})
		},
	})
	m.presence.Wall = m.wall
	m.addNodes()
	if c.Edges > 0 {
		m.counters.SetEdges(c.Edges)
	}
	return m, nil
}

// addNodes makes room for nodes that have been added to the list.
func (m *Machine) addNodes() {
	for len(m.nodes) < m.Nodes.Len() {
		m.nodes = append(m.nodes, node{operatorList: m.Operators.Nodes()})
	}
	m.logs.Grow(len(m.nodes))
	m.Marks.Grow(len(m.nodes))
}

// SetRules replaces the rules in force. Bits of other rules are not announced and not learned.
func (m *Machine) SetRules(rules []mitigation.Rule) {
	m.Announcer.SetRules(rules)
	m.Exchanges.SetRules(rules)
}

// jitter is a time a little below d that differs between edges and from time to time.
func (m *Machine) jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(m.chance()%uint64(d/4))
}

// chance is a number that differs between edges and from time to time.
func (m *Machine) chance() uint64 {
	m.random++
	return placement.Mix(m.config.ID ^ m.random)
}

// Event is what happened since the last Step: answers that came. An empty one says that time passed, or that the tables
// have something new.
type Event struct {
	Results []wire.Result
}

// Tick is about how often a Machine is stepped when nothing happens; StepIn returns what it wants at a time.
const Tick = 20 * time.Millisecond

const (
	sweepEvery = 100 * time.Millisecond
	cleanEvery = time.Second
)

// Step takes in an event and returns what to send; the slice is valid until the next call. Every command must be answered by
// one Result, whatever happens to it.
func (m *Machine) Step(now time.Time, e Event) []wire.Command {
	m.out = m.out[:0]
	for _, left := range m.Nodes.Advance(now) {
		m.giveUp(left, now)
	}
	m.addNodes()
	for i := range e.Results {
		m.answered(&e.Results[i], now)
	}
	m.Nodes.NoteAlone(now)
	m.Exchanges.SendReads()
	if m.Operators.Apply(now) {
		m.presence.Changed(now)
	}
	m.poll(now)
	m.sweep(now)
	m.Exchanges.Step(now)
	m.report(now)
	m.Announcer.AnnounceBlocks(now)
	m.Announcer.AnnounceCounts()
	m.Announcer.Resume(now)
	m.writeLogs(now)
	return m.out
}

// Flush begins the last report: everything that has not been reported goes, however little it matters. As much of it as
// may be under way is what Flush returns, and Step goes on with the rest, for as long as it is called. Unreported
// returns how much that is.
func (m *Machine) Flush(now time.Time) []wire.Command {
	m.out = m.out[:0]
	m.ending, m.swept = true, now
	m.depart(now)
	m.counters.Sweep(now, true)
	m.report(now)
	m.Announcer.AnnounceBlocks(now)
	m.writeLogs(now)
	return m.out
}

// sweep finds hits that can wait no longer, and forgets what is over. The last report takes as many rounds as a counter's hits need, so
// as long as nodes confirm hits of it, the next round follows.
func (m *Machine) sweep(now time.Time) {
	every := sweepEvery
	if m.confirmed {
		every = Tick
	}
	if now.Sub(m.swept) >= every {
		m.swept, m.confirmed = now, false
		if m.Nodes.Up() {
			m.counters.Sweep(now, m.ending)
		}
	}
	if now.Sub(m.cleaned) >= cleanEvery {
		m.cleaned = now
		m.config.Bits.Sweep(now) // a slice, because requests wait for this goroutine
		m.Operators.Sweep(now)
		m.noteSecrets(now)
		m.Announcer.Sweep(now)
	}
}

// Unreported returns how many hits the tier has not confirmed, and how many it never received, or may not have: those
// that were lost since the table was made. It may be called from anywhere.
func (m *Machine) Unreported() (hits, lost uint64) {
	s := m.counters.Stats()
	return s.Unreported, s.LostUnknown + s.LostFull + s.LostExpired + s.LostBacklog + s.LostSaturated + s.LostEvicted
}

// noteSecrets takes in which edges are there, under this secret and others.
func (m *Machine) noteSecrets(now time.Time) {
	m.Marks.Note(m.presence.Met(m.Operators.Self().Name), now)
}

// setEdges takes in how many edges share the tier.
func (m *Machine) setEdges(n int) {
	m.edges.Store(int64(min(n, counter.MaxEdges)))
	if m.config.Edges == 0 {
		m.counters.SetEdges(n)
	}
	m.logs.SetEdges(n)
	m.Announcer.SetEdges(n)
	m.Exchanges.SetEdges(n)
}

// wall is the time of the PoP: edges agree by it on sub-windows, and on the times that they send each other. It begins with the wall clock,
// and never goes back.
func (m *Machine) wall(now time.Time) time.Time { return m.counters.Wall(now) }

// followClock puts this edge's time forward to that of another edge that is further: they must agree on sub-windows. So steps of wall clocks
// change nothing, whether one steps or all are put right together, and an edge that begins with another time, or was suspended, joins
// the others, or they join it. Nobody goes back, since hits would be dated into a time that was counted already.
func (m *Machine) followClock(now time.Time) {
	by := m.presence.Behind()
	if by == 0 {
		return
	}
	for tag := range m.flights.list {
		f := &m.flights.list[tag]
		switch f.what {
		case aReport:
			if !f.late {
				m.counters.Lost(f.counter, f.part, now)
			}
			f.what = unheeded
		case anEcho:
			f.what = unheeded
		case anExchange:
			f.request.ClockStepped()
		}
	}
	m.counters.Adjust(by, m.Nodes.Up(), now)
	m.Exchanges.ClockStepped()
}

// StepIn is how soon the machine wants to be stepped when nothing happens.
func (m *Machine) StepIn(now time.Time) time.Duration {
	return m.Announcer.In(m.Exchanges.In(m.logs.In(now), now), now)
}

// Waiting reports whether the machine has left something for later, so that it is to be stepped though nothing happens.
func (m *Machine) Waiting() bool {
	return m.logs.Waiting() || m.Announcer.Waiting() || m.Exchanges.Waiting()
}

// Alone returns how many edges shared the tier, as last known, and since when no node is left, as Step noticed; the
// zero time: one is.
func (m *Machine) Alone() (edges int, since time.Time) {
	if since = m.Nodes.Alone(); since.IsZero() {
		return 0, since
	}
	return max(m.config.Edges, int(m.edges.Load()), 1), since
}

// MachineStats is what a Machine has seen since it was made.
type MachineStats struct {
	Propagation     *buckets.Histogram // from a verdict on another edge until it was in force on this one
	Forged          uint64             // values in the tier that were not of the form, or not authentic
	LogRecords      uint64             // that this edge wrote to the mitigation log
	LogLost         uint64             // that it could not write
	Edges           int                // that share the tier
	Full            bool               // the PoP has as many edges as can share it, and this one counts alone until one leaves
	OperatorEntries int                // of operators that the list holds: blocks, lifts that must be kept, changes of rules
}

// Stats is what the Machine and its rooms have seen.
func (m *Machine) Stats() MachineStats {
	written, lost, forged := m.logs.Stats()
	return MachineStats{
		Full: m.Nodes.Full(), OperatorEntries: m.Operators.Len(),
		Propagation: m.Announcer.Propagation, Forged: m.forged.Load() + m.Operators.Forged() + m.Exchanges.Forged() + forged, LogRecords: written, LogLost: lost,
		Edges: int(max(m.edges.Load(), 1)),
	}
}
