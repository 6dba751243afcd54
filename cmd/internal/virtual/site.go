// Package virtual is the limiter in virtual time, as package judge wants it handed in: one edge
// that knows everything at once (Oracle), and PoPs with their nodes, delays, faults and routes
// (Site).
package virtual

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/loadgen/anycast"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/trace"
	"sluice/mitigation"
	"sluice/pop/across"
	"sluice/pop/sim"
)

// Size says how large PoPs in virtual time are, and what happens to them.
type Size struct {
	PoPs         int // 0: 1
	Edges, Nodes int // of each
	RTT          time.Duration
	Skew         time.Duration // how far the clocks of the edges are apart at most
	Faults       []lab.Fault
	Routes       []anycast.Route // changes of them
	Peers        bool            // PoPs send each other their blocks, and counts near the limit
}

// Site is PoPs in virtual time, what goes wrong in them, and the routes that lead to them. Its
// edges are numbered through: those of the first PoP, then those of the second.
type Site struct {
	pops      []*sitePoP
	edges     int // of each PoP
	nodes     int // of each PoP
	start     time.Time
	faults    []lab.Fault // still to come, the next one first
	affinity  *anycast.Affinity
	trace     *trace.Trace
	Err       error // of a fault that could not be done; the run is worth nothing then
	peers     bool
	announced []announced // blocks and counts on their way between PoPs, the first to arrive first
}

// announced is a block, or a count, that a PoP announces to the others.
type announced struct {
	at      time.Time // that it arrives
	from    int
	deliver func(to *sim.Edge, from string)
}

// betweenPoPs is how long a block is under way: gathered with others, and sent half round the
// world.
const betweenPoPs = 250 * time.Millisecond

// NewSite makes the PoPs of size, without the faults and changes of routes if undisturbed.
func NewSite(t *trace.Trace, mode judge.Mode, rule mitigation.Rule, size *Size,
	undisturbed bool) (*Site, error) {
	s := &Site{edges: size.Edges, nodes: size.Nodes, start: StartOf(t), trace: t,
		peers: size.Peers && size.PoPs > 1}
	routes := size.Routes
	if undisturbed {
		routes = nil
	} else {
		s.faults = slices.Clone(size.Faults)
		slices.SortStableFunc(s.faults, func(a, b lab.Fault) int { return cmp.Compare(a.At, b.At) })
	}
	var err error
	if s.affinity, err = anycast.New(size.PoPs, routes); err != nil {
		return nil, err
	}
	for i := range size.PoPs {
		var decided func(across.Block)
		var counted func(across.Count)
		if s.peers {
			announce := func(deliver func(*sim.Edge, string, time.Time)) {
				now := s.pops[i].world.Now()
				s.announced = append(s.announced, announced{now.Add(betweenPoPs), i,
					func(to *sim.Edge, from string) { deliver(to, from, now) }})
			}
			decided = func(b across.Block) {
				announce(func(to *sim.Edge, from string, sent time.Time) {
					to.AddPeerBlock(from, b, sent)
				})
			}
			counted = func(c across.Count) {
				announce(func(to *sim.Edge, from string, sent time.Time) {
					to.AddCount(from, c, sent)
				})
			}
		}
		v, err := newSitePoP(t, mode, rule, size, decided, counted)
		if err != nil {
			return nil, err
		}
		v.first = i * size.Edges
		s.pops = append(s.pops, v)
	}
	return s, nil
}

// Limiter is the site as package judge wants it.
func (s *Site) Limiter() judge.Limiter {
	return judge.Limiter{Advance: s.advance, Decide: s.decide, InForce: s.blocks}
}

// Options completes how the simulation runs.
func (s *Site) Options(v judge.VirtualOptions) judge.VirtualOptions {
	v = options(s.trace, s.affinity, len(s.pops), s.edges, v)
	if len(s.faults) > 0 {
		v.Running = s.running
	}
	return v
}

