package replay

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/loadgen/answer"
	"sluice/loadgen/judge"
	"sluice/loadgen/socket"
	"sluice/loadgen/trace"
)

// run is what a replay under way knows whatever it speaks: whom it sends to, and what has come of
// it so far.
type run struct {
	*Replay
	trace   *trace.Trace
	out     *Outcome
	edges   []netip.AddrPort // of all PoPs in a row
	first   []int            // a PoP's first edge in edges
	popOf   []int            // of a source
	again   map[int32]again  // requests that needed more than one connection
	ejected []time.Duration  // per edge: until when it is left out
}

// again is why a request needed more than one connection.
type again struct {
	written  bool // it was written before, and its connection died
	rerouted int  // how often an edge refused its connection
}

func newRun(r *Replay, trace *trace.Trace) run {
	s := run{
		Replay: r,
		trace:  trace,
		again:  make(map[int32]again),
		popOf:  make([]int, len(trace.Sources)),
		out: &Outcome{
			Decisions: make([]judge.Decision, 0, len(trace.Requests)),
			Addresses: r.Carrier.Addresses(trace),
			Statuses:  make(map[int]int),
			Errors:    make(map[string]int),
			Unjudged:  make(map[string]int),
			Ended:     make(map[string]int),
			SendError: hdrhistogram.New(100, int64(10*time.Minute), 3),
			Latency:   hdrhistogram.New(1000, int64(10*time.Minute), 3),
			Decided:   hdrhistogram.New(1000, int64(10*time.Minute), 3),
		},
	}
	for _, edges := range r.PoPs {
		s.first = append(s.first, len(s.edges))
		s.edges = append(s.edges, edges...)
	}
	s.ejected = make([]time.Duration, len(s.edges))
	for i, source := range trace.Sources {
		s.popOf[i] = min(max(r.Affinity(source.Addr, 0), 0), len(r.PoPs)-1)
	}
	s.out.Start = time.Now()
	return s
}

// now is the run time.
func (s *run) now() time.Duration { return time.Since(s.out.Start) }

// poolsNeeded is how many pools of connections there are: a source's, or, where sources share
// connections, a PoP's.
func (s *run) poolsNeeded() int {
	if s.Carrier == Forwarded {
		return len(s.PoPs)
	}
	return len(s.trace.Sources)
}

func (s *run) poolOf(request int32) int32 {
	source := s.trace.Requests[request].Source
	if s.Carrier == Forwarded {
		return int32(s.popOf[source])
	}
	return source
}

// address is where a request comes from as its edge is to see it: the source's, except that one
// which rotates through a prefix changes it with each request where the carrier can.
func (s *run) address(request int32) netip.Addr {
	source := s.trace.Requests[request].Source
	if s.Carrier != Loopback && s.trace.Sources[source].Spread > 1 {
		return s.trace.Addr(int(request))
	}
	return s.out.Addresses[source]
}

// route finds the PoP of a source anew, and reports whether connections of its own now lead
// elsewhere.
func (s *run) route(source int32) (moved bool) {
	if len(s.PoPs) == 1 {
		return false
	}
	pop := min(max(s.Affinity(s.trace.Sources[source].Addr, s.now()), 0), len(s.PoPs)-1)
	if pop == s.popOf[source] {
		return false
	}
	s.popOf[source] = pop
	return s.Carrier != Forwarded // there a pool is a PoP's
}

// choose calls try with the edge that the nth connection of a pool hashes to, or, while that one
// refuses, with the next of its PoP. try reports whether that one has refused as well, and then the
// next is asked if there is one left.
func (s *run) choose(source, pool int32, nth uint32, try func(edge int, last bool) (refused bool)) {
	pop := s.popOf[source]
	n := len(s.PoPs[pop])
	choice := s.edgeOf(pop, pool, nth)
	for i := range n {
		edge, last := s.first[pop]+(choice+i)%n, i == n-1
		if !last && s.ejected[edge] > s.now() {
			continue
		}
		if !try(edge, last) || last {
			return
		}
		s.ejected[edge] = s.now() + time.Second
		s.out.Rerouted++
	}
}

// wrote books that a request has been written, all of it, just now.
func (s *run) wrote(request int32, now time.Duration) {
	if s.again[request].written {
		return
	}
	s.out.Sent++
	s.out.LastSent = now
	judge.Record(s.out.SendError, int64(now-s.due(s.trace.Requests[request].At)))
}

