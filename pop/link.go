package pop

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A node has at most four connections: its pipeline, one for reads and two for writes of what is rare. Reads have one of
// their own so that a flood of new bits does not delay the probes.
const (
	lanes     = 3
	laneQueue = 1024        // commands beyond it come back Unsent
	laneWait  = time.Second // commands that waited longer come back Unsent: nobody counts on them any more
	firstMost = 16          // commands of the operators' list: a Machine has one under way to a node
)

var errQueue = fmt.Errorf("%w, one at a time", errBacklog)

// link is the way to one node: its pipeline for reports, and a client for each lane of what is rare.
type link struct {
	dialer  *dialer
	pipe    *pipeline
	queues  [lanes]chan job
	first   chan job // what operators say: goes before all else, on whichever lane for writes is free
	trips   *Histogram
	waiting atomic.Int64 // commands in the lanes
	deliver func([]Result)
	caught  func(any) // a panic
}

type job struct {
	Command
	at time.Time
}

func newLink(d *dialer, deliver func([]Result), caught func(any)) *link {
	l := &link{dialer: d, pipe: newPipeline(d, deliver, caught), trips: new(Histogram), deliver: deliver, caught: caught}
	l.pipe.trips = l.trips
	l.first = make(chan job, firstMost)
	for i := range l.queues {
		l.queues[i] = make(chan job, laneQueue)
	}
	return l
}

// lane keeps the writes of a key in their order.
func lane(c *Command) int {
	if c.Op == Get {
		return 0
	}
	return 1 + int(c.Key[len(c.Key)-1])%(lanes-1)
}

// send takes a command that is not part of a report and reports whether there was room for it.
func (l *link) send(c Command) bool {
	q := l.queues[lane(&c)]
	if c.First {
		q = l.first
	}
	select {
	case q <- job{c, time.Now()}:
		l.waiting.Add(1)
		return true
	default:
		return false
	}
}

// run serves the node until ctx is done.
func (l *link) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { l.again(ctx, l.pipe.run) })
	for i, q := range l.queues {
		first := l.first
		if i == 0 {
			first = nil // a long list must not delay the proof of a node's health
		}
		wg.Go(func() { l.again(ctx, func(ctx context.Context) { l.serve(ctx, first, q) }) })
	}
	wg.Wait()
}

// again calls f once more if it panicked.
func (l *link) again(ctx context.Context, f func(context.Context)) {
	for ctx.Err() == nil {
		func() {
			defer func() {
				if v := recover(); v != nil {
					l.caught(v)
				}
			}()
			f(ctx)
		}()
	}
}

// serve carries out the commands of a lane one by one, those in first before the others.
func (l *link) serve(ctx context.Context, first, q chan job) {
	c := newClient(l.dialer, l.caught)
	defer c.close()
	for {
		var j job
		select {
		case j = <-first:
		default:
			select {
			case <-ctx.Done():
				return
			case j = <-first:
			case j = <-q:
			}
		}
		start := time.Now()
		r := Result{Command: j.Command, Status: Unsent, Err: errQueue}
		if start.Sub(j.at) < laneWait {
			r = c.do(j.Command)
			if r.Status == Done || r.Status == NotThere {
				l.trips.Observe(time.Since(start))
			}
		}
		l.waiting.Add(-1)
		l.deliver([]Result{r})
	}
}
