// Package replay sends a trace to running edges in an open loop and notes what they decided
// (Replay). One thread sends everything. What an edge decided is what its answer says of that: a
// status is not enough, since an origin may have the same.
package replay

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/loadgen/answer"
	"sluice/loadgen/judge"
	"sluice/loadgen/process"
	"sluice/loadgen/socket"
	"sluice/loadgen/trace"
)

// Replay sends a trace to running edges in an open loop: each request is sent when it is due,
// whether or not earlier ones were answered, because an abuser does not wait for answers either.
//
// Run time is trace time divided by Speed, and everything in an Outcome is in run time: at Speed 60
// an edge with a window of one second stands for one with a minute, and is judged against a window
// of one second.
//
// As behind anycast and ECMP, Affinity chooses the PoP of a source and a hash of each connection
// the edge within it. A source that has a request due while its connections are busy opens another
// one. An edge that refuses connections is left out for a second, as a router's health check would
// have it; a request whose reused connection died without a byte of an answer is sent once more if
// its method allows that (RFC 9110, 9.2.2), as browsers do.
//
// One goroutine on one thread does all the sending, and no descriptor or memory grows with the
// rate: beyond MaxConns connections, idle ones are closed and then requests wait. What waits, for
// that or for the processor, is sent late, and SendError says how late.
//
// Edges with a wall (Walled) refuse the connection in place of its request: the kernel refuses it,
// or the edge closes it before it reads. No edge is left out then, and such a request goes nowhere
// else.
//
// Over HTTP/2 a connection carries up to Streams requests at once, and a source opens another when
// those are taken. A request that its edge says it has not taken (GOAWAY) is sent once more. One
// that the trace wants reset (trace.Request.Reset) goes out together with its RST_STREAM; HTTP/1.1
// has none, and sends it like any other.
type Replay struct {
	PoPs          [][]netip.AddrPort // the edges of each PoP: IPv4
	Affinity      Affinity           // nil: all go to the first PoP
	Carrier       Carrier            // how sources reach the edge; zero: Loopback
	Speed         float64            // trace seconds per second; 0: 1
	PerConnection int                // requests on a connection before a new one is opened; 0: 20
	Seed          uint64             // of the choice of edges
	MaxConns      int                // open connections at once; 0: 8192
	MaxPerSource  int                // open connections of one source at once; 0: 64
	Idle          time.Duration      // how long an idle connection is kept; 0: 5 s
	Timeout       time.Duration      // of an answer; 0: 10 s
	// Connections that are refused, or end unanswered, are refusals; over HTTP/1.1
	Walled  bool
	HTTP2   bool        // by prior knowledge, unless TLS is agreed on
	Streams int         // requests of a connection at once, over HTTP/2; 0: 100
	TLS     *tls.Config // of HTTP/2, which is agreed on by ALPN; nil: cleartext
	// Edges tell no verdicts, being others': 429 is a refusal, any other status below 500 an
	// admission
	ByStatus bool
	// Ahead is how far an edge's clock has been stepped: it tells the times of its decisions by it.
	// Nil: not at all.
	Ahead    func(edge int16) time.Duration
	Progress func(Progress) // called ten times a second from the sending goroutine: must not block
}

// Affinity returns the PoP of a source by its address in the trace, at a time of the run. When it
// changes, the source's idle connections are closed, and requests under way are answered where they
// are.
type Affinity func(source netip.Addr, at time.Duration) int

// Progress is how far a replay has come.
type Progress struct {
	Elapsed, Total time.Duration // run time
	Requests       int           // in the trace
	Sent           int           // so far
	Answered       int
	Refused        int // of the answered: by the limiter
	Failed         int
}

