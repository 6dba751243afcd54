package design

import (
	"fmt"
	"math"
	"time"

	"sluice/loadgen/judge"
)

// coordination is some edges that decide about sources, with or without each other. Times are
// nanoseconds since the run's start. Messages between an edge and the store take half a round trip
// each way, all of them the same, so they arrive in the order in which they leave.
type coordination interface {
	// pass lets time pass until at: messages arrive.
	pass(at int64)
	decide(edge int, source int32, at int64) judge.Decision
	cost() Cost
}

// start makes a Limiter of a coordination.
func start(c coordination) (judge.Limiter, func() Cost) {
	now := int64(0)
	return judge.Limiter{
		Advance: func(at time.Duration) {
			now = int64(at)
			c.pass(now)
		},
		Decide: func(edge int, source int32) judge.Decision { return c.decide(edge, source, now) },
	}, c.cost
}

// coordinations are judged on all edges. They count alike: subWindows, weighed and rounded.
func coordinations(r rule, o Options) []Design {
	counter := func(limit float64) *subWindows {
		rule := r
		rule.limit = limit
		return &subWindows{rule: rule, k: o.SubWindows, weighed: true, rounded: true}
	}
	apart := func(limit, share float64) func() (judge.Limiter, func() Cost) {
		return func() (judge.Limiter, func() Cost) {
			a := &alone{share: share}
			for range o.Edges {
				a.deciders = append(a.deciders, &decider{rule: r, counts: counter(limit)})
			}
			return start(a)
		}
	}
	divided := math.Ceil(r.limit / float64(o.Edges))
	list := []Design{
		floor(r, o),
		{Name: "each edge alone", Kind: Coordination, Start: apart(r.limit, 1),
			About: "none knows of the others, so each allows the limit (nginx; Envoy's local rate limit)"},
		{Name: "limit divided by the edges", Kind: Coordination,
			Start: apart(divided, float64(o.Edges)),
			About: fmt.Sprintf("each allows its share, %.0f here (where Raghavan and others, 2007, begin)", divided)},
		{Name: "synchronous central store", Kind: Coordination,
			About: "every request waits for the store, those of blocked sources too (envoyproxy/ratelimit; Stripe, 2017)",
			Start: func() (judge.Limiter, func() Cost) {
				return start(&central{store: decider{rule: r, counts: counter(r.limit)},
					half: int64(o.RoundTrip) / 2})
			}},
		{Name: fmt.Sprintf("reservations of %d", o.Lease), Kind: Coordination, Uncounted: true,
			About: fmt.Sprintf("an edge leases so many requests at once, for %v, and gives back what is left (Doorman, Google, 2016)",
				time.Duration(counter(1).length()).Round(time.Millisecond)),
			Start: func() (judge.Limiter, func() Cost) {
				return start(newLeases(r, counter(r.limit), o.Edges, int64(o.RoundTrip), o.Lease))
			}},
		{Name: fmt.Sprintf("sync every %v", o.SyncEvery), Kind: Coordination,
			About: "edges decide alone, and exchange counts with the store now and then (Kong, sync_rate)",
			Start: func() (judge.Limiter, func() Cost) {
				return start(newPeriodic(r, counter(r.limit), o.Edges, int64(o.RoundTrip),
					int64(o.SyncEvery)))
			}},
	}
	return append(list,
		owned(o, func() *decider { return &decider{rule: r, counts: counter(r.limit)} })...)
}

// alone is edges of which none knows of any other. Each takes what it sees for a share of what
// there is.
type alone struct {
	deciders []*decider
	share    float64 // so many times what it sees is what there is
}

func (a *alone) pass(int64) {}

func (a *alone) decide(edge int, source int32, at int64) judge.Decision {
	d := a.deciders[edge].decide(source, at)
	d.Estimate *= a.share
	return d
}

func (a *alone) cost() (c Cost) {
	for _, p := range a.deciders {
		c.Bytes += p.bytes()
	}
	return c
}

// central is edges that know nothing and ask the store about every request, which waits for the
// answer. The store decides at once and in the order in which requests come, so that no two of them
// pass on the same count.
type central struct {
	store decider
	half  int64 // of the round trip
	n     uint64
}

func (c *central) pass(int64) {}

func (c *central) decide(_ int, source int32, at int64) judge.Decision {
	c.n++
	d := c.store.decide(source, at+c.half)
	if d.Until > 0 {
		d.Until -= time.Duration(c.half) // as seen by requests that leave the edge
	}
	return d
}

// cost is a command and a round trip for each request.
func (c *central) cost() Cost {
	return Cost{Commands: c.n, Waited: float64(c.n), Bytes: c.store.bytes()}
}
