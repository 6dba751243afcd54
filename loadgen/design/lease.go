package design

import (
	"math"

	"sluice/loadgen/judge"
)

// leases is edges that reserve requests of a source at the store in batches: the first of a batch
// waits for the store, the others pass at once. What is reserved counts at the store from then on.
// A lease lasts a sub-window; what is left of it then is given back. An edge that is given nothing
// refuses, and the store has the block, and returns it to every edge.
//
// So a source is never admitted much above its limit, but may be refused under it, while other
// edges hold what it may have. (Doorman, Google, 2016, leases capacity to clients in this way.)
type leases struct {
	rule      rule
	store     *subWindows
	blocked   judge.PerSource[int64] // at the store, until when
	edges     []leaseEdge
	batch     uint32
	lasts     int64
	roundTrip int64

	out     []*lease // in the order of their ends
	spent   Cost
	sources judge.PerSource[bool]
}

type leaseEdge struct {
	held    judge.PerSource[*lease]
	blocked judge.PerSource[int64]
}

type lease struct {
	source    int32
	left      uint32
	sub       int64 // sub-window that it counts in at the store
	from, end int64 // when it is there, and when it ends
}

func newLeases(r rule, store *subWindows, edges int, roundTrip int64, batch uint32) *leases {
	return &leases{rule: r, store: store, edges: make([]leaseEdge, edges), batch: batch,
		lasts: store.length(), roundTrip: roundTrip}
}

// pass ends leases whose time is over.
func (l *leases) pass(at int64) {
	for len(l.out) > 0 && l.out[0].end <= at {
		if e := l.out[0]; e.left > 0 {
			l.spent.Commands++
			l.store.rings.Of(e.source).add(e.sub, l.store.k, -int32(e.left))
			e.left = 0
		}
		l.out = l.out[1:]
	}
}

func (l *leases) decide(edge int, source int32, at int64) judge.Decision {
	e := &l.edges[edge]
	blocked := e.blocked.Of(source)
	if at < *blocked {
		return mitigated(*blocked)
	}
	held := e.held.Of(source)
	if *held != nil && (*held).left > 0 {
		(*held).left--
		if wait := (*held).from - at; wait > 0 {
			l.spent.Waited += float64(wait) / float64(l.roundTrip)
		}
		return judge.Decision{Estimate: math.NaN()}
	}
	granted, until := l.grant(source, at+l.roundTrip/2)
	if granted > 0 {
		if *held == nil {
			l.spent.Bytes += 16 // what is left, and until when
		}
		index, _ := l.store.position(at + l.roundTrip/2)
		*held = &lease{source: source, left: granted - 1, sub: index, from: at + l.roundTrip,
			end: at + l.roundTrip + l.lasts}
		l.out = append(l.out, *held)
		return judge.Decision{Estimate: math.NaN()}
	}
	if until > 0 { // blocked by what another edge found
		*blocked = until - l.roundTrip/2
		return mitigated(*blocked)
	}
	d := l.rule.refuse(math.NaN(), at, blocked)
	*l.blocked.Of(source) = *blocked + l.roundTrip/2
	return d
}

// grant has the store grant up to a batch, or return how long the source is blocked.
func (l *leases) grant(source int32, at int64) (granted uint32, until int64) {
	l.spent.Commands++
	l.spent.Waited++
	if seen := l.sources.Of(source); !*seen {
		*seen = true
		l.spent.Bytes += l.store.ringBytes()
	}
	if until := *l.blocked.Of(source); at < until {
		return 0, until
	}
	ring := l.store.rings.Of(source)
	room := l.rule.limit - math.Floor(l.store.held(ring, at)+0.5)
	granted = uint32(max(0, min(room, float64(l.batch))))
	index, _ := l.store.position(at)
	ring.add(index, l.store.k, int32(granted))
	return granted, 0
}

func (l *leases) cost() Cost { return l.spent }
