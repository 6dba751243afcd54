package limiter

import (
	"slices"
	"time"

	"sluice/counter"
)

// Under a rule with check: sync the tier is read before each decision, and every request waits for its rank
// (counter.Table.Rank): of parallel requests over all edges exactly those are admitted that the limit has room for.
// Other rules of such a request hold their reservations meanwhile. A request waits as long as Limiter.Wait lets it; if
// the tier has not answered by then, the rule's posture decides. If that refuses the request, it does not count: what
// was reported is taken back with the answer, however late that is. It counts only if no answer comes, because then it
// is unknown whether the tier has counted it. What one request costs the tier at most is at counter.Table.Rank.
//
// Requests that wait are bounded by the connections of the edge: each holds its own and a timer. A blocked source does
// not wait, nor one that a rule refuses on an answer of the last 64 ms; so a flood of one source is two reports under
// way for each edge.

// ranked reports whether the tier ranks a rule's hits.
func (l *Limiter) ranked(r *RuleResult) bool {
	return r.Rule.Counter.Sync && l.Fetch != nil && l.Wait != nil && (l.Up == nil || l.Up(r.Source))
}

// take gives the reservations that are ranked their tickets, and has all others held.
func (l *Limiter) take(d *Decision) {
	d.tickets = slices.Grow(d.tickets, len(d.Results))
	for i := range d.Results {
		r := &d.Results[i]
		switch {
		case r.Reservation == nil:
		case l.ranked(r):
			blocks := len(r.Rule.Statuses) == 0 && r.Rule.Timeout >= r.Rule.Counter.Window+r.Rule.Counter.SubWindow()
			d.tickets = append(d.tickets, counter.Ticket{Keep: blocks})
			r.Reservation.Ticket = &d.tickets[len(d.tickets)-1]
		default:
			r.Reservation.Hold = true
		}
	}
}

// rank waits for the ranks of a request that no rule has refused so far, and reports whether none does.
func (l *Limiter) rank(d *Decision, now time.Time) (admitted bool) {
	d.replies = d.replies[:0] // those of learn are over
	for i := range d.tickets {
		if reply := d.tickets[i].Reply; reply != nil {
			d.replies = append(d.replies, reply)
		}
	}
	if len(d.replies) > 0 {
		l.Wait(d.replies)
	}
	admitted = true
	for i := range d.Results {
		r := &d.Results[i]
		if r.Reservation != nil && r.Reservation.Ticket != nil && !r.Reservation.Over && !l.within(r, now) && !r.Rule.Shadow {
			admitted = false
		}
	}
	for i := range d.Results {
		switch r := &d.Results[i]; {
		case r.Reservation == nil || r.Reservation.Over:
		case !r.refuses() && (admitted || r.Rule.Refused):
			if len(r.Rule.Statuses) == 0 && !r.Due {
				l.Counters.Commit(r.Reservation, now)
			}
		default:
			l.Counters.Cancel(r.Reservation)
		}
	}
	return admitted
}

// refuses reports whether a rule that is not over its limit is against the request all the same.
func (r *RuleResult) refuses() bool { return r.Verdict != Passed }

// older is how much older than a request a block is that is not of requests beside it.
const older = time.Second

// within reports whether a rule admits a request, by its rank or else by its posture.
func (l *Limiter) within(r *RuleResult, now time.Time) bool {
	known := r.Reservation.Known
	switch l.Counters.Order(r.Reservation, now) {
	case counter.Beyond:
		return false
	case counter.Within:
		// The answer may have brought a block that is new to this edge.
		if bit, there := l.Bits.Get(r.key(), now); there && !known && now.Sub(bit.Start) > older {
			r.Verdict, r.Until, r.Wait = Mitigated, bit.End, bit.End.Sub(now)
			if r.Rule.Shadow {
				r.Verdict = Shadowed
			}
			return false
		}
		return true
	}
	if admits, skips := r.fallBack(); skips {
		return admits
	}
	if r.Reservation.Ticket.Over {
		if r.Reservation.Over = true; !r.Rule.Refused {
			l.Counters.Cancel(r.Reservation)
		}
	}
	return !r.Reservation.Over
}

// fallBack applies a rule's posture where the tier has not answered in time. If it skips, that is all that is to be decided.
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
