package main

import (
	"time"

	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/sim"
)

// virtualPoP is a whole PoP.
type virtualPoP struct {
	world   *sim.World
	rule    limiter.Rule
	start   time.Time
	sources []counter.Source
	news    []judge.InForce
	first   int // number of its first edge among those of all PoPs
}

func newVirtualPoP(t *trace.Trace, mode judge.Mode, rule pop.Rule, size *popFlags) (*virtualPoP, error) {
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
