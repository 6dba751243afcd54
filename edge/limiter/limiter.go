// Package limiter decides whether a request may go on: the rules that it falls under come in, a verdict comes out.
//
// It is the only place where that is decided; edges, the dry run of a log, simulations and tests all call it. It has no
// HTTP, no sockets and no clock. A decision takes, in this order:
//
//	bits         a source that is mitigated under an enforcing rule is refused, and no counter is asked. Callers may look first whether
//	             rules that are about all its requests do (Blocks), and find out which others there are only if none does
//	failClosed   while nobody in the tier answers for the source, each rule does what its posture says
//	await        a rule with first_sight: wait lets the tier say what it knows; then bits are looked at again
//	enter        rules with a concurrency give the request a place, over the PoP (slots.go); without one no counter is asked
//	keep         rules with check: sync and algorithm: exact have the tier keep the request (exact.go); if one refuses, no counter is asked
//	ask          all counters together: if one refuses, none counts the request; where one is over, a mitigation starts
//	rank         a rule with check: sync lets the tier say whether the request is within the limit (rank.go)
//	combine      the strictest rule wins
//	Settle       when the answer is there, rules that count by its status count the request or forget it
//	Leave        when the request has ended, it gives its places back
package limiter

import (
	"slices"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/mitigation"
)

const (
	// closedRetry is the wait for a client that a rule refused because no node answers: a node that has come back is
	// used again within two seconds.
	closedRetry = 2 * time.Second
	// openRetry is the least wait for a client that is over the limit only by requests still under way: when they will
	// be answered, and whether they will count, is unknown.
	openRetry = time.Second
)

// Limiter decides. It is safe for concurrent use if its functions are; its fields must not change while it is in use.
type Limiter struct {
	Counters *counter.Table
	Bits     *mitigation.Table

	// Up reports whether a node answers for a source. nil: always.
	Up func(counter.Source) bool
	// Alone returns how many edges shared the tier, as last known, and since when no node answers; the zero time: one
	// does. nil: always.
	Alone func() (edges int, since time.Time)
	// Fetch reads a counter that a request waits for from the tier. It must not block; nil: there is no tier.
	Fetch func(*algorithm.Spec, counter.Source)
	// Wait returns when all channels are closed, or when the request has waited long enough. It must not keep the slice. nil:
	// no request waits.
	Wait func(replies []<-chan struct{})

	InFlight *inflight.Table // requests that are under way; nil: they are not counted
	Exact    *exact.Table    // the instants of requests that are kept in the tier; nil: there is no tier
}

// Decide decides about one request under the rules that were added to d.
func (l *Limiter) Decide(d *Decision, now time.Time) {
	if len(d.Results) == 0 {
		return
	}
	if !l.mitigated(d, now) && !l.failClosed(d) && !(l.await(d, now) && l.mitigated(d, now)) {
		refused := d.inFlight && l.enter(d, now)
		if d.exact && l.Exact != nil {
			l.reserveAndKeep(d, refused, now)
		} else {
			l.reserve(d, refused, now)
		}
	}
	if d.combine(); d.inFlight && d.Refused() {
		l.Leave(d)
	}
}

// Blocks reports whether a mitigation refuses all requests of a source under a rule. It is for what is costly to find out about a request
// that is refused anyhow.
func (l *Limiter) Blocks(r *Rule, source counter.Source, covering []counter.Source, now time.Time) bool {
	return !l.BlocksUntil(r, source, covering, now).IsZero()
}

// BlocksUntil returns until when it does, or the zero Time.
func (l *Limiter) BlocksUntil(r *Rule, source counter.Source, covering []counter.Source, now time.Time) time.Time {
	if !r.refuses() {
		return time.Time{}
	}
	return l.Bits.UntilOf(mitigation.Key{Rule: r.Counter.ID, Source: source}, covering, now)
}

