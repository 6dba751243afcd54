// Package memcached runs a pop.Machine against real nodes: it owns the sockets, the goroutines and
// the clock, and does not look at what is counted.
//
// A node has four connections at most. One is a pipeline, which carries the reports: many small
// commands in one write, their answers in their order. Another carries the polls: the loop writes
// them itself, and answers that say nothing new wait for its next step. Over the others gomemcache
// does what is rare, one command at a time. Every command that the machine sends is answered by one
// wire.Result, whatever happens to it, and none is sent twice.
package memcached

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"sluice/pop"
	"sluice/pop/placement"
	"sluice/pop/wire"
)

const (
	stepEvery = 250 * time.Microsecond // on average: what comes faster shares a step
	stepBurst = 4                      // steps that may come at once
	// How long the last report goes on without an answer that confirms hits
	flushWait = time.Second
)

// Tier runs a Machine against real nodes. Its fields may be set before Sync; their zero values are
// the defaults.
type Tier struct {
	// Dial connects to a node; nil is a net.Dialer's DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Caught is called with a panic that was caught, and of where; nil ignores it. It is counted
	// either way.
	Caught func(v any, stack []byte)

	machine stepper
	nodes   []string
	wake    chan struct{}
	woken   atomic.Bool
	links   atomic.Pointer[[]*link]
	inbox   inbox
	steps   atomic.Uint64
	panics  atomic.Uint64

	mu         sync.Mutex
	operations []Operations // by node
}

// stepper is what a Tier needs of a Machine, as functions.
type stepper struct {
	step       func(now time.Time, e pop.Event) []wire.Command
	flush      func(now time.Time) []wire.Command
	pace       func(now time.Time) time.Duration
	unreported func() (hits, lost uint64)
	nodes      func() []string // by the index that commands name; more may come with a step
}

// inbox gathers results until the machine's next step. It holds no more than the commands under
// way.
type inbox struct {
	ready   chan struct{}
	mu      sync.Mutex
	results []wire.Result
}

func (i *inbox) put(rs []wire.Result) {
	i.leave(rs)
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// leave is put for what can wait until the machine has something to do.
func (i *inbox) leave(rs []wire.Result) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.results = append(i.results, rs...)
}

// take returns what has gathered, in exchange for a slice to gather the next in.
func (i *inbox) take(empty []wire.Result) []wire.Result {
	i.mu.Lock()
	defer i.mu.Unlock()
	rs := i.results
	i.results = empty[:0]
	return rs
}

// NewTier makes a Tier of the nodes, host:port each, that m was configured with. It connects to
// none yet.
func NewTier(m *pop.Machine, nodes []string) (*Tier, error) {
	return newTier(stepper{m.Step, m.Flush, m.StepIn, m.Unreported, m.Nodes.Names}, nodes)
}

func newTier(m stepper, nodes []string) (*Tier, error) {
	if len(nodes) == 0 {
		return nil, errors.New("memcached: no node")
	}
	if _, err := placement.Names(nodes); err != nil {
		return nil, fmt.Errorf("memcached: %w", err)
	}
	return &Tier{
		machine:    m,
		nodes:      nodes,
		wake:       make(chan struct{}, 1),
		inbox:      inbox{ready: make(chan struct{}, 1)},
		operations: make([]Operations, len(nodes)),
	}, nil
}

