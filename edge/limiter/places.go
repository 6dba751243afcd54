package limiter

import (
	"slices"
	"time"

	"sluice/counter/inflight"
)

// A rule with a concurrency has so many places over the PoP, and a request holds one from its decision until Leave. Where there is a tier the
// request waits until that has counted it, as under check: sync (rank.go): as long as Limiter.Wait lets it, once for all its rules. If the tier
// has not answered by then, the rule's posture decides; local is this edge's own count against the whole concurrency.
//
// No mitigation starts for want of a place, because one may come free at any moment. What an exchange costs the tier is in package inflight.

// crowdedRetry is what a client is told to wait that finds no place: nobody knows when one comes free.
const crowdedRetry = time.Second

// enter takes places for a request, and reports whether a rule refuses it for want of one. Then it has none.
func (l *Limiter) enter(d *Decision, now time.Time) (refused bool) {
	if l.InFlight == nil {
		return false
	}
	d.places = slices.Grow(d.places, len(d.Results))
	d.replies = d.replies[:0]
	for i := range d.Results {
		r := &d.Results[i]
		if r.Rule.InFlight == nil || !r.open() {
			continue
		}
		asks := l.Wait != nil && (l.Up == nil || l.Up(r.Source))
		p, entered := l.InFlight.Enter(r.Rule.InFlight, r.Source, asks, now)
		if !entered {
			refused = r.crowd() || refused
			continue
		}
		d.places, d.placed = append(d.places, p), append(d.placed, i)
		if p.Reply != nil {
			d.replies = append(d.replies, p.Reply)
		}
	}
	if len(d.replies) > 0 && !refused {
		l.Wait(d.replies)
		for i := range d.places {
			refused = !l.confirm(&d.Results[d.placed[i]], &d.places[i], now) || refused
		}
	}
	if refused {
		l.Leave(d)
	}
	return refused
}

// crowd is what becomes of a request that finds no place under a rule. It reports whether that refuses it.
func (r *RuleResult) crowd() bool {
	r.Verdict, r.Wait, r.Crowded = r.Rule.spared(Limited), crowdedRetry, true
	return r.Rule.refuses()
}

// confirm reports whether a rule admits a request, by what the tier says of its place, or else by its posture.
func (l *Limiter) confirm(r *RuleResult, p *inflight.Place, now time.Time) bool {
	if p.Reply == nil {
		return true
	}
	switch l.InFlight.Confirm(p, now) {
	case inflight.Within:
		return true
	case inflight.Beyond:
		return !r.crowd()
	}
	if admits, skips := r.unanswered(); skips && !admits {
		l.InFlight.Leave(p)
		return !r.Rule.refuses()
	}
	return true // by this edge's own count
}

// Leave gives back the places of a request. It may be called more than once.
func (l *Limiter) Leave(d *Decision) {
	for i := range d.places {
		l.InFlight.Leave(&d.places[i])
	}
	d.places, d.placed = d.places[:0], d.placed[:0]
}
