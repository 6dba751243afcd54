// Package closedloop makes as many requests as an edge answers (Load), to find out what it costs
// when it is busy.
package closedloop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/loadgen/answer"
	"sluice/loadgen/judge"
	"sluice/loadgen/socket"
)

// Load is a load that finds out what an edge costs: each of its connections sends the next request
// as soon as the last one is answered. Unlike a replay it does not say how an edge does at a given
// rate, only what it does when it is busy.
type Load struct {
	Edge  netip.AddrPort
	Conns int // at once
	// Named in X-Forwarded-For, one after the other; 0 or 1: the connection's own address, and no
	// header
	Sources int
	Fresh   bool // a connection for each request
	// With Fresh: a connection that ends before its answer has been refused, and is answered so
	Shed bool
	TLS  *tls.Config // nil: plain HTTP; not with Shed
	// Requests at once on each connection, over HTTP/2, with TLS and without Fresh; 0: HTTP/1.1
	Streams int
	Warm    time.Duration // before anything counts
	// Over HTTP/1.1 without TLS: so many requests come before anything counts, within warmBy of Warm
	WarmRequests int
	For          time.Duration // how long to measure
	Begun        func()        // called when the warm-up is over; nil: nothing
	Ended        func()        // called when the measurement is
}

// warmBy is how much longer a machine that is busy with other work may take for WarmRequests.
const warmBy = 30 * time.Second

// Outcome is what a Load saw.
type Outcome struct {
	Took     time.Duration
	Answers  int // complete, within For
	Statuses map[int]int
	Shed     int // of them: connections that ended unanswered
	Resumed  int // of them: on connections that resumed a TLS session
	Failed   int // connections that broke
	Latency  *hdrhistogram.Histogram
}

// conn is one of the connections of a Load.
type conn struct {
	fd         int
	generation int32
	rest       []byte
	buf        []byte
	since      time.Duration
	answer     answer.Answer
}

// run is a Load under way. One goroutine owns it.
type run struct {
	*Load
	poller  *socket.Poller
	conns   []conn
	start   time.Time
	sent    uint32
	measure bool
	out     *Outcome
	scratch [64 << 10]byte
}

// Run applies the load. It returns early with ctx's error.
func (c Load) Run(ctx context.Context) (*Outcome, error) {
	out := &Outcome{Statuses: make(map[int]int), Latency: hdrhistogram.New(1000,
		int64(10*time.Second), 3)}
	if c.TLS != nil {
		return out, (&tlsRun{Load: &c, out: out}).run(ctx)
	}
	p, err := socket.NewPoller()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &run{Load: &c, poller: p, conns: make([]conn, c.Conns), start: time.Now(), out: out}
	defer func() {
		for i := range r.conns {
			if r.conns[i].fd > 0 {
				socket.Abort(r.conns[i].fd)
			}
		}
	}()
	for i := range r.conns {
		if err := r.open(int32(i)); err != nil {
			return nil, fmt.Errorf("loadgen: connect to %s: %w", c.Edge, err)
		}
	}
	return r.out, r.loop(ctx)
}

func (r *run) loop(ctx context.Context) error {
	events := make([]socket.Event, 0, 256)
	var begun time.Duration
	for {
		now := time.Since(r.start)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !r.measure && now >= r.Warm && (int(r.sent) >= r.WarmRequests || now >= r.Warm+warmBy):
			r.measure, begun = true, now
			if r.Begun != nil {
				r.Begun()
			}
		case r.measure && now-begun >= r.For:
			if r.Ended != nil {
				r.Ended()
			}
			r.out.Took = now - begun
			return nil
		}
		var err error
		if events, err = r.poller.Wait(10*time.Millisecond, events[:0]); err != nil {
			return err
		}
		for _, e := range events {
			if err := r.ready(e); err != nil {
				return err
			}
		}
	}
}

// open makes the connection in a slot and sends a request on it.
func (r *run) open(slot int32) error {
	c := &r.conns[slot]
	fd, err := socket.Dial(netip.Addr{}, r.Edge)
	if err != nil {
		return err
	}
	c.fd = fd
	c.generation++
	if err := r.poller.Add(fd, socket.Event{Slot: slot, Generation: c.generation}); err != nil {
		return err
	}
	// What was shed before it wrote is an event as well
	if err := r.send(c); err != nil && !r.Shed {
		return err
	}
	return nil
}

// request puts the n-th request into a buffer.
func (c *Load) request(buf []byte, n uint32) []byte {
	buf = append(buf[:0],
		"GET /some/path?x=1 HTTP/1.1\r\nHost: example.com\r\nUser-Agent: bench\r\nAccept: */*\r\n"...)
	if c.Sources > 1 {
		buf = append(buf, "X-Forwarded-For: "...)
		buf = c.source(n).AppendTo(buf)
		buf = append(buf, "\r\n"...)
	}
	return append(buf, "\r\n"...)
}

// source is whose request the n-th is.
func (c *Load) source(n uint32) netip.Addr {
	n %= uint32(c.Sources)
	return netip.AddrFrom4([4]byte{198, 18 + byte(n>>16), byte(n >> 8), byte(n)})
}

func (r *run) send(c *conn) error {
	c.buf = r.request(c.buf, r.sent)
	r.sent++
	c.rest, c.since = c.buf, time.Since(r.start)
	c.answer.Reset(false)
	return r.flush(c)
}

func (r *run) flush(c *conn) error {
	var err error
	c.rest, err = socket.WriteMost(c.fd, c.rest)
	return err
}

// ready takes an event of a connection. A connection that breaks is counted and opened again.
func (r *run) ready(e socket.Event) error {
	c := &r.conns[e.Slot]
	if c.generation != e.Generation {
		return nil
	}
	done := func() {
		if r.measure {
			r.out.Answers++
			judge.Record(r.out.Latency, int64(time.Since(r.start)-c.since))
		}
	}
	again := func(failed bool) error {
		switch {
		case r.Shed && !c.answer.Started() && !c.answer.Ended():
			done()
			if r.measure {
				r.out.Shed++
			}
		case failed && r.measure:
			r.out.Failed++
		}
		socket.Abort(c.fd)
		return r.open(e.Slot)
	}
	if err := r.flush(c); err != nil {
		return again(true)
	}
	for len(c.rest) == 0 {
		n, err := socket.Read(c.fd, r.scratch[:])
		switch {
		case err == socket.ErrAgain:
			return nil
		case err != nil:
			return again(true)
		case n == 0 && !c.answer.Ended():
			return again(c.answer.Started() || !r.Fresh)
		case n > 0:
			if err := c.answer.Feed(r.scratch[:n]); err != nil {
				return again(true)
			}
		}
		if !c.answer.Done() {
			continue
		}
		done()
		if r.measure {
			r.out.Statuses[c.answer.Status]++
		}
		if r.Fresh || c.answer.Close || n == 0 {
			return again(false)
		}
		if err := r.send(c); err != nil {
			return again(true)
		}
		return nil // its answer is another event
	}
	return nil
}
