// Package exchange sends what requests wait for to the tier. There are three kinds of it, and one
// mechanism: send the command, take in the answer, and the table that has the requests wakes those
// that wait.
//
//	reads      what the PoP has counted of a source that this edge does not know, under check: sync or at first sight (reads.go). What reports
//	           ask of older groups goes the same way
//	in flight  how many requests of a source are under way at all edges, and how many at this one (inflight.go, package counter/inflight)
//	exact      admitted requests that the tier keeps each by itself (exact.go, package counter/exact)
//
// Step sends what is due; Answered takes in an answer, and may send what follows. Nothing here does
// I/O or reads a clock: commands go to Config.Send.
package exchange

import (
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/mitigation"
	"sluice/pop/announcement"
	"sluice/pop/operators"
	"sluice/pop/placement"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// Config is what Exchanges work with.
type Config struct {
	Secret    secret.Secret
	Counters  counter.Reports
	InFlight  *inflight.Table // nil: they are not counted
	Exact     *exact.Table    // nil: no rule keeps requests in the tier
	Operators *operators.List
	Nodes     *placement.Nodes
	Announcer *announcement.Announcer // learns what reads bring
	Send      func(wire.Command, Request)
}

// Request is what a command was sent for, and comes back in Answered.
type Request struct {
	kind  kind
	part  uint32             // of inFlight
	reads *reads             // of read, waited, stale
	parts *inflight.Exchange // of inFlight
	exact *exact.Exchange    // of exactRead, exactWrite
}

type kind uint8

const (
	unheeded kind = iota // what is added only to exist; the answer is not used
	read                 // by a report
	waited               // a read that a request waits for
	stale                // a read of an earlier time on the wall clock
	inFlight
	exactRead
	exactWrite
)

// Read reports whether it is a read of counters, which reports pay for (announcement.Budget).
func (a *Request) Read() bool { return a.reads != nil }

// ClockStepped says that the wall clock has stepped since it was sent.
func (a *Request) ClockStepped() {
	if a.reads != nil {
		a.kind = stale
	}
}

const (
	// Exchanges of a Step; a node carries out its commands one after the other
	atOnce = 256
	behind = time.Millisecond // between two Steps that send the rest of one
)

// Exchanges are those of one edge. Fetch, SetRules and Forged may be called from anywhere, all else
// belongs to one goroutine.
type Exchanges struct {
	config Config
	arena  wire.Arena
	edges  int // that share the tier
	forged atomic.Uint64

	mu     sync.Mutex
	wanted []counter.Counter // that requests wait for; mu guards it

	fetching []counter.Counter // of a Step
	open     []*reads          // by node: to be sent; nil: none
	spare    []*reads

	parts []*inflight.Exchange // of a Step
	known *[]bool              // the health of nodes at the last; nil: all is to be said anew

	kept keeper
}

// New makes Exchanges under no rules.
func New(c Config) *Exchanges {
	x := &Exchanges{config: c}
	x.SetRules(nil)
	return x
}

// SetRules replaces the rules in force.
func (x *Exchanges) SetRules(rules []mitigation.Rule) {
	ids := []string{}
	for _, r := range rules {
		if r.Exact != nil {
			ids = append(ids, r.Exact.ID)
		}
	}
	x.kept.rules.Store(&ids)
}

// SetEdges sets how many edges share the tier.
func (x *Exchanges) SetEdges(n int) { x.edges = n }

// ClockStepped takes in that the wall clock has stepped: edges say what is in flight in other
// numbers now, one after the other.
func (x *Exchanges) ClockStepped() { x.known = nil }

// Step sends what is due.
func (x *Exchanges) Step(now time.Time) {
	x.readForRequests(now)
	x.writeInFlight(now)
	x.exchangeExact(now)
}

// Answered takes in an answer.
func (x *Exchanges) Answered(a Request, r *wire.Result, now time.Time) {
	switch a.kind {
	case read, waited, stale:
		x.readsDone(a, r, now)
	case inFlight:
		outcome := [...]inflight.Outcome{wire.Done: inflight.Counted,
			wire.NotThere: inflight.Missing, wire.Unsent: inflight.Unsent,
			wire.Unknown: inflight.Unknown}[r.Status]
		x.config.InFlight.Answered(a.parts, int(a.part), outcome, r.Number)
	case exactRead:
		x.exactRead(a.exact, r, now)
	case exactWrite:
		outcome := [...]exact.Outcome{wire.Done: exact.Stored, wire.NotThere: exact.Conflict,
			wire.Unsent: exact.Unsent, wire.Unknown: exact.Unknown}[r.Status]
		x.config.Exact.Written(a.exact, outcome, x.wall(now))
	}
}

// Waiting reports whether there is something to send.
func (x *Exchanges) Waiting() bool {
	return x.config.InFlight != nil && x.config.InFlight.Waiting() || x.config.Exact != nil &&
		x.config.Exact.Waiting()
}

// In is how soon there is more to send, and at most the time given.
func (x *Exchanges) In(least time.Duration, now time.Time) time.Duration {
	if x.config.InFlight != nil && x.config.InFlight.Behind() {
		least = min(least, behind)
	}
	if x.config.Exact != nil {
		least = max(x.config.Exact.In(least, x.wall(now)), min(least, behind))
	}
	return least
}

// Forged is how many values were read that no edge of the PoP wrote.
func (x *Exchanges) Forged() uint64 { return x.forged.Load() }

// wall is the wall clock's reading.
func (x *Exchanges) wall(now time.Time) time.Time { return x.config.Counters.Wall(now) }
