package limiter

import (
	"slices"
	"time"

	"sluice/counter"
	"sluice/counter/inflight"
)

// A rule with a concurrency has so many slots over the PoP, and a request holds one from its
// decision until Leave. Where there is a tier the request waits until that has counted it, as under
// check: sync (exact.go): as long as Limiter.Wait lets it, once for all its rules. If the tier has
// not answered by then, the rule's failure policy decides; local is this edge's own count against the
// whole concurrency.
//
// No mitigation starts for want of a slot, because one may come free at any moment. What an
// exchange costs the tier is in package inflight.

// crowdedRetry is the wait for a client that finds no slot: when one comes free is unknown.
const crowdedRetry = time.Second

// enter takes slots for a request, and reports whether a rule refuses it for want of one. Those
// that others gave it Decide gives back.
func (l *Limiter) enter(d *Decision, now time.Time) (refused bool) {
	if l.InFlight == nil {
		return false
	}
	d.slots = slices.Grow(d.slots, len(d.Results))
	d.replies = d.replies[:0]
	waits := l.Wait != nil && !l.willRefuse(d, now)
	for i := range d.Results {
		r := &d.Results[i]
		if r.Rule.InFlight == nil || !r.open() {
			continue
		}
		asks := waits && (l.Up == nil || l.Up(r.Source))
		p, entered := l.InFlight.Enter(l.shareInFlight(r.Rule), r.Source, asks, now)
		if !entered {
			refused = r.crowd() || refused
			continue
		}
		d.slots, d.slotResults = append(d.slots, p), append(d.slotResults, i)
		if p.Reply != nil {
			d.replies = append(d.replies, p.Reply)
		}
	}
	if len(d.replies) > 0 && !refused {
		l.Wait(d.replies)
		for i := range d.slots {
			refused = !l.confirm(&d.Results[d.slotResults[i]], &d.slots[i], now) || refused
		}
	}
	return refused
}

// willRefuse reports whether a limit refuses a request as far as this edge knows. Then no slot is
// taken: a flood over its limit would hold slots of others for a round trip each. If the limit
// admits it all the same, because a moment has passed, it has a slot by this edge's count.
func (l *Limiter) willRefuse(d *Decision, now time.Time) bool {
	for i := range d.Results {
		r := &d.Results[i]
		if !r.open() || r.Rule.Uncounted || !r.Rule.refuses() ||
			r.Rule.Exact != nil && l.Exact != nil {
			continue
		}
		if v, _ := l.Counters.PeekFor(r.CountedBy(), r.Source, r.hits(), now); v.Over {
			return true
		}
	}
	return false
}

// crowd decides about a request that finds no slot under a rule. It reports whether that refuses
// it.
func (r *RuleResult) crowd() bool {
	r.Verdict, r.Wait, r.Crowded = r.Rule.notEnforced(Limited), crowdedRetry, true
	return r.Rule.refuses()
}

// confirm reports whether a rule admits a request, by the tier's answer about its slot, or else by
// its failure policy.
func (l *Limiter) confirm(r *RuleResult, p *inflight.Slot, now time.Time) bool {
	if p.Reply == nil {
		return true
	}
	switch l.InFlight.Confirm(p, now) {
	case counter.Admit:
		return true
	case counter.Reject:
		return !r.crowd()
	}
	if admits, skips := r.fallBack(); skips && !admits {
		l.InFlight.Leave(p)
		return !r.Rule.refuses()
	}
	return true // by this edge's own count
}

// Leave notes that a request has ended, and gives back its slots. It may be called more than once.
func (l *Limiter) Leave(d *Decision) {
	l.Arrived(d)
	for i := range d.slots {
		l.InFlight.Leave(&d.slots[i])
	}
	d.slots, d.slotResults = d.slots[:0], d.slotResults[:0]
}
