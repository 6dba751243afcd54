package limiter

import (
	"time"

	"sluice/counter/algorithm"
	"sluice/mitigation"
)

// Candidate is another limit, estimate or timeout for a rule, tried beside those in force. It decides wherever its
// rule's counter does, so one sees what it would have done; it refuses no request. What its rule admits is what both
// count, so it sees more of a source that it would have blocked than it would have admitted: it names every source that
// would have been refused, if perhaps too often.
type Candidate struct {
	Counter *algorithm.Spec // the counters of its rule, by its own limit and estimate (algorithm.Spec.With)
	Bits    mitigation.Rule // what its mitigations go by; nothing is counted under it
}

// CandidateResult is what a rule's candidate says.
type CandidateResult struct {
	Index    int     // of the rule in Decision.Results
	Verdict  Verdict // Passed, Limited or Mitigated; Passed as well where the rule's counter did not decide
	Estimate float64 // of a Limited one, this request included
	Until    time.Time
}

// candidatesMitigated looks for the bits of candidates.
func (l *Limiter) candidatesMitigated(d *Decision, now time.Time) {
	for i := range d.Candidates {
		c := &d.Candidates[i]
		r := &d.Results[c.Index]
		if until := l.Bits.Until(mitigation.Key{Rule: r.Rule.Candidate.Bits.Counter.ID, Source: r.Source}, now); !until.IsZero() {
			c.Verdict, c.Until = Mitigated, until
		}
	}
}

// reserveCandidates reserves at the candidates of rules, before the request counts at the rules themselves.
func (l *Limiter) reserveCandidates(d *Decision, now time.Time) {
	for i := range d.Candidates {
		c := &d.Candidates[i]
		r := &d.Results[c.Index]
		if c.Verdict != Passed || r.Reservation == nil || r.Counter != nil { // a limit that came with the request is in place of any
			continue
		}
		v, there := l.Counters.PeekFor(r.Rule.Candidate.Counter, r.Source, r.hits(), now)
		if !there && r.hits() > r.Rule.Candidate.Counter.Limit { // the first request of a source may cost more than the limit
			v.Over, v.Committed = true, true
		}
		if !v.Over || r.Probe {
			continue
		}
		c.Verdict, c.Estimate = Limited, v.Estimate+float64(r.hits())
		tried := r.Rule.Candidate
		c.Until = l.mitigate(mitigation.Key{Rule: tried.Bits.Counter.ID, Source: r.Source}, v, tried.Bits.Timeout, tried.Bits.Repeat, mitigation.Bit{Shadow: true, Terms: tried.Bits.Terms()}, now)
	}
}

// WouldRefuse reports whether a shadow or a candidate would have refused a request that no rule refuses.
func (d *Decision) WouldRefuse() bool {
	if d.Refused() {
		return false
	}
	for i := range d.Candidates {
		if d.Candidates[i].Verdict != Passed {
			return true
		}
	}
	return d.Verdict == Shadowed
}
