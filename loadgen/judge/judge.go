// Package judge holds every decision of a limiter against an exact log of the requests that it
// counted:
//
//	exact(t) = number of counted requests of the source in (t-W, t], the present one included
//
// An EstimatorJudge judges estimates while nothing is blocked; a DeployedJudge judges admissions
// and blocks. Both are fed in the order of time: by Judge, when a run is over, or by Simulate,
// which lets a limiter decide about a trace in virtual time. What comes of it is Figures. Baseline
// is what two plain counters would have got.
//
// The limiter is handed in as functions (Limiter), so that what judges shares no code with what is
// judged.
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"sluice/loadgen/trace"
)

// Verdict is what became of a request.
type Verdict uint8

const (
	Admitted  Verdict = iota // passed on and counted
	Limited                  // refused because this request would have been over the limit
	Mitigated                // refused because a mitigation was in force; no counter was asked
	Closed                   // refused because the tier was gone and the rule fails closed
	Failed                   // no verdict: the connection or the origin failed
	// Refused with its connection, which an edge closed unanswered because of a mitigation in force
	Shed
	Walled // refused by the kernel, for the same reason: no edge has heard of it
)

// Decision is one request as the limiter answered it.
type Decision struct {
	At time.Duration // when it was decided, since the run's start, on one clock for all edges
	// For Shed and Walled, which do not tell when: no earlier than then, and no later than At
	Since   time.Duration
	Source  int32 // index into Trace.Sources
	Edge    int16 // which edge decided
	Verdict Verdict
	Over    bool // in estimator mode: the estimate says over the limit
	// Of the window's count, the present request included; NaN if the answer did not show it
	Estimate float64
	// For Limited and Mitigated: when the mitigation ends, since the run's start; 0 for throttling,
	// and where nobody says
	Until    time.Duration
	Delay    time.Duration // how long an admitted request waits for its turn
	Role     trace.Role    // of the request: Trace.Role
	Troubled bool          // answered with 500 or above, other than by a rule that fails closed
}

// InForce notes that a mitigation came into force on an edge: by its own decision, or by an
// announcement.
type InForce struct {
	Source int32
	Edge   int16
	Start  time.Duration // when the mitigation began
	At     time.Duration // when this edge had it in its table
	Until  time.Duration // its end; 0: Start and the timeout
	// It began with the PoP's total being over the limit, not with a request refused
	Total bool

	// Operator says that an operator set it: it is right whatever was counted, and its proper end
	// is Until.
	Operator bool
}

// Mode is how a limiter is judged.
type Mode uint8

const (
	// Estimator is the open loop: nothing is ever blocked, every request counts, and at every one
	// the estimate is held against the exact count. A decision is wrong if one says over the limit
	// and the other does not. Published figures are comparable under this reading.
	Estimator Mode = iota
	// Deployed is the closed loop: the limiter blocks as configured, and what it decided is held
	// against an exact log of what it itself counted, over all its edges. See DeployedJudge.
	Deployed
)

func (m Mode) String() string { return [...]string{"estimator", "deployed"}[m] }

// ParseMode reads "estimator" or "deployed".
func ParseMode(s string) (Mode, error) {
	switch s {
	case "estimator":
		return Estimator, nil
	case "deployed":
		return Deployed, nil
	}
	return 0, fmt.Errorf("mode %q: want estimator or deployed", s)
}

// Options is what a judge knows of the limiter: the rule, and who decides. All times of a judge are
// nanoseconds or durations on one clock for all edges.
type Options struct {
	Limit   uint32
	Window  time.Duration
	Timeout time.Duration // of a mitigation; 0: throttled
	Edges   int           // how many run; 0: 1; at most 64

	// Slack is how much later than its proper end a block may refuse without being wrong: zero in
	// virtual time; live, how badly a decision's time is known.
	Slack time.Duration

	// What the end of a block is held against beside Slack (Ends): Clocks is how far those of the
	// edges are apart; Grain how exactly the limiter knows when a source would be admitted again,
	// where that is later than the timeout; Grace how long an edge that has come to have a block
	// may still admit what another thread is deciding. Escalate is how long blocks of repeaters may
	// last as well, and Lost which edges lost what they knew, in any order. All zero in virtual
	// time but for Grain, and Clocks that differ.
	Clocks, Grain, Grace time.Duration
	Escalate             []time.Duration
	Lost                 []Lost

	// Ideal makes the clock of time_to_block for one run: a function that reports whether the
	// formula with perfect knowledge of what this run has counted finds a source over its limit
	// with the request of this moment, and that counts the request if the run did. It is asked at
	// every decision, in order. All limiters that are shown side by side have the same. Nil: the
	// exact log says when a source crosses its limit.
	Ideal func() func(source int32, at time.Duration, counted bool) (over bool)

	// Reach returns which edges a source's requests may meet at a time, as a set of bits: those of
	// its PoP; nil: all. A block is in force everywhere when these know of it.
	Reach func(source int32, at time.Duration) uint64

	// Bound is how many requests of a source may be admitted in any window, as the design states
	// it; nil: it is not checked.
	Bound func(source int32) uint32

	// Refused says that the limiter counts refused requests, too, as HAProxy's http_req_rate does,
	// so that the exact log has them. A DeployedJudge alone looks at it.
	Refused bool

	Watch []int32 // sources whose estimate and exact count are kept as a Series

	Truth Truth // of a DeployedJudge
}

func (o *Options) check() {
	if o.Limit == 0 || o.Window <= 0 || o.Edges > 64 || o.Timeout < 0 {
		panic(fmt.Sprintf("loadgen: judge: limit %d, window %v, timeout %v, %d edges", o.Limit,
			o.Window, o.Timeout, o.Edges))
	}
	if o.Edges == 0 {
		o.Edges = 1
	}
}

// SortDecisions brings the decisions of a live run, which come as answers do, into the order of
// time.
func SortDecisions(d []Decision) {
	slices.SortStableFunc(d, func(a, b Decision) int { return cmp.Compare(a.At, b.At) })
}

// SortInForce does the same for news of mitigations.
func SortInForce(f []InForce) {
	slices.SortStableFunc(f, func(a, b InForce) int { return cmp.Compare(a.At, b.At) })
}

// Judge judges a run that is over. It sorts both slices.
func Judge(mode Mode, o Options, decisions []Decision, inForce []InForce) Figures {
	SortDecisions(decisions)
	if mode == Estimator {
		j := NewEstimatorJudge(o)
		for i := range decisions {
			j.Decide(&decisions[i])
		}
		return j.Figures()
	}
	SortInForce(inForce)
	j := NewDeployedJudge(o)
	for i := range decisions {
		for len(inForce) > 0 && inForce[0].At < decisions[i].At {
			j.InForce(inForce[0])
			inForce = inForce[1:]
		}
		j.Decide(&decisions[i])
	}
	for _, f := range inForce {
		j.InForce(f)
	}
	return j.Figures()
}