// Ordered is the operators' block that refuses a request with this result; false: a verdict does.
func (l *Limiter) Ordered(r *RuleResult, covering []counter.Source, now time.Time) (mitigation.Bit, bool) {
	if r.Verdict != Mitigated || r.Until.IsZero() {
		return mitigation.Bit{}, false
	}
	return l.Bits.OrderOf(r.key(), r.Rule.Of, covering, r.Until, now)
}

// mitigated looks for bits, and reports whether one of an enforcing rule is in force.
func (l *Limiter) mitigated(d *Decision, now time.Time) (refused bool) {
	for i := range d.Results {
		r := &d.Results[i]
		until := l.Bits.UntilOf(r.key(), d.Covering, now)
		if r.Rule.Of != 0 {
			until = l.said(r, d.Covering, now, until)
		}
		if until.IsZero() {
			continue
		}
		r.Verdict, r.Until, r.Wait = Mitigated, until, until.Sub(now)
		r.Verdict = r.Rule.spared(r.Verdict)
		refused = refused || r.Rule.refuses()
	}
	return refused
}

// said returns until, or later where operators block the source under the rule whose variant this is. Verdicts under
// that are of another limit.
func (l *Limiter) said(r *RuleResult, covering []counter.Source, now, until time.Time) time.Time {
	if end := l.Bits.UntilOrdered(mitigation.Key{Rule: r.Rule.Of, Source: r.Source}, now); end.After(until) {
		until = end
	}
	for _, wider := range covering {
		if end := l.Bits.UntilOrdered(mitigation.Key{Rule: r.Rule.Of, Source: wider}, now); end.After(until) {
			until = end
		}
	}
	return until
}

// failClosed applies postures while no node answers for a source, and reports whether a rule refuses.
func (l *Limiter) failClosed(d *Decision) (refused bool) {
	if l.Up == nil {
		return false
	}
	for i := range d.Results {
		r := &d.Results[i]
		p := r.Rule.OnStoreFailure
		if p != Open && p != Closed || r.Verdict != Passed || l.Up(r.Source) {
			continue
		}
		r.Skipped = true
		switch {
		case p == Open:
		case r.Rule.Shadow:
			r.Verdict = Shadowed
		default:
			r.Verdict, r.Wait, refused = FailedClosed, closedRetry, true
		}
	}
	return refused
}

// await waits for the tier's counts of sources that this edge does not know, where a rule has first_sight: wait. It
// reports whether the request has waited.
func (l *Limiter) await(d *Decision, now time.Time) bool {
	if l.Fetch == nil || l.Wait == nil {
		return false
	}
	for i := range d.Results {
		r := &d.Results[i]
		if r.Rule.FirstSight != Wait || !r.open() || l.Up != nil && !l.Up(r.Source) {
			continue
		}
		if v, _ := l.Counters.Peek(r.CountedBy(), r.Source, now); v.Known {
			continue
		}
		reply, first := l.Counters.Await(r.CountedBy(), r.Source) // before the read, or the reply could come before anything waits for it
		if first {
			l.Fetch(r.CountedBy(), r.Source)
		}
		d.replies = append(d.replies, reply)
	}
	if len(d.replies) == 0 {
		return false
	}
	l.Wait(d.replies)
	return true
}

// reserve decides at all counters together, and starts mitigations where one is over its limit. Of a request that is
// refused already they count what is an attempt.
func (l *Limiter) reserve(d *Decision, refused bool, now time.Time) {
	d.reservations = slices.Grow(d.reservations, len(d.Results)) // first, because results point into it
	shadows, ranked := false, false
	for i := range d.Results {
		r := &d.Results[i]
		if !r.open() || r.Rule.Uncounted || refused && !r.Rule.Refused {
			continue
		}
		d.reservations = d.reservations[:len(d.reservations)+1] // cleared by Reset
		a := &d.reservations[len(d.reservations)-1]
		a.Rule, a.Source, a.Hits = l.share(r, now), r.Source, r.hits()
		a.Hold = (len(r.Rule.Statuses) > 0 || r.Due) && !refused
		a.Shadow, a.Always = !r.Rule.refuses(), r.Rule.Refused
		r.Reservation = a
		d.Held = d.Held || a.Hold
		shadows = shadows || a.Shadow
		ranked = ranked || l.ranked(r)
	}
	if len(d.reservations) == 0 {
		return
	}
	if ranked {
		l.take(d)
	}
	admitted := l.Counters.Reserve(d.reservations, now)
	if ranked && admitted {
		admitted = l.rank(d, now)
	}
	if admitted && !shadows {
		return
	}
	for i := range d.Results {
		switch r := &d.Results[i]; {
		case r.Reservation == nil:
		case r.Reservation.Over:
			l.over(r, now)
		case !admitted && r.Rule.Refused:
			// Another rule refuses, and this one counts that all the same. The client waits until this one admits a retry, too.
			l.Counters.Commit(r.Reservation, now)
			if v, _ := l.Counters.PeekFor(r.CountedBy(), r.Source, r.hits(), now); v.Over && !r.Rule.Shadow {
				r.Wait = v.RetryAfter
			}
		}
	}
}

