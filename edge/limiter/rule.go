package limiter

import (
	"slices"

	"sluice/counter/inflight"
	"sluice/mitigation"
)

// Rule is a limit: all that a decision needs of it. It must not change while decisions may use it.
type Rule struct {
	mitigation.Rule

	// Owner is whatever the rule belongs to, for readers of results: each carries its rule.
	Owner any

	// Statuses of answers that count; until its answer is there, a request's hits are held. nil: every admitted request
	// counts.
	Statuses []int
	// Refused counts refused requests as well, every attempt.
	Refused bool

	OnStoreFailure Posture    // "": Local
	FirstSight     FirstSight // "": Go

	Beside bool // a shadow that is no part of the request's verdict: what it says is in its result alone

	Tag   bool // it counts and mitigates, and what it would refuse goes on, tagged
	Costs bool // a request may be more than one hit: RuleResult.Hits says how many

	InFlight  *inflight.Concurrency // how many requests may be under way at once (slots.go); nil: any number
	Uncounted bool                  // its counter counts nothing: there is no limit but InFlight
}

// refuses reports whether being over its limit refuses a request.
func (r *Rule) refuses() bool { return !r.Shadow && !r.Tag }

// spared is the verdict of a rule that would refuse: shadows and tags have verdicts of their own.
func (r *Rule) spared(v Verdict) Verdict {
	switch {
	case r.Shadow:
		return Shadowed
	case r.Tag:
		return Tagged
	}
	return v
}

// Counts reports whether an admitted request counts that was answered with this status; 0 is no answer.
func (r *Rule) Counts(status int) bool {
	return len(r.Statuses) == 0 || slices.Contains(r.Statuses, status)
}

// Posture says how a rule decides about sources for which no node answers.
type Posture string

const (
	Local  Posture = "local"  // on what this edge has counted
	Share  Posture = "share"  // likewise, by this edge's share of the limit: Limiter.Alone
	Open   Posture = "open"   // admit
	Closed Posture = "closed" // refuse
)

// Check says when the tier is read for a request.
type Check string

const (
	Async Check = "async" // behind its back
	Sync  Check = "sync"  // before each decision, which waits for the answer: algorithm.Spec.Sync
)

// FirstSight says what to do with a request of a source whose count in the PoP is not known yet.
type FirstSight string

const (
	Go   FirstSight = "go"   // decide by what this edge knows
	Wait FirstSight = "wait" // give the tier time to answer
)