// Undisturbed completes how a simulation of another limiter runs on as many edges, with nothing
// going wrong.
func (z *Size) Undisturbed(t *trace.Trace, v judge.VirtualOptions) (judge.VirtualOptions, error) {
	affinity, err := anycast.New(z.PoPs, nil)
	if err != nil {
		return v, err
	}
	return options(t, affinity, z.PoPs, z.Edges, v), nil
}

func options(t *trace.Trace, affinity *anycast.Affinity, pops, edges int,
	v judge.VirtualOptions) judge.VirtualOptions {
	v.Edges = pops * edges
	if pops > 1 {
		v.Reach = Reach(t, affinity, slices.Repeat([]int{edges}, pops))
	}
	return v
}

// Counters is how many counters its edges hold.
func (s *Site) Counters() (n uint64) {
	for _, p := range s.pops {
		for _, e := range p.world.Edges {
			n += uint64(e.Counters.Stats().Counters)
		}
	}
	return n
}

// Cost is how many commands the nodes were sent because of requests, and how many bytes those and
// their answers had.
func (s *Site) Cost() (commands, bytes uint64) {
	for _, p := range s.pops {
		commands, bytes = commands+p.world.Commands, bytes+p.world.Bytes
	}
	return commands, bytes
}

// advance lets time pass, and what is to go wrong meanwhile go wrong at its time.
func (s *Site) advance(at time.Duration) {
	for len(s.faults) > 0 && s.faults[0].At <= at {
		f := s.faults[0]
		s.faults = s.faults[1:]
		s.run(f.At)
		if err := s.do(f); err != nil && s.Err == nil {
			s.Err = fmt.Errorf("fault %q: %w", f, err)
		}
	}
	s.run(at)
}

// run lets time pass in all PoPs. A block is under way for so long that what they do in that time
// does not depend on what others do meanwhile.
func (s *Site) run(at time.Duration) {
	until := s.start.Add(at)
	for next := s.pops[0].world.Now(); ; {
		next = next.Add(betweenPoPs)
		if len(s.announced) > 0 && s.announced[0].at.Before(next) {
			next = s.announced[0].at
		}
		if !s.peers || next.After(until) {
			next = until
		}
		for _, p := range s.pops {
			p.world.Run(next)
		}
		slices.SortStableFunc(s.announced, func(a, b announced) int { return a.at.Compare(b.at) })
		for len(s.announced) > 0 && !s.announced[0].at.After(next) {
			s.deliver(s.announced[0])
			s.announced = s.announced[1:]
		}
		if !next.Before(until) {
			return
		}
	}
}

// deliver sends it to an edge that runs in each other PoP.
func (s *Site) deliver(b announced) {
	for i, p := range s.pops {
		for e := range s.edges {
			if i != b.from && p.world.Runs(e) {
				b.deliver(p.world.Edges[e], fmt.Sprint("pop", b.from))
				break
			}
		}
	}
}

func (s *Site) do(f lab.Fault) error {
	if f.Kind == "edge" {
		w, i := s.pops[f.Index/s.edges].world, f.Index%s.edges
		switch f.Action {
		case lab.Restart:
			return w.Start(i)
		case lab.StepClock:
			w.StepClock(i, f.By)
			return nil
		}
		w.Stop(i, f.Action == lab.Term)
		return nil
	}
	w, i := s.pops[f.Index/s.nodes].world, f.Index%s.nodes
	switch f.Action {
	case lab.Stop:
		w.Hang(i)
	case lab.Cont:
		w.Resume(i)
	case lab.Restart:
		return w.Restart(i)
	default:
		w.Kill(i)
	}
	return nil
}

func (s *Site) decide(edge int, source int32) judge.Decision {
	p, i := s.pops[edge/s.edges], edge%s.edges
	if !p.world.Runs(i) {
		return judge.Decision{Verdict: judge.Failed, Estimate: math.NaN()}
	}
	return p.decide(i, source)
}