// Outcome is what a replay saw, on the client's side.
type Outcome struct {
	Start     time.Time        // the instant of run time 0
	Took      time.Duration    // until the last answer
	Decisions []judge.Decision // one per request sent, in the order of At
	Addresses []netip.Addr     // of the trace's sources, as the edges saw them
	Sent      int              // requests written, repeats not included
	Answered  int              // complete answers
	Statuses  map[int]int      // answers by status
	Errors    map[string]int   // requests without an answer, by reason
	// Answers without a decision of the limiter's, by reason and status
	Unjudged map[string]int
	// Answers of 500 and above, other than by a rule that fails closed
	Troubled    int
	Connections int // opened
	// Requests sent once more after their reused connection died
	Retried  int
	Rerouted int // connections refused by one edge and opened to another
	// Of the sent: on connections that an edge closed with Walled
	Unread int
	// Requests sent once more because an edge had not taken them
	Untaken int
	// Connections ended by an edge for what the client did, by its GOAWAY's code
	Ended  map[string]int
	Resets int // of the sent: reset as soon as they were made
	// Of these: without an answer, and without a decision before Learn
	Silent   []Silent
	Logged   int           // of these: known from an edge's log
	Unknown  int           // of these: unknown
	Charged  int           // decisions of no request: see Learn
	LastSent time.Duration // when the last request was written
	CPU      time.Duration // processor time of this process meanwhile
	// Ns from when a request was due to when it was written, or the kernel refused its connection
	SendError *hdrhistogram.Histogram
	// Ns from when a request was written to the end of its answer
	Latency *hdrhistogram.Histogram
	// Ns from when a request was about to be written to its decision, where the edge reported that
	Decided *hdrhistogram.Histogram

	token string // in the names of this run's resets
}

// ClientErrors is how many requests a client would call failed: no answer, or one of 500 and above
// that no rule meant.
func (o *Outcome) ClientErrors() int {
	n := o.Troubled
	for _, c := range o.Errors {
		n += c
	}
	return n
}

// Verdicts is how many requests came to one.
func (o *Outcome) Verdicts(v judge.Verdict) (n int) {
	for i := range o.Decisions {
		if o.Decisions[i].Verdict == v {
			n++
		}
	}
	return n
}

