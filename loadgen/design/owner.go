package design

import (
	"fmt"
	"math/bits"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
)

// owners is edges of which each owns some sources: it alone counts them, exactly as one place
// would, and other edges ask it about each request, which waits for the answer. So a source that is
// busy makes its owner busy, however many edges there are. (Gubernator's architecture document,
// mailgun, 2019, of its plain behaviour: "choosing a single owner for a rate limit makes atomic
// increments of counts very fast".)
//
// Who owns a source is settled by rendezvous hashing (Thaler and Ravishankar, 1998): of the edges
// that run, the one whose hash with the source is the largest. So when an edge is lost its sources
// are spread over the others, and no other source moves. Counters are in memory alone: the new
// owner begins with nothing. Until the others have noticed the loss, requests of its sources have
// no answer, and pass.
type owners struct {
	deciders []*decider
	half     int64 // of the round trip between two edges
	loseAt   int64 // when the busiest owner is lost; 0: never
	fresh    func() *decider
	lost     int // which that was; -1: none so far
	running  uint64
	load     []uint64 // requests that each decided about
	messages uint64
	waited   float64
	gone     Owners
}

// Owners is what came of sources having owners.
type Owners struct {
	Hottest float64 `json:"hottest"` // share of all requests about which the busiest owner decided
	// What went with an owner that was lost: sources of whom it knew requests of the last window,
	// those requests, and blocks under way; and requests that passed because nobody answered.
	LostSources  int    `json:"lost_sources"`
	LostRequests uint64 `json:"lost_requests"`
	LostBlocks   int    `json:"lost_blocks"`
	Unanswered   uint64 `json:"unanswered"`
}

// noticed is how long edges go on asking an owner that is lost: some checks of its health.
const noticed = int64(time.Second)

func newOwners(fresh func() *decider, edges int, roundTrip, loseAt int64) *owners {
	o := &owners{half: roundTrip / 2, loseAt: loseAt, fresh: fresh, lost: -1, running: 1<<edges - 1,
		load: make([]uint64, edges)}
	for range edges {
		o.deciders = append(o.deciders, fresh())
	}
	return o
}

// of is the owner of a source, as the edges know it at that time.
func (o *owners) of(source int32, at int64) int {
	members := o.running
	if o.lost >= 0 && at < o.loseAt+noticed {
		members |= 1 << o.lost
	}
	owner, most := -1, uint64(0)
	for left := members; left != 0; left &= left - 1 {
		edge := bits.TrailingZeros64(left)
		if h := trace.Mix(uint64(source)<<8 | uint64(edge)); owner < 0 || h > most {
			owner, most = edge, h
		}
	}
	return owner
}

// pass loses the busiest owner once its time has come.
func (o *owners) pass(at int64) {
	if o.loseAt == 0 || o.lost >= 0 || at < o.loseAt || len(o.deciders) == 1 {
		return
	}
	o.lost = 0
	for edge, n := range o.load {
		if n > o.load[o.lost] {
			o.lost = edge
		}
	}
	o.running &^= 1 << o.lost
	p := o.deciders[o.lost]
	counts := p.counts.(*subWindows)
	for source, seen := range p.seen {
		if !seen {
			continue
		}
		if n := counts.held(counts.rings.Of(int32(source)), at); n >= 0.5 {
			o.gone.LostSources++
			o.gone.LostRequests += uint64(n + 0.5)
		}
		if *p.blocked.Of(int32(source)) > at {
			o.gone.LostBlocks++
		}
	}
	o.deciders[o.lost] = o.fresh()
}

func (o *owners) decide(edge int, source int32, at int64) judge.Decision {
	owner := o.of(source, at)
	if owner == edge {
		o.load[owner]++
		return o.deciders[owner].decide(source, at)
	}
	o.messages++
	o.waited++
	if owner == o.lost {
		o.gone.Unanswered++
		return judge.Decision{Estimate: 1}
	}
	o.load[owner]++
	d := o.deciders[owner].decide(source, at+o.half)
	if d.Until > 0 {
		d.Until -= time.Duration(o.half) // as seen by requests that leave the edge
	}
	return d
}

// cost is a message and a round trip for each request that another edge than its source's owner
// gets.
func (o *owners) cost() Cost {
	c := Cost{Commands: o.messages, Waited: o.waited, Owners: &o.gone}
	most, all := uint64(0), uint64(0)
	for _, n := range o.load {
		most, all = max(most, n), all+n
	}
	o.gone.Hottest = judge.Ratio(float64(most), all)
	for _, p := range o.deciders {
		c.Bytes += p.bytes()
	}
	return c
}

// owned are the designs in which sources have owners: one that is undisturbed, and, where
// Options.LoseAt says when, one that loses an owner.
func owned(o Options, fresh func() *decider) []Design {
	one := func(name, about string, loseAt time.Duration) Design {
		var made *owners // of the run under way
		d := Design{Name: name, Kind: Coordination, About: about, Later: o.RoundTrip / 2,
			Start: func() (judge.Limiter, func() Cost) {
				made = newOwners(fresh, o.Edges, int64(o.RoundTrip), int64(loseAt))
				return start(made)
			}}
		if loseAt > 0 {
			d.Running = func() uint64 { return made.running }
		}
		return d
	}
	list := []Design{one("owner per key",
		"the one edge that counts it is asked about each request, which waits (Gubernator, mailgun, 2019)", 0)}
	if o.LoseAt > 0 && o.Edges > 1 {
		list = append(list, one("owner per key, one lost",
			fmt.Sprintf("the busiest, after %v: its sources are spread over the others, who begin with nothing once they have noticed, after %v",
				o.LoseAt.Round(time.Second), time.Duration(noticed)), o.LoseAt))
	}
	return list
}
