// Package limiter decides whether a request may go on: the rules that it falls under come in, a
// verdict comes out.
//
// It is the only place where a request is decided; edges, the dry run of a log, simulations and tests
// all call it. It has no HTTP, no sockets and no clock.
//
// The story of a block, told in the README, as Decide of edge 1 has it, under a rule of 100
// requests a minute that blocks for a minute. Each step may end the decision:
//
//  1. At 12:00:00.000 a request of 192.0.2.7 comes to edge 1. Is the source blocked?
//     (Limiter.blocked) Nobody is. While no node answers for the source, a rule may refuse at once
//     (Limiter.unanswered).
//  2. Does the edge know enough? (Limiter.learn) Under first_sight: wait a source that it does not
//     know waits for the PoP's count. Most rules do not wait. Is there a place, where a rule bounds
//     how many requests are under way? (Limiter.enter) Then all counters are asked together
//     (Limiter.reserve): with 98 hits the 99th is within the limit, and counts.
//  3. The hit goes to memcached, which is the business of package pop, and so are
//  4. the answer, 101, and
//  5. the block that begins with it. Where this edge itself counts a request as the 101st, the block
//     begins here (Limiter.block).
//  6. At 12:00:00.020 the next request comes to edge 3, whose table of blocks has it by now: step 1
//     refuses, and no counter is asked. What rules say becomes one verdict (Decision.combine): the
//     longest wait of those that refuse, else the least that is left.
//
// When the answer is there, rules that count by its status count the request or forget it (Settle),
// and when the request has ended it gives its places back (Leave).
package limiter

import (
	"math"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/mitigation"
)

const (
	// closedRetry is the wait for a client that a rule refused because no node answers: a node that
	// has come back is used again within two seconds.
	closedRetry = 2 * time.Second
	// openRetry is the least wait for a client that is over the limit only by requests still under
	// way: when they will be answered, and whether they will count, is unknown.
	openRetry = time.Second
)

// Limiter decides. It is safe for concurrent use if its functions are; its fields must not change
// while it is in use.
type Limiter struct {
	Counters *counter.Table
	Blocks   *mitigation.Table

	// Up reports whether a node answers for a source. nil: always.
	Up func(counter.Source) bool
	// Alone returns how many edges shared the tier, as last known, and since when no node answers;
	// the zero time: one does. nil: always.
	Alone func() (edges int, since time.Time)
	// Fetch reads a counter that a request waits for from the tier. It must not block; nil: there
	// is no tier.
	Fetch func(*algorithm.Spec, counter.Source)
	// Wait returns when all channels are closed, or when the request has waited long enough. It
	// must not keep the slice. nil: no request waits.
	Wait func(replies []<-chan struct{})

	InFlight *inflight.Table // requests that are under way; nil: they are not counted
	// The instants of requests that are kept in the tier; nil: there is no tier
	Exact *exact.Table
}

// Decide decides about one request under the rules that were added to d.
func (l *Limiter) Decide(d *Decision, now time.Time) {
	if len(d.Results) == 0 {
		return
	}
	l.ask(d, now)
	if d.combine(); d.inFlight && d.Refused() {
		l.Leave(d)
	}
}

// ask has each rule say what it has against a request, until one refuses it that is asked before
// the others.
func (l *Limiter) ask(d *Decision, now time.Time) {
	if l.blocked(d, now) {
		return
	}
	if l.unanswered(d) {
		return
	}
	if l.learn(d, now) && l.blocked(d, now) { // what was learned may be a block
		return
	}
	refused := d.inFlight && l.enter(d, now)
	if d.exact && l.Exact != nil {
		l.reserveAndKeep(d, refused, now)
		return
	}
	l.reserve(d, refused, now)
}

// blocked looks for blocks, and reports whether one of a rule that refuses is in force. Callers may
// look first whether rules about all requests of a source block it (Blocks), and find out which
// others there are only if none does.
func (l *Limiter) blocked(d *Decision, now time.Time) (refused bool) {
	for i := range d.Results {
		r := &d.Results[i]
		covering := d.WiderPrefixes
		if r.Rule.Everybody && d.Everybody != nil {
			covering = d.Everybody
		}
		until := l.Blocks.UntilOf(r.key(), covering, now)
		if r.Rule.VariantOf != 0 {
			until = l.said(r, covering, now, until)
		}
		if until.IsZero() {
			continue
		}
		r.Verdict, r.Until, r.Wait = Mitigated, until, until.Sub(now)
		r.Verdict = r.Rule.notEnforced(r.Verdict)
		refused = refused || r.Rule.refuses()
	}
	return refused
}

