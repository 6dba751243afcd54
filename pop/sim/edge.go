package sim

import (
	"fmt"
	"slices"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/across"
	"sluice/pop/operatorlog"
	"sluice/pop/placement"
	"sluice/pop/poptest"
	"sluice/pop/wire"
)

// Edge is one edge of a World.
type Edge struct {
	Counters *counter.Table
	Blocks   *mitigation.Table
	Machine  *pop.Machine
	InFlight *inflight.Table // nil: no rule counts them
	Exact    *exact.Table    // nil: no rule keeps its requests in the tier

	limiter  limiter.Limiter
	decision limiter.Decision // of Request

	world  *World
	index  int
	skew   time.Duration
	awake  bool
	busy   bool          // it may have something to report that is not under way
	tick   time.Time     // when the machine is next stepped for nothing
	pace   time.Duration // and how often from then on
	ticked time.Time     // when it last was
	life   int           // how often it was started; what an earlier life sent is not answered
	gone   bool          // it does not run
	cut    bool          // it reaches no node

	nodes   []int         // by the machine's numbers, those of the world
	stepped time.Duration // its wall clock, since the world began

	paused time.Time     // until then it is held up,
	late   []wire.Result // and these answers wait
}

// begin gives an edge new tables and a new machine, as a process has them that has just started.
func (e *Edge) begin() error {
	c := &e.world.config
	key := c.Secret
	if c.Secrets != nil {
		key = c.Secrets(e.index)
	}
	wake := func() { e.awake = true }
	id := uint64(e.life*c.Edges + e.index + 1)
	e.Counters = counter.New(counter.Options{Counters: c.Counters, Tier: true, Phase: key.Phase,
		Seed: id, Wake: wake})
	e.Blocks = mitigation.New(c.Counters, wake)
	e.Blocks.Seed(id)
	if e.InFlight = nil; e.world.inFlight {
		e.InFlight = inflight.New(inflight.Options{Tier: true, Wake: wake})
	}
	if e.Exact = nil; e.world.exact {
		e.Exact = exact.New(exact.Options{Wake: wake, Bucket: key.Bucket})
	}
	list := c.List
	if list == nil {
		list = e.world.names
	}
	known := c.Edges
	if c.Learn || known > counter.MaxEdges {
		known = 0
	}
	m, err := pop.NewMachine(pop.Config{
		PoP: c.PoP, Nodes: list, Secret: key, ID: id, Name: fmt.Sprintf("edge%d", e.index),
		Edges: known, Rules: true, Counters: e.Counters, Blocks: e.Blocks, Decided: c.Decided,
		Counted: c.Counted, InFlight: e.InFlight, Exact: e.Exact,
	}, e.clock())
	if err != nil {
		return err
	}
	e.Machine = m
	e.SetRules(e.world.rules)
	if e.stepped != 0 {
		e.Counters.Adjust(e.stepped, false, e.clock()) // it begins by the wall clock
	}
	e.nodes, e.life, e.awake, e.gone = nil, e.life+1, false, false
	e.paused, e.late = time.Time{}, nil
	e.limiter = limiter.Limiter{
		Counters: e.Counters, Blocks: e.Blocks, InFlight: e.InFlight, Exact: e.Exact,
		Up: func(counter.Source) bool { return m.Nodes.Up() }, Alone: m.Alone,
		Fetch: func(r *algorithm.Spec, s counter.Source) {
			m.Exchanges.Fetch(counter.Counter{Rule: r, Source: s})
			wake()
		},
	}
	if c.Wait > 0 {
		e.limiter.Wait = e.wait
	}
	e.decision.Reset()
	return nil
}

// SetRules puts other rules in force on the edge, as an edge does that reads them again. What
// begins anew after Start has them, too.
func (e *Edge) SetRules(rules []limiter.Rule) {
	terms := make(map[uint32]mitigation.RuleVersion)
	var known []mitigation.Rule
	for _, r := range rules {
		known, terms[r.Counter.ID] = append(known, r.Rule), r.Version()
	}
	e.world.rules = rules
	e.Blocks.SetVersions(terms)
	e.Machine.SetRules(known)
}

// clock is the time as the edge sees it.
func (e *Edge) clock() time.Time { return e.world.now.Add(e.skew) }

// AddPeerBlock gives an edge a block of another PoP, which was sent at a time on the clock there.
func (e *Edge) AddPeerBlock(from string, b across.Block, sent time.Time) across.Outcome {
	o := e.Machine.Announcer.AddPeerBlock(from, b, sent, e.clock())
	e.attend()
	return o
}

