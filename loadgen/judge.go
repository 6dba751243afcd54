package loadgen

import (
	"cmp"
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
)

// Decision is one request as the limiter answered it.
type Decision struct {
	At       time.Duration // when it was decided, since the run's start, on one clock for all edges
	Source   int32         // index into Trace.Sources
	Edge     int16         // which edge decided
	Verdict  Verdict
	Over     bool          // in estimator mode: the estimate says over the limit
	Estimate float64       // of the window's count, the present request included; NaN where the answer did not tell
	Until    time.Duration // for Limited and Mitigated: when the mitigation ends, since the run's start; 0 for throttling
	Role     trace.Role    // of the request: Trace.Role
}

// InForce says that an edge came to know that a source is mitigated: it decided so, or heard of it.
type InForce struct {
	Source int32
	Edge   int16
	Start  time.Duration // when the mitigation began
	At     time.Duration // when this edge had it in its table
	Until  time.Duration // its end; 0: Start and the timeout
	Total  bool          // it began with the PoP's total being over the limit, not with a request refused
}

// SortDecisions brings the decisions of a live run, which come as answers do, into the order of time.
func SortDecisions(d []Decision) {
	slices.SortStableFunc(d, func(a, b Decision) int { return cmp.Compare(a.At, b.At) })
}

// SortInForce does the same for news of mitigations.
func SortInForce(f []InForce) {
	slices.SortStableFunc(f, func(a, b InForce) int { return cmp.Compare(a.At, b.At) })
}

// Judge judges a run that is over. It sorts both slices.
func Judge(mode Mode, o JudgeOptions, decisions []Decision, inForce []InForce) Figures {
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
