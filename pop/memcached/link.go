package memcached

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter/buckets"
	"sluice/pop/wire"
)

// A node has four connections: its pipeline, and one for each way of what is rare.
const (
	rareConns = int(wire.Ways)
	rareQueue = 1024 // commands beyond it come back Unsent
	// Commands that waited longer come back Unsent: they are of no use any more
	rareWait = time.Second
)

var errQueue = fmt.Errorf("%w, one at a time", errBacklog)

// link is the way to one node: its pipeline for reports, and a client for each of the other
// connections.
type link struct {
	dialer  *dialer
	pipe    *pipeline
	queues  [rareConns]chan job
	trips   *buckets.Histogram
	waiting atomic.Int64 // commands that wait for one of those
	deliver func([]wire.Result)
	caught  func(any) // a panic
}

type job struct {
	wire.Command
	at    time.Time
	reply chan<- wire.Result // with room for it; nil: the machine has read it
}

func newLink(d *dialer, deliver func([]wire.Result), caught func(any)) *link {
	l := &link{dialer: d, pipe: newPipeline(d, deliver, caught), trips: buckets.Trips(),
		deliver: deliver, caught: caught}
	l.pipe.trips = l.trips
	for i := range l.queues {
		l.queues[i] = make(chan job, rareQueue)
	}
	return l
}

// send takes a command that is not part of a report and reports whether there was room for it.
func (l *link) send(c wire.Command, reply chan<- wire.Result) bool {
	select {
	case l.queues[c.Way] <- job{c, time.Now(), reply}:
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
	for _, q := range l.queues {
		wg.Go(func() { l.again(ctx, func(ctx context.Context) { l.serve(ctx, q) }) })
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

// serve carries out the commands of a connection one by one.
func (l *link) serve(ctx context.Context, q chan job) {
	c := newClient(l.dialer, l.caught)
	defer c.close()
	for {
		var j job
		select {
		case <-ctx.Done():
			return
		case j = <-q:
		}
		start := time.Now()
		r := wire.Result{Command: j.Command, Status: wire.Unsent, Err: errQueue}
		if start.Sub(j.at) < rareWait {
			r = c.do(j.Command)
			if r.Status == wire.Done || r.Status == wire.NotThere {
				l.trips.Observe(int64(time.Since(start)))
			}
		}
		l.waiting.Add(-1)
		if j.reply != nil {
			j.reply <- r
			continue
		}
		l.deliver([]wire.Result{r})
	}
}
