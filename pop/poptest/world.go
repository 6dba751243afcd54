package poptest

import (
	"fmt"
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop"
)

// World is a PoP in virtual time: edges with their tables and machines, nodes, and the way between them. It runs the very
// machine that edges run, without sockets, goroutines or sleep. It is for one goroutine.
type World struct {
	Edges []*Edge
	Nodes []*Node

	Commands uint64 // sent to nodes, those for the mitigation log and for presence not included

	rtt     time.Duration
	now     time.Time
	events  []event // what is under way, in the order of arrival; events[:arrived] has arrived
	arrived int
	flying  int // commands and answers under way that are not probes
	lively  time.Time

	rules    []pop.Rule
	config   WorldConfig
	names    []string    // of the nodes
	held     [][]event   // by node: what it was sent while it hung, in the order of arrival
	died     []time.Time // by node: when it was last killed
	restless time.Time   // until then every machine is stepped at its pace, because something has just broken or come back
}

// WorldConfig says how large a World is.
type WorldConfig struct {
	Edges, Nodes int
	RTT          time.Duration                // from an edge to a node and back
	Counters     int                          // of each edge's table; 0 means 100,000
	Capacity     int                          // of each node, in items; 0: no bound
	Skew         func(edge int) time.Duration // how far ahead an edge's clock is; nil: not at all
	Secret       pop.Secret
	Learn        bool // edges are not told how many there are; above the most that there can be they never are
}

// Edge is one edge of a World.
type Edge struct {
	Counters *counter.Table
	Bits     *mitigation.Table
	Machine  *pop.Machine

	world *World
	index int
	skew  time.Duration
	awake bool
	busy  bool      // it may have something to report that is not under way
	tick  time.Time // when the machine is next stepped for nothing
	life  int       // how often it was started; what an earlier life sent is not answered
	gone  bool      // it does not run
	cut   bool      // it reaches no node
}

// NewWorld makes a World that begins at start, every edge enforcing rules.
func NewWorld(c WorldConfig, rules []pop.Rule, start time.Time) (*World, error) {
	if c.Counters == 0 {
		c.Counters = 100_000
	}
	w := &World{
		rtt: c.RTT, now: start, lively: start, rules: rules, config: c,
		held: make([][]event, c.Nodes), died: make([]time.Time, c.Nodes),
	}
	for i := range c.Nodes {
		w.Nodes = append(w.Nodes, New(c.Capacity))
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
	}
	return w, nil
}

// begin gives an edge new tables and a new machine, as a process has them that has just started.
func (e *Edge) begin() error {
	c := &e.world.config
	wake := func() { e.awake = true }
	e.Counters = counter.New(counter.Options{Counters: c.Counters, Tier: true, Phase: c.Secret.Phase, Wake: wake})
	e.Bits = mitigation.New(c.Counters, wake)
	known := c.Edges
	if c.Learn || known > counter.MaxEdges {
		known = 0
	}
	m, err := pop.NewMachine(pop.Config{
		Nodes: e.world.names, Secret: c.Secret, ID: uint64(e.life*c.Edges + e.index + 1), Name: fmt.Sprintf("edge%d", e.index),
		Edges: known, Counters: e.Counters, Bits: e.Bits,
	}, e.clock())
	if err != nil {
		return err
	}
	m.SetRules(e.world.rules)
	e.Machine, e.life, e.awake, e.gone = m, e.life+1, false, false
	return nil
}

// clock is the time as the edge sees it.
func (e *Edge) clock() time.Time { return e.world.now.Add(e.skew) }

// Now is the virtual time.
func (w *World) Now() time.Time { return w.now }

// Decide asks the rules of an edge about a request at the current time, as the edge's request path does: bits first, then
// counters. A rule that is over and has a timeout starts a mitigation.
func (e *Edge) Decide(rule pop.Rule, ask *[1]counter.Ask) (mitigated time.Time, admitted bool) {
	now := e.clock()
	key := mitigation.Key{Rule: ask[0].Rule.ID, Source: ask[0].Source}
	if until := e.Bits.Until(key, now); !until.IsZero() {
		return until, false
	}
	e.busy = true
	admitted = e.Counters.Reserve(ask[:], now)
	if end := mitigation.End(ask[0].Verdict, rule.Timeout, now); !end.IsZero() {
		e.Bits.Start(key, mitigation.Bit{Start: now, End: end, By: mitigation.ByEdge}, now)
	}
	e.attend()
	return time.Time{}, admitted
}

