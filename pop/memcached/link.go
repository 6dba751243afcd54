package memcached

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter/buckets"
	"sluice/pop/wire"
)

// A node has four connections: its pipeline, that of polls, and one for each other way.
const (
	rareConns = int(wire.Ways) - 1
	rareQueue = 1024 // commands beyond it come back Unsent
	// Commands that waited longer come back Unsent: they are of no use any more
	rareWait = time.Second
)

var errQueue = fmt.Errorf("%w, one at a time", errBacklog)

// link is the way to one node: its pipeline for reports, another for what is small and read again
// and again, and a client for each of the other connections.
type link struct {
	dialer  *dialer
	pipe    *pipeline
	polls   *pipeline
	polled  []wire.Command      // gathers for polls; the Tier's loop has it
	queues  [rareConns]chan job // of wire.Log and wire.List
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

// newLink makes one. Answers to polls that say nothing new go to rest, and all others to deliver.
func newLink(d *dialer, deliver, rest func([]wire.Result), caught func(any)) *link {
	l := &link{dialer: d, pipe: newPipeline(d, deliver, caught), trips: buckets.Trips(),
		deliver: deliver, caught: caught}
	var seen sameness
	l.polls = newPipeline(d, func(rs []wire.Result) {
		if seen.all(rs) {
			rest(rs)
		} else {
			deliver(rs)
		}
	}, caught)
	l.polls.direct, l.polls.patience, l.polls.drops = true, exchange, l.pipe.drops
	l.pipe.trips, l.polls.trips = l.trips, l.trips
	for i := range l.queues {
		l.queues[i] = make(chan job, rareQueue)
	}
	return l
}

// poll sends the polls that have gathered, and returns those that there was no room for.
func (l *link) poll() (refused []wire.Command) {
	if len(l.polled) == 0 {
		return nil
	}
	refused = l.polls.send(l.polled)
	l.polled = l.polled[:0]
	return refused
}

// send takes a command that goes by another way, or that somebody else than the machine waits for,
// and reports whether there was room for it.
func (l *link) send(c wire.Command, reply chan<- wire.Result) bool {
	select {
	case l.queues[max(c.Way, wire.Log)-wire.Log] <- job{c, time.Now(), reply}:
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
	wg.Go(func() { l.again(ctx, l.polls.run) })
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

// A sameness knows what was last answered to each poll that an edge repeats. One goroutine may use
// it.
type sameness struct{ last [4]answer }

type answer struct {
	key    string
	values [][]byte
}

// all reports whether all answers say what those before said to the same questions.
func (s *sameness) all(rs []wire.Result) bool {
	same := true
	for i := range rs {
		same = s.one(&rs[i]) && same
	}
	return same
}

func (s *sameness) one(r *wire.Result) bool {
	if r.Op != wire.Get || r.Status != wire.Done {
		s.last = [4]answer{} // after a failure all is news
		return false
	}
	i := slices.IndexFunc(s.last[:], func(a answer) bool { return a.key == r.Key })
	same := i >= 0 && slices.EqualFunc(s.last[i].values, r.Values, bytes.Equal) &&
		!slices.ContainsFunc(r.Values, func(v []byte) bool { return v != nil && len(v) == 0 })
	if i < 0 { // the question that was asked longest ago makes room
		i = len(s.last) - 1
	}
	copy(s.last[1:i+1], s.last[:i])
	s.last[0] = answer{r.Key, slices.Clone(r.Values)}
	return same
}
