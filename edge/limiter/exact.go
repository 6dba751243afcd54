package limiter

import (
	"time"

	"sluice/counter"
)

// Under check: sync with algorithm: exact or token_bucket the tier keeps the instant of each
// request (package exact), and a request waits until it does, as long as Limiter.Wait lets it, once
// for all its rules. If the tier has not answered by then the rule's failure policy decides; local
// is what this edge knows. In doubt, because the tier has lost what it kept, a rule that is closed
// refuses until that matters no more; others go on with what is left. No counter is asked under
// such a rule.
//
// A request that another rule refuses, or whose answer does not count, is taken back. A refused
// source is refused without the tier for as long as nothing can have changed, a second at most.

// reserveAndKeep has the tier keep the request and then reserves at the counters. The tier comes
// first because counters count only what is admitted, unless they refuse it as far as this edge
// knows. Refused says that the request is refused already.
func (l *Limiter) reserveAndKeep(d *Decision, refused bool, now time.Time) {
	keeps := false
	for i := range d.Results {
		if r := &d.Results[i]; r.Rule.Exact != nil && r.open() {
			r.kept, keeps = true, !refused
		}
	}
	if keeps && !l.willRefuse(d, now) {
		refused, keeps = l.keep(d, now), false
	}
	l.reserve(d, refused, now)
	if keeps && !d.isRefused() { // a moment has passed since
		l.keep(d, now)
	}
	if d.isRefused() {
		for i := range d.kept {
			l.Exact.Cancel(&d.kept[i].Ticket)
		}
	}
	l.reportKept(d, now)
}

// isRefused reports whether a rule has refused the request so far.
func (d *Decision) isRefused() bool {
	for i := range d.Results {
		if r := &d.Results[i]; r.Verdict != Passed && r.Rule.refuses() {
			return true
		}
	}
	return false
}

// keep has the tier keep a request, and reports whether a rule refuses it.
func (l *Limiter) keep(d *Decision, now time.Time) (refused bool) {
	wall := l.Counters.Wall(now)
	d.replies = d.replies[:0]
	for i := range d.Results {
		r := &d.Results[i]
		if !r.kept {
			continue
		}
		k := l.Exact.Enter(r.Rule.Exact, r.Source, l.Wait != nil && (l.Up == nil || l.Up(r.Source)),
			wall)
		if k.Reply != nil {
			d.replies = append(d.replies, k.Reply)
		} else if l.Exact.Confirm(&k, wall) == counter.Reject {
			refused = refused || r.Rule.refuses()
		}
		d.kept = append(d.kept, ticket{Ticket: k, result: r})
	}
	if len(d.replies) > 0 && !refused {
		l.Wait(d.replies)
		wall = l.Counters.Wall(now)
	}
	for i := range d.kept {
		refused = !l.keeps(&d.kept[i], refused, wall) || refused
	}
	return refused
}

// keeps reports whether a rule admits a request, by the tier's answer, or else by its failure
// policy. If refused, another has.
func (l *Limiter) keeps(t *ticket, refused bool, wall time.Time) bool {
	r, k := t.result, &t.Ticket
	switch l.Exact.Confirm(k, wall) {
	case counter.Admit:
		return true
	case counter.Reject:
		r.Verdict = r.Rule.notEnforced(Limited)
		return !r.Rule.refuses()
	case counter.Unknown:
		r.Skipped, r.Verdict = true, r.Rule.notEnforced(FailedClosed)
		if r.Rule.refuses() {
			r.Wait = k.RetryAfter
		}
		return !r.Rule.refuses()
	}
	if refused { // it is dropped
		return true
	}
	if admits, skips := r.fallBack(); skips {
		l.Exact.Cancel(k)
		return admits || !r.Rule.refuses()
	}
	if l.Exact.Locally(k, wall) {
		return true
	}
	r.Verdict = r.Rule.notEnforced(Limited)
	return !r.Rule.refuses()
}

// reportKept fills in the results of rules that are kept in the tier, after the counters' own.
func (l *Limiter) reportKept(d *Decision, now time.Time) {
	for i := range d.kept {
		r, k := d.kept[i].result, &d.kept[i]
		if r.Skipped {
			continue
		}
		k.answer = counter.Reservation{Rule: r.Rule.Counter, Source: r.Source, Hits: 1,
			Verdict: k.Verdict}
		r.Reservation = &k.answer
		if r.Reservation.Over {
			l.over(r, now)
		}
		d.Held = d.Held || len(r.Rule.Statuses) > 0 && r.Verdict == Passed
	}
}

// Arrived notes that an admitted request has reached its origin, or never will. It may be called
// more than once.
func (l *Limiter) Arrived(d *Decision) {
	for i := range d.kept {
		l.Exact.Done(&d.kept[i].Ticket)
	}
}

// Peek returns a source's state under a rule as far as this edge knows, and whether it knows
// anything.
func (l *Limiter) Peek(r *Rule, source counter.Source,
	now time.Time) (v counter.Verdict, there bool) {
	if r.Exact != nil && l.Exact != nil {
		return l.Exact.Peek(r.Exact, source, l.Counters.Wall(now))
	}
	return l.Counters.Peek(r.Counter, source, now)
}

// fallBack applies a rule's failure policy where the tier has not answered in time. If it skips,
// that is all that is to be decided.
func (r *RuleResult) fallBack() (admits, skips bool) {
	switch r.Rule.OnStoreFailure {
	case Open:
		r.Skipped = true
		return true, true
	case Closed:
		r.Skipped, r.Verdict = true, FailedClosed
		if r.Rule.Shadow {
			r.Verdict = Shadowed
		} else {
			r.Wait = closedRetry
		}
		return false, true
	}
	return false, false
}