func (s *Site) blocks() (all []judge.InForce) {
	for _, p := range s.pops {
		all = append(all, p.blocks...)
		p.blocks = p.blocks[:0]
	}
	if len(s.pops) > 1 {
		slices.SortStableFunc(all, func(a, b judge.InForce) int { return cmp.Compare(a.At, b.At) })
	}
	return all
}

func (s *Site) running() (edges uint64) {
	for _, p := range s.pops {
		for i := range s.edges {
			if p.world.Runs(i) {
				edges |= 1 << (p.first + i)
			}
		}
	}
	return edges
}

// BoundOf is how many requests of a source the design allows in any window, or nil where the run
// leaves it: what a node or an edge lost counts as little. A PoP knows nothing of what another has
// counted, so a source whose route changes has what it has in one in each.
func BoundOf(t *trace.Trace, rule mitigation.Rule, size *Size) func(source int32) uint32 {
	if len(size.Faults) > 0 {
		return nil
	}
	pops := uint64(1)
	if len(size.Routes) > 0 {
		pops = uint64(max(size.PoPs, 1))
	}
	peaks := t.Peaks(sim.Propagation(size.RTT, size.Edges))
	cut := t.Peaks(rule.Counter.Window/time.Duration(rule.Counter.SubWindows) + size.Skew)
	return func(source int32) uint32 {
		return uint32(min(pops*sim.Bound(rule, size.Edges, peaks[source], cut[source]),
			math.MaxUint32))
	}
}

// sitePoP is a whole PoP.
type sitePoP struct {
	world   *sim.World
	rule    limiter.Rule
	start   time.Time
	sources []counter.Source
	blocks  []judge.InForce
	first   int // number of its first edge among those of all PoPs
}

func newSitePoP(t *trace.Trace, mode judge.Mode, rule mitigation.Rule, size *Size,
	decided func(across.Block), counted func(across.Count)) (*sitePoP, error) {
	v := &sitePoP{rule: RuleOf(rule, mode), start: StartOf(t), sources: sourceKeys(t)}
	w, err := sim.New(sim.Config{
		Edges: size.Edges, Nodes: size.Nodes, RTT: size.RTT, Counters: RoomFor(t), Secret: Secret,
		Skew: func(edge int) time.Duration { // spread evenly over the whole of it
			return size.Skew * time.Duration(edge) / time.Duration(max(size.Edges-1, 1))
		},
		Decided: decided, Counted: counted,
	}, []limiter.Rule{v.rule}, v.start)
	if err != nil {
		return nil, err
	}
	v.world = w
	for i, e := range w.Edges {
		e.Blocks.Observe = func(k mitigation.Key, b mitigation.Bit) {
			v.blocks = append(v.blocks, judge.InForce{
				Source: sourceIndex(k.Source), Edge: int16(v.first +
					i), Start:           b.Start.Sub(v.start), At: w.Now().
					Sub(v.start), Until: b.End.Sub(v.start),
				Total: b.By == mitigation.ByPoP, Operator: b.By == mitigation.ByAdmin,
			})
		}
	}
	return v, nil
}

func (v *sitePoP) decide(edge int, source int32) judge.Decision {
	return decisionOf(v.world.Edges[edge].Request(&v.rule, v.sources[source]), v.start)
}

// Reach returns which edges the sources of a trace meet at a time, as a set of bits: those of their
// PoP. Edges is how many each PoP has; they are numbered through, those of the first PoP first.
func Reach(t *trace.Trace, affinity *anycast.Affinity, edges []int) func(source int32,
	at time.Duration) uint64 {
	sets, first := make([]uint64, len(edges)), 0
	for i, n := range edges {
		sets[i] = (1<<n - 1) << first
		first += n
	}
	return func(source int32, at time.Duration) uint64 {
		return sets[affinity.PoP(t.Sources[source].Addr, at)]
	}
}