// Say has an operator say something at the edge.
func (e *Edge) Say(word pop.Word) (pop.Receipt, error) {
	e.world.restless = e.world.now.Add(unrest)
	e.awake = true
	receipt, err := e.Machine.Say(word, e.clock())
	e.attend()
	return receipt, err
}

// attend steps the machine if its tables have something new.
func (e *Edge) attend() {
	for e.awake {
		e.awake = false
		e.step(pop.Event{})
	}
}

// Flush sends what the edge has not reported, as an edge does when it stops.
func (e *Edge) Flush() { e.send(e.Machine.Flush(e.clock())) }

func (e *Edge) step(ev pop.Event) {
	e.send(e.Machine.Step(e.clock(), ev))
}

func (e *Edge) send(commands []pop.Command) {
	w := e.world
	for _, c := range commands {
		if c.Report || c.Op != pop.Get && c.Op != pop.Set {
			w.Commands++
		}
		if e.cut {
			w.push(event{edge: e.index, life: e.life, answer: true, probe: c.Op == pop.Get && !c.Report,
				result: pop.Result{Command: c, Status: pop.Unsent, Err: ErrDown}})
			continue
		}
		if !c.Report && (c.Op == pop.Append || c.Op == pop.Add) {
			w.lively = w.now // something is in the log that all edges will want to read
		}
		w.push(event{edge: e.index, life: e.life, sent: w.now, command: c, probe: c.Op == pop.Get && !c.Report})
	}
}

const (
	idle  = time.Second            // between two steps of a machine where nobody can have news
	quiet = 100 * time.Millisecond // after the last line in the mitigation log, all edges have surely read it
)

// Run lets time pass until the given instant. Where nothing is under way, and nobody has anything to learn, it does not step the
// machines every few milliseconds as a real edge would, but now and then.
func (w *World) Run(until time.Time) {
	for {
		next, tick, overdue := until, -1, -1
		for i, e := range w.Edges {
			at := e.tick
			switch {
			case e.gone:
				continue
			case w.flying > 0 || w.now.Sub(w.lively) < quiet || w.now.Before(w.restless):
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
		if w.arrived < len(w.events) && !w.events[w.arrived].at.After(next) {
			ev := w.events[w.arrived]
			w.events[w.arrived] = event{}
			if w.arrived++; w.arrived == len(w.events) {
				w.events, w.arrived = w.events[:0], 0
			}
			if ev.at.After(w.now) {
				w.now = ev.at
			}
			w.deliver(ev)
			continue
		}
		if overdue >= 0 {
			w.now = next
			w.lose(w.held[overdue][0])
			w.held[overdue] = w.held[overdue][1:]
			continue
		}
		if tick < 0 {
			break
		}
		w.now = next
		w.Tick(tick)
	}
	if until.After(w.now) {
		w.now = until
	}
}

// Tick steps one edge because time has passed.
func (w *World) Tick(edge int) {
	e := w.Edges[edge]
	e.tick = w.now.Add(e.Machine.Pace(e.clock()))
	e.step(pop.Event{})
	e.attend()
	e.busy = e.busy && e.Counters.Stats().Unreported > 0
}

// deliver lets a command arrive at its node, or an answer at its edge.
func (w *World) deliver(ev event) {
	if !ev.probe {
		w.flying--
	}
	if !ev.answer {
		w.arrive(ev)
		return
	}
	e := w.Edges[ev.edge]
	if e.gone || e.life != ev.life {
		return
	}
	e.step(pop.Event{Results: []pop.Result{ev.result}})
	e.attend()
}

type event struct {
	at      time.Time
	edge    int
	life    int       // of the edge when it sent it
	sent    time.Time // when it did
	answer  bool
	probe   bool // goes on for ever: nothing waits for it
	command pop.Command
	result  pop.Result
}

// push sends an event on its way, which takes half a round trip, for all alike: so they arrive as they leave.
func (w *World) push(e event) {
	e.at = w.now.Add(w.rtt / 2)
	if !e.probe {
		w.flying++
	}
	w.events = append(w.events, e)
}