// Wake signals that the tables have something to report. It is cheap and never blocks: the request
// path calls it.
func (t *Tier) Wake() {
	if t.woken.Load() || t.woken.Swap(true) {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Sync works until ctx is done. Then it reports what is left, in as many rounds as that takes,
// until all of it is confirmed or a second has passed in which nothing was. It returns when all
// that it started has ended, and is to be called once. The error is an *IncompleteError or nil.
func (t *Tier) Sync(ctx context.Context) error {
	dial := t.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	var wg sync.WaitGroup
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	connect := func(nodes []string) []*link {
		var links []*link
		if old := t.links.Load(); old != nil {
			links = append(links, *old...)
		}
		for _, n := range nodes[len(links):] {
			l := newLink(newDialer(n, 2+rareConns, dial), t.inbox.put, t.inbox.leave, t.caught)
			wg.Go(func() { l.run(background) })
			links = append(links, l)
		}
		t.mu.Lock()
		for len(t.operations) < len(links) {
			t.operations = append(t.operations, Operations{})
		}
		t.nodes = nodes
		t.mu.Unlock()
		t.links.Store(&links)
		return links
	}
	left := t.loop(ctx, connect)
	stop()
	wg.Wait()
	t.count(t.inbox.take(nil))
	if left > 0 {
		return &IncompleteError{Hits: left}
	}
	return nil
}

// IncompleteError says that the last report was given up.
type IncompleteError struct {
	Hits uint64 // that did not reach the tier, or may not have
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("memcached: the last report is incomplete: %d hits did not reach the tier",
		e.Hits)
}

// Do carries out a command that is not the machine's, while Sync runs, and waits for its result; it
// counts as the machine's do.
func (t *Tier) Do(ctx context.Context, c wire.Command) wire.Result {
	r := wire.Result{Command: c, Status: wire.Unsent, Err: errQueue}
	links, reply := t.links.Load(), make(chan wire.Result, 1)
	switch {
	case links == nil || c.Node >= len(*links):
		return r
	case check(&c) != nil:
		r.Err = check(&c)
	case (*links)[c.Node].send(c, reply):
		select {
		case r = <-reply:
		case <-ctx.Done():
			r.Status, r.Err = wire.Unknown, ctx.Err()
		}
	}
	t.count([]wire.Result{r})
	return r
}

// loop owns the machine. It returns how many hits of the last report did not reach the tier.
//
// A lone hit goes out at once, and its answer comes in at once. Under load, steps are stepEvery
// apart, and what gathered meanwhile for a node, hits and answers alike, goes out as one burst.
func (t *Tier) loop(ctx context.Context, connect func(nodes []string) []*link) uint64 {
	var (
		links  = connect(t.nodes)
		spare  []wire.Result // the inbox's other slice
		due    = time.Now()  // when the next step would come if all were stepEvery apart
		timer  = time.NewTimer(0)
		done   = ctx.Done()
		writes int // sent and not answered: all commands but reads

		flushed  bool
		before   uint64    // hits lost before that
		progress time.Time // when hits were last confirmed, since then
		wanted   time.Time // when the next step was to come at the latest
	)
	defer timer.Stop()
	for {
		select {
		case <-done:
			done = nil // once is enough
		case <-t.inbox.ready:
		case <-t.wake:
		case <-timer.C:
		}
		if wait := time.Until(due) - stepBurst*stepEvery; wait > 0 {
			timer.Reset(wait + stepEvery) // and then some, or the timer would be set for every step
			select {
			case <-timer.C:
			case <-done:
			}
		}
		t.woken.Store(false) // before the step looks, so that what comes after wakes again
		now := time.Now()
		if due.Before(now) {
			due = now
		}
		due = due.Add(stepEvery)
		if now.Sub(wanted) >= lateBy {
			progress = now // this process was stopped, and that is no sign of the nodes
		}

		got := t.inbox.take(spare)
		t.count(got)
		for i := range got {
			if r := &got[i]; !r.Op.Reads() {
				writes--
				if r.Report && r.Status == wire.Done {
					progress = now
				}
			}
		}
		commands := t.step(now, got)
		if nodes := t.machine.nodes(); len(nodes) > len(links) {
			links = connect(nodes)
		}
		writes += t.send(links, commands)
		clear(got)
		spare = got
		if ctx.Err() != nil && !flushed {
			flushed, progress = true, now
			_, before = t.machine.unreported()
			writes += t.send(links, t.flush(now))
		}
		next := t.machine.pace(now)
		if flushed {
			hits, lost := t.machine.unreported()
			if hits == 0 && writes == 0 || now.Sub(progress) >= flushWait {
				return hits + lost - before
			}
			next = min(next, progress.Add(flushWait).Sub(now))
		}
		timer.Reset(next)
		wanted = now.Add(next)
	}
}

// step calls the machine and survives it.
func (t *Tier) step(now time.Time, answers []wire.Result) (cmds []wire.Command) {
	t.steps.Add(1)
	defer t.recover()
	return t.machine.step(now, pop.Event{Results: answers})
}

func (t *Tier) flush(now time.Time) []wire.Command {
	defer t.recover()
	return t.machine.flush(now)
}

func (t *Tier) recover() {
	if v := recover(); v != nil {
		t.caught(v)
	}
}

func (t *Tier) caught(v any) {
	t.panics.Add(1)
	if t.Caught != nil {
		t.Caught(v, debug.Stack())
	}
}

// send hands commands to their nodes, and reports in runs, and polls together, so that they leave
// as one burst. It returns how many are no reads.
func (t *Tier) send(links []*link, cmds []wire.Command) (writes int) {
	defer func() {
		for _, l := range links {
			t.refuse(l.poll(), errBacklog)
		}
	}()
	for len(cmds) > 0 {
		c, n := &cmds[0], 1
		l := links[c.Node]
		switch err := check(c); {
		case err != nil:
			t.refuse(cmds[:1], err)
		case !c.Report && c.Way == wire.Small:
			l.polled = append(l.polled, *c)
		case !c.Report:
			if !l.send(*c, nil) {
				t.refuse(cmds[:1], errQueue)
			}
		default:
			for n < len(cmds) && cmds[n].Report && cmds[n].Node == c.Node &&
				check(&cmds[n]) == nil {
				n++
			}
			t.refuse(l.pipe.send(cmds[:n]), errBacklog)
		}
		for i := range cmds[:n] {
			if !cmds[i].Op.Reads() {
				writes++
			}
		}
		cmds = cmds[n:]
	}
	return writes
}

// refuse answers commands that found no room.
func (t *Tier) refuse(cmds []wire.Command, err error) {
	for len(cmds) > 0 {
		n := min(len(cmds), batch)
		results := make([]wire.Result, n)
		for i, c := range cmds[:n] {
			results[i] = wire.Result{Command: c, Status: wire.Unsent, Err: err}
		}
		t.inbox.put(results)
		cmds = cmds[n:]
	}
}

func (t *Tier) count(rs []wire.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range rs {
		t.operations[rs[i].Node][rs[i].Op][rs[i].Status]++
	}
}