// Trouble says what the client errors were.
func (o *Outcome) Trouble() string {
	var out []string
	for reason, n := range o.Errors {
		out = append(out, fmt.Sprintf("%s: %d", reason, n))
	}
	for status, n := range o.Statuses {
		if status >= 500 {
			out = append(out, fmt.Sprintf("status %d: %d", status, n))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// Judged says by what decisions are judged, and what is not.
func (o *Outcome) Judged() []string {
	at := func(q float64) time.Duration {
		return time.Duration(o.Decided.ValueAtPercentile(q)).Round(time.Microsecond)
	}
	lines := []string{fmt.Sprintf("judged: by the middle between sending and answer, since answers do not show when they were decided; slack %v", answer.ClockSlack)}
	if o.Decided.TotalCount() > 0 {
		lines[0] = fmt.Sprintf("judged: by the edges' own times, %v / %v / %v after requests were written (p50 / p99 / max); slack %v", at(50), at(99), at(100), answer.ClockSlack)
	}
	if len(o.Unjudged) > 0 {
		n := 0
		var why []string
		for _, reason := range slices.Sorted(maps.Keys(o.Unjudged)) {
			n += o.Unjudged[reason]
			why = append(why, fmt.Sprintf("%s: %d", reason, o.Unjudged[reason]))
		}
		lines = append(lines, fmt.Sprintf("judged: not %d answers (%s)", n,
			strings.Join(why, ", ")))
	}
	return append(lines, o.resetLines()...)
}

// Late is how late requests were sent, in seconds.
func (o *Outcome) Late() judge.Quantiles { return judge.SecondsOf(o.SendError) }

// Reasons of Outcome.Errors, beside those of a socket.
var (
	errClosedEarly = errors.New("connection closed before the answer")
	errCut         = errors.New("answer cut short")
	errTimeout     = errors.New("no answer in time")
)

// Run sends the trace and returns when every request is answered or has failed. When ctx ends it
// sends no more, waits shortly for answers under way and returns what there is, together with ctx's
// error.
func (r Replay) Run(ctx context.Context, trace *trace.Trace) (*Outcome, error) {
	if err := r.complete(); err != nil {
		return nil, err
	}
	poller, err := socket.NewPoller()
	if err != nil {
		return nil, err
	}
	defer poller.Close()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	socket.FineTimers()

	before := process.OwnCPU()
	var out *Outcome
	if r.HTTP2 {
		m := newMultiplexer(ctx, &r, trace)
		err = m.loop(poller)
		m.closeAll()
		out = m.out
	} else {
		s := newSender(&r, trace, poller)
		err = s.loop(ctx)
		s.closeAll()
		out = s.out
	}
	out.Took, out.CPU = time.Since(out.Start), process.OwnCPU()-before
	slices.SortStableFunc(out.Decisions, func(a, b judge.Decision) int {
		return cmp.Compare(a.At, b.At)
	})
	return out, err
}

// complete fills in the defaults and refuses what cannot work.
func (r *Replay) complete() error {
	r.Speed = cmp.Or(r.Speed, 1)
	r.PerConnection = cmp.Or(r.PerConnection, 20)
	r.Streams = cmp.Or(r.Streams, 100)
	r.MaxConns = cmp.Or(r.MaxConns, 8192)
	r.MaxPerSource = cmp.Or(r.MaxPerSource, 64)
	r.Idle = cmp.Or(r.Idle, 5*time.Second)
	r.Timeout = cmp.Or(r.Timeout, 10*time.Second)
	if r.Affinity == nil {
		r.Affinity = func(netip.Addr, time.Duration) int { return 0 }
	}
	switch {
	case !(r.Speed > 0):
		return fmt.Errorf("loadgen: replay at speed %v: want more than 0", r.Speed)
	case r.PerConnection < 1:
		return fmt.Errorf("loadgen: replay with %d requests per connection: want at least 1",
			r.PerConnection)
	case r.Streams < 1:
		return fmt.Errorf("loadgen: replay with %d streams of a connection at once: want at least 1", r.Streams)
	case r.Walled && r.HTTP2:
		return errors.New("loadgen: replay over HTTP/2: what is refused with its connection is known over HTTP/1.1 alone")
	case r.TLS != nil && !r.HTTP2:
		return errors.New("loadgen: replay over TLS: HTTP/1.1 goes in cleartext; ask for HTTP/2")
	case len(r.PoPs) == 0:
		return errors.New("loadgen: replay to no edge: name at least one")
	}
	for i, edges := range r.PoPs {
		if len(edges) == 0 {
			return fmt.Errorf("loadgen: replay to PoP %d: it has no edge", i)
		}
		for _, e := range edges {
			if !e.Addr().Is4() || e.Port() == 0 {
				return fmt.Errorf("loadgen: replay to edge %s: want an IPv4 address and a port", e)
			}
		}
	}
	return nil
}

// due is when a request of the trace is to be sent, in run time.
func (r *Replay) due(at time.Duration) time.Duration {
	if r.Speed == 1 {
		return at
	}
	return time.Duration(float64(at) / r.Speed)
}

// edgeOf chooses the edge of a connection within its PoP, as ECMP's hash of the five-tuple would:
// evenly, not predictably, and here the same in every run of one seed.
func (r *Replay) edgeOf(pop int, pool int32, nth uint32) int {
	x := r.Seed ^ uint64(pool)<<32 ^ uint64(nth) ^ uint64(pop)<<56
	return int(trace.Mix(trace.Mix(x)) % uint64(len(r.PoPs[pop])))
}

// loop is the life of a replay: send what is due, take what has arrived, sleep until the next of
// either.
func (s *sender) loop(ctx context.Context) error {
	const (
		burst = 32                     // requests sent between two looks at the sockets
		chore = 100 * time.Millisecond // between two rounds of housekeeping
	)
	requests := s.trace.Requests
	events := make([]socket.Event, 0, 256)
	next, nextChore := 0, time.Duration(0)
	var stopped error
	for {
		now := s.now()
		for range burst {
			if next == len(requests) || s.due(requests[next].At) > now {
				break
			}
			s.dispatch(int32(next), false)
			next++
		}
		if now >= nextChore {
			s.housekeep(now)
			nextChore = now + chore
			if stopped == nil && ctx.Err() != nil {
				stopped = ctx.Err()
				requests = requests[:next]
				s.dropQueued()
				s.Timeout = min(s.Timeout, time.Second)
			}
		}
		if next == len(requests) && s.busy == 0 && s.queued == 0 {
			return stopped
		}
		wake := nextChore
		if next < len(requests) {
			wake = min(wake, s.due(requests[next].At))
		}
		var err error
		if events, err = s.poller.Wait(wake-s.now(), events[:0]); err != nil {
			return err
		}
		for _, e := range events {
			s.ready(e)
		}
		s.drain()
	}
}
