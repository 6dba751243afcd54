package main

import (
	"math"
	"time"

	"sluice/counter"
	"sluice/loadgen"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/poptest"
)

// virtualPoP is a whole PoP.
type virtualPoP struct {
	world   *poptest.World
	rule    pop.Rule
	mode    loadgen.Mode
	start   time.Time
	sources []counter.Source
	ask     [1]counter.Ask
	news    []loadgen.InForce
	first   int // number of its first edge among those of all PoPs
}

func newVirtualPoP(t *loadgen.Trace, mode loadgen.Mode, rule pop.Rule, size *popFlags) (*virtualPoP, error) {
	start := startOf(t)
	if mode == loadgen.Estimator {
		rule.Timeout = 0 // nobody is blocked, by no edge and not by the PoP
	}
	w, err := poptest.NewWorld(poptest.WorldConfig{
		Edges: size.edges, Nodes: size.nodes, RTT: size.rtt, Counters: roomFor(t), Secret: simSecret,
		Skew: func(edge int) time.Duration { // spread evenly over the whole of it
			return size.skew * time.Duration(edge) / time.Duration(max(size.edges-1, 1))
		},
	}, []pop.Rule{rule}, start)
	if err != nil {
		return nil, err
	}
	v := &virtualPoP{world: w, rule: rule, mode: mode, start: start, sources: sourceKeys(t)}
	for i, e := range w.Edges {
		e.Bits.Observe = func(k mitigation.Key, b mitigation.Bit) {
			v.news = append(v.news, loadgen.InForce{
				Source: sourceIndex(k.Source), Edge: int16(v.first + i), Start: b.Start.Sub(start), At: w.Now().Sub(start), Until: b.End.Sub(start),
				Total: b.By == mitigation.ByPoP,
			})
		}
	}
	return v, nil
}

func (v *virtualPoP) decide(edge int, source int32) loadgen.Decision {
	v.ask[0] = counter.Ask{Rule: v.rule.Counter, Source: v.sources[source], Hits: 1, Always: v.mode == loadgen.Estimator}
	until, admitted := v.world.Edges[edge].Decide(v.rule, &v.ask)
	d := loadgen.Decision{Estimate: v.ask[0].Estimate, Over: v.ask[0].Over}
	switch {
	case !until.IsZero():
		d.Verdict, d.Estimate, d.Until = loadgen.Mitigated, math.NaN(), until.Sub(v.start)
	case !admitted && v.mode == loadgen.Deployed:
		d.Verdict = loadgen.Limited
		if end := mitigation.End(v.ask[0].Verdict, v.rule.Timeout, v.world.Now()); !end.IsZero() {
			d.Until = end.Sub(v.start)
		}
	}
	return d
}
