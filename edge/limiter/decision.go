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

// Verdict is what became of a request under a rule, or under all of them.
type Verdict uint8

const (
	Passed       Verdict = iota
	Limited              // this request would have been over the limit
	Mitigated            // a mitigation is in force; no counter decided
	Shadowed             // a shadow rule would have refused it
	FailedClosed         // no node answers for the source, and the rule fails closed
	Tagged               // a rule that tags has something against it, and lets it go on
	Verdicts             // how many there are
)

func (v Verdict) String() string {
	return [...]string{"pass", "limited", "mitigated", "shadow", "closed", "tagged"}[v]
}

// Decision is the life of one decision: Reset, Add for every rule that the request falls under,
// Limiter.Decide, and Limiter.Settle if it is Held. It is used again for the next, so that deciding
// allocates nothing: nothing of it may be kept, and it must not be copied. The zero value is ready.
// It is for one goroutine.
type Decision struct {
	Verdict Verdict // of all rules together
	// What the client's headers report: the longest wait, or the least left; nil: nothing
	Reported *RuleResult
	Cause    *RuleResult // what the verdict comes from: a shadow's perhaps; nil: no rule applied
	// A rule waits for Settle: it counts by the answer's status, or does not know yet what the
	// request costs
	Held bool

	Results []RuleResult // in the order of Add
	// WiderPrefixes are wider sources that the client belongs to, and of which operators have said
	// something (mitigation.Table.WiderPrefixes).
	WiderPrefixes []counter.Source
	// Everybody is the same and a source that all come under, for rules that have it; nil: it is
	// WiderPrefixes.
	Everybody []counter.Source

	reservations []counter.Reservation
	replies      []<-chan struct{}

	// Delay is how long an admitted request waits for its turn, MaxDelay at most: the longest of
	// its rules, which have counted it already, so that the next has its turn after it.
	Delay time.Duration

	inFlight bool // a rule counts requests in flight
	slots    []slot
	exact    bool // a rule keeps its requests in the tier
	kept     []ticket
}

// slot is a request's slot under a rule with a concurrency.
type slot struct {
	inflight.Slot
	result *RuleResult
}

// ticket is a request that the tier keeps under a rule, and what the rule's result says of it.
type ticket struct {
	exact.Ticket
	result *RuleResult
	answer counter.Reservation
}

// MaxDelay is the longest that a request waits for its turn. Rules whose queue would make it longer
// are to be refused.
const MaxDelay = 30 * time.Second

// RuleResult is one rule that a request falls under, and its verdict.
type RuleResult struct {
	Rule   *Rule
	Source counter.Source
	Index  int // of this result in Decision.Results

	Verdict Verdict
	Wait    time.Duration // until a retry is admitted, if the request is refused
	// End of the mitigation that is in force or starts; zero: there is none
	Until   time.Time
	Skipped bool // no node answers, and the rule's failure policy decided
	// What its counter was asked and answered; nil: it was not asked
	Reservation *counter.Reservation

	// What the request costs, for a rule that Costs and for a check of several hits; 0: 1
	Hits uint32
	// What it costs is known when it is settled: Hits are held until then, and may be changed
	Due bool
	// Instead is the source that the rule would count if it did not count Source apart: what
	// operators have blocked of that is refused. The zero Source: it does not.
	Instead counter.Source
	Probe   bool // nothing is counted: only whether the source is over its limit is read
	Spent   bool // it is counted even if the source is over its limit

	// What counts instead of the rule's counter, by a limit that came with the request; nil: the
	// rule's
	Counter *algorithm.Spec

	asked   bool // its counter is
	kept    bool // its request is kept in the tier, and its counter not asked
	Crowded bool // it is refused because no slot is free, not by its counter
}

// CountedBy is what counts the request.
func (r *RuleResult) CountedBy() *algorithm.Spec {
	if r.Counter != nil {
		return r.Counter
	}
	return r.Rule.Counter
}

// hits is what the request costs.
func (r *RuleResult) hits() uint32 {
	if r.Probe {
		return 0
	}
	return max(1, r.Hits)
}

// orderedAs is the source that operators block.
func (r *RuleResult) orderedAs() counter.Source {
	if r.Instead.IsValid() {
		return r.Instead
	}
	return r.Source
}

func (r *RuleResult) key() mitigation.Key {
	return mitigation.Key{Rule: r.Rule.Counter.ID, Source: r.Source}
}