// answered books the answer to a request that was about to be written at asked, and had been at
// since.
func (s *run) answered(request int32, edge int16, a *answer.Answer, asked, since,
	now time.Duration) {
	d := s.judged(request, edge, a, asked, since, now)
	s.out.Statuses[a.Status]++
	if d.Troubled {
		s.out.Troubled++
	}
	s.out.Answered++
	judge.Record(s.out.Latency, int64(now-since))
}

// judged books what an answer says of the decision.
func (s *run) judged(request int32, edge int16, a *answer.Answer, asked, since,
	now time.Duration) judge.Decision {
	if s.Ahead != nil {
		a.Verdict = a.Verdict.Within(s.out.Start, asked, now, s.Ahead(edge))
	}
	d, why := a.Decision(s.out.Start, asked, since, now)
	if s.ByStatus {
		d, why = a.ByStatus(since, now)
	}
	if why != "" {
		s.out.Unjudged[fmt.Sprintf("%s: status %d", why, a.Status)]++
	} else if a.Verdict.At > 0 {
		judge.Record(s.out.Decided, int64(d.At-asked))
	}
	d.Source, d.Edge, d.Role = s.trace.Requests[request].Source, edge, s.trace.Role(int(request))
	d.Troubled = a.Status >= 500 && d.Verdict != judge.Closed
	s.out.Decisions = append(s.out.Decisions, d)
	return d
}

// turned takes note that an edge refused the connection of a request, of which nothing was written,
// and reports whether it may be sent to another: a router that checks health would have done that.
func (s *run) turned(request int32, edge int) bool {
	s.ejected[edge] = s.now() + time.Second
	why := s.again[request]
	if why.rerouted++; why.rerouted >= len(s.PoPs[s.popOf[s.trace.Requests[request].Source]]) {
		return false
	}
	s.again[request] = why
	s.out.Rerouted++
	return true
}

// shut books a connection that ended before it carried anything as a refusal, if that is what it
// was: the kernel refuses it when it is made, an edge closes it afterwards. It began at asked, and
// has ended just now.
func (s *run) shut(request int32, edge int, err error, asked time.Duration) bool {
	d := s.failed(request, edge)
	switch err {
	case socket.ErrRefused:
		d.Verdict = judge.Walled
		s.out.LastSent = asked
		judge.Record(s.out.SendError, int64(asked-s.due(s.trace.Requests[request].At)))
	case socket.ErrReset, errClosedEarly:
		d.Verdict = judge.Shed
	default:
		return false
	}
	d.Since = asked
	s.out.Decisions = append(s.out.Decisions, d)
	return true
}

// repeat reports whether a request may be sent once more whose reused connection has died without a
// byte of an answer, and notes that.
func (s *run) repeat(request int32, err error) bool {
	if s.again[request].written || err != socket.ErrReset && err != errClosedEarly ||
		!idempotent(s.trace.Requests[request].Method) {
		return false
	}
	s.again[request] = again{written: true}
	s.out.Retried++
	return true
}

func (s *run) fail(request int32, edge int, err error) {
	known := false
	for _, sentinel := range []error{socket.ErrRefused, socket.ErrReset, socket.ErrExhausted,
		errClosedEarly, errCut, errTimeout,
		answer.ErrMalformed, answer.ErrExtra, answer.ErrTooLong, errRefusedStream, errResetByEdge,
		errNoHTTP2} {
		known = known || errors.Is(err, sentinel)
	}
	reason := "connection failed"
	if known {
		reason = err.Error()
	}
	s.out.Errors[reason]++
	s.out.Decisions = append(s.out.Decisions, s.failed(request, edge))
}

// failed is the decision about a request of which nobody knows what was decided.
func (s *run) failed(request int32, edge int) judge.Decision {
	return judge.Decision{
		At: s.now(), Source: s.trace.Requests[request].Source, Edge: int16(edge),
		Verdict: judge.Failed, Estimate: math.NaN(),
		Role: s.trace.Role(int(request)),
	}
}

// progress shows how far the replay is.
func (s *run) progress(now time.Duration) {
	if s.Progress == nil {
		return
	}
	p := Progress{Elapsed: now, Requests: len(s.trace.Requests), Sent: s.out.Sent,
		Answered: s.out.Answered, Refused: s.out.Statuses[429]}
	if n := len(s.trace.Requests); n > 0 {
		p.Total = s.due(s.trace.Requests[n-1].At)
	}
	for _, n := range s.out.Errors {
		p.Failed += n
	}
	s.Progress(p)
}