// said returns until, or later where operators block the source under the rule whose variant this
// is. Verdicts under that are of another limit.
func (l *Limiter) said(r *RuleResult, covering []counter.Source, now, until time.Time) time.Time {
	under := mitigation.Key{Rule: r.Rule.VariantOf, Source: r.orderedAs()}
	if end := l.Blocks.UntilOrdered(under, now); end.After(until) {
		until = end
	}
	for _, under.Source = range covering {
		if end := l.Blocks.UntilOrdered(under, now); end.After(until) {
			until = end
		}
	}
	return until
}

// unanswered applies the failure policies of rules while no node answers for a source, and reports
// whether one refuses.
func (l *Limiter) unanswered(d *Decision) (refused bool) {
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

// learn waits for the tier's counts of sources that this edge does not know, where a rule has
// first_sight: wait. It reports whether the request has waited.
func (l *Limiter) learn(d *Decision, now time.Time) bool {
	if l.Fetch == nil || l.Wait == nil {
		return false
	}
	for i := range d.Results {
		r := &d.Results[i]
		if r.Rule.FirstSight != Wait || !r.open() || l.Up != nil && !l.Up(r.Source) {
			continue
		}
		if v, _ := l.Counters.Peek(r.CountedBy(), r.Source, now); v.Fresh {
			continue
		}
		// Before the read, or the reply could come before anything waits for it
		reply, first := l.Counters.Await(r.CountedBy(), r.Source)
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

// reserve decides at all counters together, and starts mitigations where one is over its limit. Of
// a request that is refused already they count what is an attempt.
func (l *Limiter) reserve(d *Decision, refused bool, now time.Time) {
	shadows := false
	for i := range d.Results {
		r := &d.Results[i]
		if !r.open() || r.Rule.Uncounted || refused && !r.Rule.Refused {
			continue
		}
		a := d.reservation()
		a.Rule, a.Source, a.Hits = l.share(r, now), r.Source, r.hits()
		a.Hold = (len(r.Rule.Statuses) > 0 || r.Due) && !refused
		a.Shadow, a.Always = !r.Rule.refuses(), r.Rule.Refused || r.Spent
		r.asked, d.Held, shadows = true, d.Held || a.Hold, shadows || a.Shadow
	}
	if len(d.reservations) == 0 {
		return
	}
	for i, n := 0, 0; n < len(d.reservations); i++ {
		if r := &d.Results[i]; r.asked {
			r.Reservation, n = &d.reservations[n], n+1
		}
	}
	admitted := l.Counters.Reserve(d.reservations, now)
	if admitted && !shadows {
		return
	}
	for i := range d.Results {
		switch r := &d.Results[i]; {
		case r.Reservation == nil:
		case r.Reservation.Over:
			l.over(r, now)
		case !admitted && r.Rule.Refused:
			// Another rule refuses, and this one counts that all the same. The client waits until
			// this one admits a retry, too.
			l.Counters.Commit(r.Reservation, now)
			v, _ := l.Counters.PeekFor(r.CountedBy(), r.Source, r.hits(), now)
			if v.Over && !r.Rule.Shadow {
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
	r.Verdict = r.Rule.notEnforced(r.Verdict)
	// Over its share of the limit, and what other edges have admitted is unknown: no reason to
	// block a source.
	if r.Reservation.Rule != r.CountedBy() {
		edges, _ := l.Alone() // 0 if the tier has just come back
		whole := shareOf(r.CountedBy(), max(edges, 1), 0)
		v, _ := l.Counters.PeekFor(whole, r.Source, r.hits(), now)
		r.Wait = max(r.Wait, v.RetryAfter) // when nothing is known any more
		return
	}
	if end := l.block(r, now); !end.IsZero() {
		r.Until, r.Wait = end, max(r.Wait, end.Sub(now))
		l.Counters.Blocked(counter.Counter{Rule: r.CountedBy(), Source: r.Source}, now, end, now)
	}
}

// block starts a block, longer of a source that comes back, and returns when it ends; the zero
// Time: none starts. Of requests that are over at once one finds the memory of earlier blocks, and
// the others what it has started.
func (l *Limiter) block(r *RuleResult, now time.Time) time.Time {
	k, rule := r.key(), r.Rule
	timeout := l.Blocks.Timeout(k, rule.Timeout, rule.Repeat, now)
	end := mitigation.End(r.Reservation.Verdict, timeout, now)
	if end.IsZero() {
		return end
	}
	if !l.Blocks.Start(k, mitigation.Bit{
		Start: now, End: end, By: mitigation.ByEdge, Shadow: rule.Shadow, Version: rule.Version(),
		Memory: rule.Repeat.Memory(),
	}, now) {
		// Another request has started one meanwhile; or none starts: after a lift, under other
		// rules, or in a table full of blocks worth more.
		return l.Blocks.Until(k, now)
	}
	return end
}

// combine makes one verdict of all: the strictest refusal, which is the longest wait; else the rule
// with the least left. A rule that was not asked, because another refused before, has nothing
// against the request. Rules that tag are not reported to the client.
func (d *Decision) combine() {
	var refusal, least, tagged, shadow, other *RuleResult
	var wait time.Duration
	for i := range d.Results {
		r := &d.Results[i]
		if r.Rule.Observer {
			continue
		}
		switch r.Verdict {
		case Passed:
			wait = max(wait, r.Wait)
			if r.Reservation == nil {
				break
			}
			if r.Reservation.Delay > d.Delay && !r.Rule.Shadow {
				d.Delay = min(r.Reservation.Delay, MaxDelay)
			}
			if !r.Rule.refuses() {
				other = r
			} else if least == nil || r.Reservation.Remaining < least.Reservation.Remaining {
				least = r
			}
		case Shadowed:
			if shadow == nil || r.Wait > shadow.Wait {
				shadow = r
			}
		case Tagged:
			if tagged == nil || r.Wait > tagged.Wait {
				tagged = r
			}
		default:
			wait = max(wait, r.Wait)
			if refusal == nil || r.Wait > refusal.Wait {
				refusal = r
			}
		}
	}
	switch {
	case refusal != nil:
		d.Verdict, d.Reported, d.Cause = refusal.Verdict, refusal, refusal
		d.Held, d.Delay, refusal.Wait = false, 0, wait
	case tagged != nil:
		d.Verdict, d.Reported, d.Cause = Tagged, least, tagged
	case shadow != nil:
		d.Verdict, d.Reported, d.Cause = Shadowed, least, shadow
	case least != nil:
		d.Reported, d.Cause = least, least
	default:
		d.Cause = other
	}
}

// Settle counts what had to wait for the answer to an admitted request: status is its status, or 0
// if there was none. It may be called more than once; only the first call counts. Where what the
// request costs is due, RuleResult.Hits says it by now.
func (l *Limiter) Settle(d *Decision, status int, now time.Time) {
	if !d.Held {
		return
	}
	d.Held = false
	for i := range d.kept { // what does not count is taken back
		if k := &d.kept[i]; !k.result.Rule.Counts(status) {
			l.Exact.Cancel(&k.Ticket)
		}
	}
	for i := range d.Results {
		switch r := &d.Results[i]; { // a reservation that is not held is left alone
		case r.Reservation == nil || r.kept:
		case r.Rule.Counts(status):
			if held := r.Reservation.Hits; r.Due && r.hits() > held {
				more := r.hits() - held
				r.Reservation.Estimate += float64(more)
				r.Reservation.Remaining -= min(r.Reservation.Remaining, more)
			}
			l.Counters.CommitAs(r.Reservation, r.hits(), now)
		default:
			l.Counters.Cancel(r.Reservation)
		}
	}
}

// IsBlocked reports whether a mitigation refuses all requests of a source under a rule. It is for
// what is costly to find out about a request that is refused anyhow.
func (l *Limiter) IsBlocked(r *Rule, source counter.Source, covering []counter.Source,
	now time.Time) bool {
	return !l.BlockedUntil(r, source, covering, now).IsZero()
}

// BlockedUntil is until when it is, or the zero Time.
func (l *Limiter) BlockedUntil(r *Rule, source counter.Source, covering []counter.Source,
	now time.Time) time.Time {
	if !r.refuses() {
		return time.Time{}
	}
	return l.Blocks.UntilOf(mitigation.Key{Rule: r.Counter.ID, Source: source}, covering, now)
}

// Ordered is the operators' block that refuses a request with this result; false: a verdict does.
func (l *Limiter) Ordered(r *RuleResult, covering []counter.Source,
	now time.Time) (mitigation.Bit, bool) {
	if r.Verdict != Mitigated || r.Until.IsZero() {
		return mitigation.Bit{}, false
	}
	key := mitigation.Key{Rule: r.Rule.Counter.ID, Source: r.orderedAs()}
	return l.Blocks.OrderOf(key, r.Rule.VariantOf, covering, r.Until, now)
}

// While no node answers, each edge counts alone, and all edges together would admit a source the
// whole limit each. A rule whose failure policy is Share has each of them admit its share of what
// is left:
//
//	(limit - known) / edges    rounded up, and at most limit / edges, rounded down, but 1 at least
//
// Known is what the tier has confirmed of the source, which leaves the window little by little and
// is gone after a window; only hits that it has not confirmed, this edge's own since nobody
// answers, are held against the share. So a source that begins meanwhile gets the share of the
// limit at once, and no more. One that keeps to the limit and comes to all edges alike is refused
// at no time: as much as leaves the window comes in, a share of it at each edge. One that keeps to
// a single edge has that edge's share.

// share is what counts a request: by this edge's share of the limit, where the rule says so and
// this edge is alone.
func (l *Limiter) share(r *RuleResult, now time.Time) *algorithm.Spec {
	if r.Rule.OnStoreFailure == Share && l.Alone != nil {
		if edges, since := l.Alone(); !since.IsZero() && edges > 1 {
			by := r.CountedBy()
			return shareOf(by, edges, l.Counters.Shared(by, r.Source, now))
		}
	}
	return r.CountedBy()
}

// shareOf is a rule by one edge's share of its limit, on top of so many hits that are known,
// weighed by their age. The sum is rounded, as estimates are that are compared with it, and they
// are weighed alike.
func shareOf(r *algorithm.Spec, edges int, known float64) *algorithm.Spec {
	left := max(math.Ceil((float64(r.Limit)-known)/float64(edges)), 0)
	most := max(r.Limit/uint32(edges), 1)
	e := r.Estimate
	if e == algorithm.Nearest {
		e = algorithm.Weighed
	}
	return r.With(uint32(math.Round(known+min(left, float64(most)))), e)
}

// shareInFlight is a rule's concurrency, or this edge's share of it. Requests of other edges are
// not counted here, so the share applies at once.
func (l *Limiter) shareInFlight(r *Rule) *inflight.Concurrency {
	if r.OnStoreFailure == Share && l.Alone != nil {
		if edges, since := l.Alone(); !since.IsZero() && edges > 1 {
			return &inflight.Concurrency{Name: r.InFlight.Name,
				Limit: max(r.InFlight.Limit/int32(edges), 1)}
		}
	}
	return r.InFlight
}

// A rule with a concurrency has so many slots over the PoP, and a request holds one from its
// decision until Leave. Where there is a tier the request waits until that has counted it, as under
// check: sync (exact.go): as long as Limiter.Wait lets it, once for all its rules. If the tier has
// not answered by then, the rule's failure policy decides; local is this edge's own count against
// the whole concurrency.
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
		d.slots = append(d.slots, slot{p, r})
		if p.Reply != nil {
			d.replies = append(d.replies, p.Reply)
		}
	}
	if len(d.replies) > 0 && !refused {
		l.Wait(d.replies)
		for i := range d.slots {
			refused = !l.confirm(&d.slots[i], now) || refused
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
func (l *Limiter) confirm(s *slot, now time.Time) bool {
	r := s.result
	if s.Reply == nil {
		return true
	}
	switch l.InFlight.Confirm(&s.Slot, now) {
	case counter.Admit:
		return true
	case counter.Reject:
		return !r.crowd()
	}
	if admits, skips := r.fallBack(); skips && !admits {
		l.InFlight.Leave(&s.Slot)
		return !r.Rule.refuses()
	}
	return true // by this edge's own count
}

// Leave notes that a request has ended, and gives back its slots. It may be called more than once.
func (l *Limiter) Leave(d *Decision) {
	l.Arrived(d)
	for i := range d.slots {
		l.InFlight.Leave(&d.slots[i].Slot)
	}
	d.slots = d.slots[:0]
}
