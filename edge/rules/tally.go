package rules

import (
	"sync"
	"sync/atomic"

	"sluice/counter/buckets"
	"sluice/edge/limiter"
)

// A Tally counts what a rule said. It belongs to the rule's name, so it goes on when rules are read
// again.
type Tally struct {
	Verdicts [limiter.Verdicts]atomic.Uint64
	Open     atomic.Uint64
	Closed   atomic.Uint64
	Commands atomic.Uint64      // to the tier, about the counters of a rule that is tried
	Used     *buckets.Histogram // shares of the limit, at decisions; a sample

	mu    sync.Mutex
	plans map[string]*PlanTally
}

// A PlanTally counts what a rule said to the clients on a plan.
type PlanTally struct {
	Verdicts [limiter.Verdicts]atomic.Uint64
	Used     *buckets.Histogram
}

// plan is the tally of a plan, which also goes on when rules are read again.
func (t *Tally) plan(name string) *PlanTally {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.plans[name]
	if p == nil {
		p = &PlanTally{Used: buckets.Share()}
		if t.plans == nil {
			t.plans = make(map[string]*PlanTally)
		}
		t.plans[name] = p
	}
	return p
}

// NewTally makes a Tally.
func NewTally() *Tally { return &Tally{Used: buckets.Share()} }

func (t *Tally) failed(p limiter.FailurePolicy) {
	if p == limiter.Open {
		t.Open.Add(1)
	} else {
		t.Closed.Add(1)
	}
}
