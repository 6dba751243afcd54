// Package loadgen produces traffic, sends it, and judges what a limiter did with it.
//
// A Trace is who asks for what and when: read from an access log (ReadTrace) or made from a named workload and a seed
// (Generate). Replay sends one to running edges; a Lab starts those edges first. Either way the outcome is a stream of
// Decisions, and a Judge holds each against an exact log of every counted request:
//
//	exact(t) = number of counted requests of the source in (t-W, t], the present one included
//
// The package imports nothing of the limiter, so that what judges shares no code with what is judged; where it needs the
// limiter (simulation) or the PoP's routing, its caller hands them in as functions.
package loadgen

import (
	"net/netip"
	"time"
)

// Role says what a trace knows of a source's intentions.
type Role uint8

const (
	Unknown Role = iota // a source of a real log
	Good                // a source that a limiter should leave alone
	Abuser
)

// Source is one who sends. Two sources of a trace never count as one.
type Source struct {
	Name string     // unique in its trace: an address, or file, day and address of a folded log
	Addr netip.Addr // the address it has in the log; several sources of a folded log may share one
	Role Role

	// Spread above 1 says that its requests come from so many addresses, Addr and those after it: a client that rotates
	// through a prefix which counts as one source. See Trace.Addr.
	Spread uint32
}

// Request is one request of a trace.
type Request struct {
	At     time.Duration // since the trace's start
	Source int32         // index into Trace.Sources
	Status int16         // the origin's answer if the log knows it, else 0
	Role   Role          // of this request, where its source is shared by good and bad; Unknown: the source's
	Method string        // empty where the log's request line was odd; see Line
	Host   string
	Path   string // with the query
}

// Trace is a stream of requests in the order of At.
type Trace struct {
	Name     string
	Start    time.Time // the instant of At 0; the zero Time for a workload
	Seed     uint64    // of the workload, and of the spread of one-second stamps over their second
	Sources  []Source
	Requests []Request
	Lines    int            // lines read, for a trace that came from a log
	Skipped  map[string]int // reason to number of lines that gave no request
	Coarse   bool           // some stamps were of whole seconds, and were spread
}

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
	Role     Role          // of the request: Trace.Role
}
