package design

import "sluice/loadgen/judge"

// periodic is edges that decide alone, each by the store's last answer and what it has counted
// since. At every interval, each at an instant of its own, an edge reports to the store what it has
// counted of a source since the last time, one command for each source that it counted, and gets
// the counters of all edges for an answer. (Kong's sync_rate; the gossip of "Cloud control with
// distributed rate limiting", Raghavan and others, 2007.)
type periodic struct {
	rule                rule
	shape               *subWindows // of all counters; its own are the store's
	edges               []periodicEdge
	roundTrip, interval int64

	answers []answered // under way, in the order of arrival
	spent   Cost
	stored  judge.PerSource[bool]
}

type periodicEdge struct {
	known   judge.PerSource[knowledge]
	blocked judge.PerSource[int64]
	dirty   []int32 // sources to report
	tick    int64   // when it does; 0: there are none
}

// knowledge is what an edge knows of a source: the store's answer, what is being reported, and what
// is not reported yet.
type knowledge struct {
	store, flying, own ring
	dirty, there       bool
}

// answered is an answer of the store on its way to an edge.
type answered struct {
	at            int64
	edge          int
	source        int32
	reported, all ring
}

func newPeriodic(r rule, shape *subWindows, edges int, roundTrip, interval int64) *periodic {
	return &periodic{rule: r, shape: shape, edges: make([]periodicEdge, edges),
		roundTrip: roundTrip, interval: max(1, interval)}
}

func (p *periodic) decide(edge int, source int32, at int64) judge.Decision {
	e := &p.edges[edge]
	blocked := e.blocked.Of(source)
	if at < *blocked {
		return mitigated(*blocked)
	}
	k := e.known.Of(source)
	if !k.there {
		k.there = true
		p.spent.Bytes += 2 * p.shape.ringBytes() // the store's answer, and what is to be reported
	}
	estimate := 1 + p.shape.held(&k.store, at) + p.shape.held(&k.flying, at) +
		p.shape.held(&k.own, at)
	over := p.shape.over(estimate)
	if over && p.rule.mode == judge.Deployed {
		return p.rule.refuse(estimate, at, blocked)
	}
	index, _ := p.shape.position(at)
	k.own.add(index, p.shape.k, 1)
	if !k.dirty {
		k.dirty = true
		e.dirty = append(e.dirty, source)
	}
	if e.tick == 0 {
		offset := p.interval * int64(edge) / int64(len(p.edges))
		e.tick = at - (at-offset+p.interval)%p.interval + p.interval
	}
	return judge.Decision{Estimate: estimate, Over: over}
}

// pass lets edges report to the store, and answers arrive, each at its time.
func (p *periodic) pass(at int64) {
	for {
		next, edge := at, -1
		for i := range p.edges {
			if t := p.edges[i].tick; t > 0 && t <= next {
				if edge < 0 || t < next {
					next, edge = t, i
				}
			}
		}
		switch {
		case len(p.answers) > 0 && p.answers[0].at <= next:
			p.receive(p.answers[0])
			p.answers = p.answers[1:]
		case edge >= 0:
			p.report(edge, next)
		default:
			return
		}
	}
}

// report sends all that an edge has not reported yet. The order of reports decides the store's
// answers.
func (p *periodic) report(edge int, at int64) {
	e := &p.edges[edge]
	for _, source := range e.dirty {
		k := e.known.Of(source)
		p.spent.Commands++
		if there := p.stored.Of(source); !*there {
			*there = true
			p.spent.Bytes += p.shape.ringBytes()
		}
		all := p.shape.rings.Of(source)
		all.addRing(&k.own, p.shape.k, 1)
		p.answers = append(p.answers, answered{at: at + p.roundTrip, edge: edge, source: source,
			reported: k.own, all: all.clone()})
		k.flying.addRing(&k.own, p.shape.k, 1)
		k.own, k.dirty = ring{}, false
	}
	e.dirty, e.tick = e.dirty[:0], 0
}

// receive takes an answer in: what the edge reported is part of it.
func (p *periodic) receive(a answered) {
	k := p.edges[a.edge].known.Of(a.source)
	k.store = a.all
	k.flying.addRing(&a.reported, p.shape.k, -1)
}

func (p *periodic) cost() Cost { return p.spent }