// open reports whether the rule's counter is still to be asked.
func (r *RuleResult) open() bool { return r.Verdict == Passed && !r.Skipped && !r.kept }

// Reset makes d ready for the next request. Rules of the last one do not live on in it. Only what
// was used is written: a Decision is large.
func (d *Decision) Reset() {
	clear(d.Results)
	clear(d.reservations)
	clear(d.replies)
	d.Results, d.WiderPrefixes, d.Everybody = d.Results[:0], nil, nil
	d.reservations, d.replies = d.reservations[:0], d.replies[:0]
	clear(d.slots)
	clear(d.kept)
	d.slots, d.inFlight, d.kept, d.exact = d.slots[:0], false, d.kept[:0], false
	d.Verdict, d.Reported, d.Cause, d.Held, d.Delay = Passed, nil, nil, false, 0
}

// Add adds a rule that the request falls under, and the source that it counts. No two rules may
// share both counter and source.
func (d *Decision) Add(r *Rule, source counter.Source) {
	n := len(d.Results)
	d.inFlight = d.inFlight || r.InFlight != nil
	d.exact = d.exact || r.Exact != nil
	if n == cap(d.Results) {
		d.Results = append(d.Results, RuleResult{})
	}
	d.Results = d.Results[:n+1] // cleared by Reset
	result := &d.Results[n]
	result.Rule, result.Source, result.Index = r, source, n
}

// reservation is one more, which Reset has cleared.
func (d *Decision) reservation() *counter.Reservation {
	n := len(d.reservations)
	if n == cap(d.reservations) {
		d.reservations = append(d.reservations, counter.Reservation{})
	}
	d.reservations = d.reservations[:n+1]
	return &d.reservations[n]
}

// Refused reports whether the client is to be refused.
func (d *Decision) Refused() bool {
	return d.Verdict == Limited || d.Verdict == Mitigated || d.Verdict == FailedClosed
}

// Rule is a limit: all that a decision needs of it. It must not change while decisions may use it.
type Rule struct {
	mitigation.Rule

	// Owner is whatever the rule belongs to, for readers of results: each carries its rule. The
	// limiter knows no package that makes rules, so its type is theirs to assert, once per result
	// that they read.
	Owner any

	// Statuses of answers that count; until its answer is there, a request's hits are held. nil:
	// every admitted request counts.
	Statuses []int
	// Refused counts refused requests as well, every attempt.
	Refused bool

	OnStoreFailure FailurePolicy // "": Local
	FirstSight     FirstSight    // "": Go

	// A shadow that is no part of the request's verdict: what it says is in its result alone
	Observer bool

	// What operators say of all that come under it holds (Decision.Everybody)
	Everybody bool

	Tag   bool // it counts and mitigates, and what it would refuse goes on, tagged
	Costs bool // a request may be more than one hit: RuleResult.Hits says how many

	// How many requests may be under way at once; nil: any number
	InFlight  *inflight.Concurrency
	Uncounted bool // its counter counts nothing: there is no limit but InFlight
}

// refuses reports whether being over its limit refuses a request.
func (r *Rule) refuses() bool { return !r.Shadow && !r.Tag }

// notEnforced is the verdict of a rule that would refuse: shadows and tags have verdicts of their
// own.
func (r *Rule) notEnforced(v Verdict) Verdict {
	switch {
	case r.Shadow:
		return Shadowed
	case r.Tag:
		return Tagged
	}
	return v
}

// Counts reports whether an admitted request counts that was answered with this status; 0 is no
// answer.
func (r *Rule) Counts(status int) bool {
	return len(r.Statuses) == 0 || slices.Contains(r.Statuses, status)
}

// FailurePolicy says how a rule decides about sources for which no node answers.
type FailurePolicy string

const (
	Local  FailurePolicy = "local"  // on what this edge has counted
	Share  FailurePolicy = "share"  // likewise, by this edge's share of the limit: Limiter.Alone
	Open   FailurePolicy = "open"   // admit
	Closed FailurePolicy = "closed" // refuse
)

// Check says when the tier is read for a request.
type Check string

const (
	Async Check = "async" // behind its back
	Sync  Check = "sync"  // before each decision, which waits for the answer: Rule.Exact
)

// FirstSight says what to do with a request of a source whose count in the PoP is not known yet.
type FirstSight string

const (
	Go   FirstSight = "go"   // decide by what this edge knows
	Wait FirstSight = "wait" // give the tier time to answer
)
