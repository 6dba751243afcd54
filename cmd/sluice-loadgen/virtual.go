package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/trace"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/sim"
)

// virtualSize says how large PoPs in virtual time are, and what happens to them.
type virtualSize struct {
	pops         int // 0: 1
	edges, nodes int // of each
	rtt          time.Duration
	skew         time.Duration // how far the clocks of the edges are apart at most
	faults       []lab.Fault
	routes       []pop.Route // changes of them
}

// virtualSite is PoPs in virtual time, what goes wrong in them, and the routes that lead to them. Its edges are numbered through:
// those of the first PoP, then those of the second.
type virtualSite struct {
	pops     []*virtualPoP
	edges    int // of each PoP
	nodes    int // of each PoP
	start    time.Time
	faults   []lab.Fault // still to come, the next one first
	affinity *pop.Affinity
	trace    *trace.Trace
	err      error
}

// newVirtualSite makes the PoPs of size, without the faults and changes of routes if undisturbed.
func newVirtualSite(t *trace.Trace, mode judge.Mode, rule pop.Rule, size *virtualSize, undisturbed bool) (*virtualSite, error) {
	s := &virtualSite{edges: size.edges, nodes: size.nodes, start: startOf(t), trace: t}
	routes := size.routes
	if undisturbed {
		routes = nil
	} else {
		s.faults = slices.Clone(size.faults)
		slices.SortStableFunc(s.faults, func(a, b lab.Fault) int { return cmp.Compare(a.At, b.At) })
	}
	var err error
	if s.affinity, err = pop.NewAffinity(size.pops, routes); err != nil {
		return nil, err
	}
	for i := range size.pops {
		v, err := newVirtualPoP(t, mode, rule, size)
		if err != nil {
			return nil, err
		}
		v.first = i * size.edges
		s.pops = append(s.pops, v)
	}
	return s, nil
}

func (s *virtualSite) limiter() judge.Limiter {
	return judge.Limiter{Advance: s.advance, Decide: s.decide, InForce: s.news}
}

// options completes how the simulation runs.
func (s *virtualSite) options(v judge.VirtualOptions) judge.VirtualOptions {
	v.Edges = len(s.pops) * s.edges
	if len(s.faults) > 0 {
		v.Running = s.running
	}
	if len(s.pops) > 1 {
		v.Reach = reach(s.trace, s.affinity, slices.Repeat([]int{s.edges}, len(s.pops)))
	}
	return v
}

// counters is how many counters its edges hold.
func (s *virtualSite) counters() (n uint64) {
	for _, p := range s.pops {
		for _, e := range p.world.Edges {
			n += uint64(e.Counters.Stats().Counters)
		}
	}
	return n
}

func (s *virtualSite) commands() (n uint64) {
	for _, p := range s.pops {
		n += p.world.Commands
	}
	return n
}

// advance lets time pass, and what is to go wrong meanwhile go wrong at its time.
func (s *virtualSite) advance(at time.Duration) {
	for len(s.faults) > 0 && s.faults[0].At <= at {
		f := s.faults[0]
		s.faults = s.faults[1:]
		s.run(f.At)
		if err := s.do(f); err != nil && s.err == nil {
			s.err = fmt.Errorf("fault %q: %w", f, err)
		}
	}
	s.run(at)
}

func (s *virtualSite) run(at time.Duration) {
	for _, p := range s.pops {
		p.world.Run(s.start.Add(at))
	}
}

func (s *virtualSite) do(f lab.Fault) error {
	if f.Kind == "edge" {
		w, i := s.pops[f.Index/s.edges].world, f.Index%s.edges
		if f.Action == lab.Restart {
			return w.Start(i)
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

func (s *virtualSite) decide(edge int, source int32) judge.Decision {
	p, i := s.pops[edge/s.edges], edge%s.edges
	if !p.world.Runs(i) {
		return judge.Decision{Verdict: judge.Failed, Estimate: math.NaN()}
	}
	return p.decide(i, source)
}

func (s *virtualSite) news() (all []judge.InForce) {
	for _, p := range s.pops {
		all = append(all, p.news...)
		p.news = p.news[:0]
	}
	if len(s.pops) > 1 {
		slices.SortStableFunc(all, func(a, b judge.InForce) int { return cmp.Compare(a.At, b.At) })
	}
	return all
}

func (s *virtualSite) running() (edges uint64) {
	for _, p := range s.pops {
		for i := range s.edges {
			if p.world.Runs(i) {
				edges |= 1 << (p.first + i)
			}
		}
	}
	return edges
}

// boundOf is how many requests of a source the design allows in any window, or nil where the run leaves it: a PoP knows nothing of
// what another has counted, and what a node or an edge lost counts as little.
func boundOf(t *trace.Trace, rule pop.Rule, size *virtualSize) func(source int32) uint32 {
	if len(size.faults)+len(size.routes) > 0 {
		return nil
	}
	heard := t.Peaks(pop.Hearing(size.rtt, size.edges))
	cut := t.Peaks(rule.Counter.Window/time.Duration(rule.Counter.SubWindows) + size.skew)
	return func(source int32) uint32 {
		return uint32(min(rule.Bound(size.edges, heard[source], cut[source]), math.MaxUint32))
	}
}

// virtualPoP is a whole PoP.
type virtualPoP struct {
	world   *sim.World
	rule    limiter.Rule
	start   time.Time
	sources []counter.Source
	news    []judge.InForce
	first   int // number of its first edge among those of all PoPs
}

func newVirtualPoP(t *trace.Trace, mode judge.Mode, rule pop.Rule, size *virtualSize) (*virtualPoP, error) {
	v := &virtualPoP{rule: ruleOf(rule, mode), start: startOf(t), sources: sourceKeys(t)}
	w, err := sim.New(sim.Config{
		Edges: size.edges, Nodes: size.nodes, RTT: size.rtt, Counters: roomFor(t), Secret: simSecret,
		Skew: func(edge int) time.Duration { // spread evenly over the whole of it
			return size.skew * time.Duration(edge) / time.Duration(max(size.edges-1, 1))
		},
	}, []limiter.Rule{v.rule}, v.start)
	if err != nil {
		return nil, err
	}
	v.world = w
	for i, e := range w.Edges {
		e.Bits.Observe = func(k mitigation.Key, b mitigation.Bit) {
			v.news = append(v.news, judge.InForce{
				Source: sourceIndex(k.Source), Edge: int16(v.first + i), Start: b.Start.Sub(v.start), At: w.Now().Sub(v.start), Until: b.End.Sub(v.start),
				Total: b.By == mitigation.ByPoP,
			})
		}
	}
	return v, nil
}

func (v *virtualPoP) decide(edge int, source int32) judge.Decision {
	return decisionOf(v.world.Edges[edge].Request(&v.rule, v.sources[source]), v.start)
}

// reach tells which edges the sources of a trace meet at a time, as a set of bits: those of their PoP. Edges is how many each PoP has;
// they are numbered through, those of the first PoP first.
func reach(t *trace.Trace, affinity *pop.Affinity, edges []int) func(source int32, at time.Duration) uint64 {
	sets, first := make([]uint64, len(edges)), 0
	for i, n := range edges {
		sets[i] = (1<<n - 1) << first
		first += n
	}
	return func(source int32, at time.Duration) uint64 { return sets[affinity.PoP(t.Sources[source].Addr, at)] }
}