// over is what becomes of a request that is over a rule's limit.
func (l *Limiter) over(r *RuleResult, now time.Time) {
	r.Verdict, r.Wait = Limited, r.Reservation.RetryAfter
	if !r.Reservation.Committed {
		r.Wait = max(r.Wait, openRetry)
	}
	r.Verdict = r.Rule.spared(r.Verdict)
	if r.Reservation.Rule != r.CountedBy() { // over its share of the limit, and what other edges have admitted is unknown: no reason to block a source
		edges, _ := l.Alone() // 0 if the tier has just come back
		v, _ := l.Counters.PeekFor(shareOf(r.CountedBy(), max(edges, 1), 0), r.Source, r.hits(), now)
		r.Wait = max(r.Wait, v.RetryAfter) // when nothing is known any more
		return
	}
	bit := mitigation.Bit{Shadow: r.Rule.Shadow, Terms: r.Rule.Terms()}
	if end := l.mitigate(r.key(), r.Reservation.Verdict, r.Rule.Timeout, r.Rule.Repeat, bit, now); !end.IsZero() {
		r.Until, r.Wait = end, max(r.Wait, end.Sub(now))
		l.Counters.Blocked(counter.Counter{Rule: r.CountedBy(), Source: r.Source}, now, end, now)
	}
}

// mitigate starts a mitigation, longer for a source that comes back, and returns when it ends; the zero Time: none
// starts. Of requests that are over at once one finds the memory, and the others what it has started. bit is what does
// not follow from the rest.
func (l *Limiter) mitigate(k mitigation.Key, v counter.Verdict, timeout time.Duration, repeat mitigation.Repeat, bit mitigation.Bit, now time.Time) time.Time {
	end := mitigation.End(v, l.Bits.Timeout(k, timeout, repeat, now), now)
	if end.IsZero() {
		return end
	}
	bit.Start, bit.End, bit.By, bit.Memory = now, end, mitigation.ByEdge, repeat.Memory()
	if !l.Bits.Start(k, bit, now) {
		return l.Bits.Until(k, now) // another's that has started meanwhile; none after a lift or under other rules, or in a table full of bits worth more
	}
	return end
}

// Settle counts what had to wait for the answer to an admitted request: status is its status, or 0 if there was none. It may be
// called more than once; only the first call counts. Where what the request costs is due, RuleResult.Hits says it by now.
func (l *Limiter) Settle(d *Decision, status int, now time.Time) {
	if !d.Held {
		return
	}
	d.Held = false
	l.settleKept(d, status)
	for i := range d.Results {
		switch r := &d.Results[i]; { // a reservation that is not held is left alone
		case r.Reservation == nil || r.kept:
		case r.Rule.Counts(status):
			if more := r.hits() - r.Reservation.Hits; r.Due && more > 0 {
				r.Reservation.Estimate += float64(more)
				r.Reservation.Remaining -= min(r.Reservation.Remaining, more)
			}
			l.Counters.CommitAs(r.Reservation, r.hits(), now)
		default:
			l.Counters.Cancel(r.Reservation)
		}
	}
}
