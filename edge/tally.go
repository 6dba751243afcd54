package edge

import (
	"sluice/edge/limiter"
	"sync/atomic"
)

// A tally counts what a rule said. It belongs to the rule's name, so it goes on when rules are read again.
type tally struct {
	verdicts [limiter.Verdicts]atomic.Uint64
	open     atomic.Uint64
	closed   atomic.Uint64
}

func (t *tally) failed(p limiter.Posture) {
	if p == limiter.Open {
		t.open.Add(1)
	} else {
		t.closed.Add(1)
	}
}
