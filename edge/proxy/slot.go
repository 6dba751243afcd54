package proxy

import (
	"net/http"
	"time"

	"sluice/edge/limiter/shedding"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

// goneEvery is how often a request that waits for a slot is checked for a client that has gone.
const goneEvery = 20 * time.Millisecond

// overloaded is the answer to a request that is shed.
var overloaded = message.Refuse(http.StatusServiceUnavailable, "overloaded",
	"The servers behind this one have too much to do. Try again later.").With("Retry-After", "1")

// passShedding is pass with a slot at a group that sheds load, from when the request is passed on
// until the head of its answer: what follows goes as fast as its client reads, and a tunnel for as
// long as it likes.
func (p *Forward) passShedding(g *upstream.Group, now, due time.Time) (no *message.Refusal) {
	entered, waiter := g.Shedding.Enter(p.order.Level, p.order.Queue > 0, now)
	if waiter != nil {
		if no := p.queue(g, waiter, now, due); no != nil {
			return no
		}
		now = time.Now()
	} else if !entered {
		return overloaded
	}
	outcome := shedding.Unmeasured            // as it is after a fault
	long := p.in.Length != 0 && p.held == nil // how long its body takes is for the client to say
	if p.sent = now; long {
		p.slot = g.Shedding.Entered()
	}
	defer func() {
		if long {
			p.slot.End()
			p.slot = nil
		}
		g.Shedding.Leave(outcome, p.sent, time.Now())
	}()
	no = p.pass(g, now, due)
	switch {
	case long:
	case no == nil && p.answer.Status >= http.StatusInternalServerError: // errors are quick
	case no == nil:
		outcome = shedding.Answered
	case no.Status == http.StatusGatewayTimeout, no == clientGone:
		outcome = shedding.Unended
	}
	return no
}

// queue waits for a slot. A request that has waited for its time, or until due, is shed; one whose
// client has gone leaves.
func (p *Forward) queue(g *upstream.Group, w *shedding.Waiter, now,
	due time.Time) *message.Refusal {
	defer func() { g.Waited.Observe(int64(time.Since(now))) }()
	until := now.Add(p.order.Queue)
	if !due.IsZero() && due.Before(until) {
		until = due
	}
	timer := time.NewTimer(min(goneEvery, until.Sub(now)))
	defer timer.Stop()
	for {
		select {
		case <-w.Ready:
			return nil
		case <-timer.C:
		}
		at := time.Now()
		gone := p.on.Gone()
		switch {
		case gone || !at.Before(until):
			if g.Shedding.Abandon(w, gone, at) {
				if !gone {
					return nil // just now
				}
				g.Shedding.Leave(shedding.Unmeasured, at, at)
			}
			if gone {
				p.on.Last()
				return clientGone
			}
			return overloaded
		default:
			timer.Reset(min(goneEvery, until.Sub(at)))
		}
	}
}
