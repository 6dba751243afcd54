package rules

import (
	"sync/atomic"

	"sluice/counter/buckets"
	"sluice/edge/limiter"
)

// A Tally counts what a rule said. It belongs to the rule's name, so it goes on when rules are read again.
type Tally struct {
	Verdicts [limiter.Verdicts]atomic.Uint64
	Open     atomic.Uint64
	Closed   atomic.Uint64
	// Candidate counts what the rule's candidate said, and CandidateAlone for how many of those requests nothing in force refused them.
	Candidate      [limiter.Verdicts]atomic.Uint64
	CandidateAlone atomic.Uint64
	Used           *buckets.Histogram // shares of the limit, at decisions; a sample
}

// NewTally makes a Tally.
func NewTally() *Tally { return &Tally{Used: buckets.Share()} }

func (t *Tally) failed(p limiter.Posture) {
	if p == limiter.Open {
		t.Open.Add(1)
	} else {
		t.Closed.Add(1)
	}
}