// AddCount gives an edge what another PoP has counted, which was sent at a time on the clock there.
func (e *Edge) AddCount(from string, c across.Count, sent time.Time) across.Outcome {
	o := e.Machine.Announcer.AddCount(from, c, sent, e.clock())
	e.awake = true
	e.attend()
	return o
}

// Decide decides about a request that reaches the edge now, under the rules that were added to d.
// Where it waits for the tier, time passes for all.
func (e *Edge) Decide(d *limiter.Decision) {
	e.limiter.Decide(d, e.clock())
	for i := range d.Results {
		e.busy = e.busy || d.Results[i].Reservation != nil
	}
	e.attend()
}

// Leave tells the edge that an admitted request has ended.
func (e *Edge) Leave(d *limiter.Decision) {
	e.limiter.Leave(d)
	e.attend()
}

// Settle tells the edge the status of the answer to a request that it has admitted; 0: there was
// none.
func (e *Edge) Settle(d *limiter.Decision, status int) {
	e.busy = e.busy || d.Held
	e.limiter.Settle(d, status, e.clock())
	e.attend()
}

// Request is Decide for a request under one rule. The decision is the edge's own: it is valid until
// the next Request, which gives it up if it is Held, and ends it.
func (e *Edge) Request(r *limiter.Rule, source counter.Source) *limiter.Decision {
	d := &e.decision
	e.limiter.Settle(d, 0, e.clock())
	e.limiter.Leave(d)
	d.Reset()
	d.Add(r, source)
	e.Decide(d)
	return d
}

// wait lets time pass until all channels are closed, or a request has waited long enough.
func (e *Edge) wait(replies []<-chan struct{}) {
	w := e.world
	until := w.now.Add(w.config.Wait)
	e.attend()
	for _, reply := range replies {
		for !closed(reply) {
			if !w.step(until) {
				w.now = until
				return
			}
		}
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// attend steps the machine if its tables have something new.
func (e *Edge) attend() {
	for e.awake && !e.world.now.Before(e.paused) {
		e.awake = false
		e.step(pop.Event{})
	}
}

// Flush sends what the edge has not reported, as an edge does when it stops.
func (e *Edge) Flush() { e.send(e.Machine.Flush(e.clock())) }

func (e *Edge) step(ev pop.Event) {
	now := e.clock()
	e.world.steps++
	e.send(e.Machine.Step(now, ev))
	e.pace = e.Machine.StepIn(now)
	if at := e.world.now.Add(e.pace); at.Before(e.tick) {
		e.tick = at
	}
}

// send sends the commands of a Step on their way together: they arrive as they leave.
func (e *Edge) send(commands []wire.Command) {
	if len(commands) == 0 {
		return
	}
	w := e.world
	w.present()
	b := w.batch(e.index, e.life)
	b.answers = e.cut
	for i := range commands {
		c := &commands[i]
		r := wire.Result{Command: *c}
		if e.cut {
			r.Status, r.Err = wire.Unsent, poptest.ErrDown
		} else {
			w.sent(c)
			if c.Report && c.Op == wire.Set {
				w.lively = w.now // something is in the log that all edges will want to read
			}
			b.nodes = append(b.nodes, e.node(c.Node))
		}
		b.results = append(b.results, r)
	}
	w.push(b)
}

// held is a command that a node keeps while it hangs.
type held struct {
	edge, life int
	sent       time.Time
	command    wire.Command
}

// polls reports whether a command is one of those that go on for ever, presence among them: nothing
// waits for them.
func polls(c *wire.Command) bool { return !c.Report }

// node is the world's number of a node that the edge's machine has by another.
func (e *Edge) node(of int) int {
	if names := e.Machine.Nodes.Names(); of >= len(e.nodes) {
		for _, spelled := range names[len(e.nodes):] {
			name, _ := placement.Canonical(spelled)
			e.nodes = append(e.nodes, slices.Index(e.world.names, name))
		}
	}
	return e.nodes[of]
}

// Order has an operator say something at the edge.
func (e *Edge) Order(order operatorlog.Order) (operatorlog.Mark, error) {
	e.world.restless = e.world.now.Add(unrest)
	e.awake = true
	mark, err := e.Machine.Operators.Add(order, e.clock())
	e.attend()
	return mark, err
}
