package announcement

import (
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/placement"
	"sluice/pop/record"
)

// What is best done a little later is left for a while, longer than the log takes. What one edge
// finds about a source, all find that the source has just met, and one of them is enough to
// announce it. So each of the others waits, for a time that differs from edge to edge, and drops
// the task when it reads the announcement in the log.
type tasks = timers[taskKey, task]

type task struct {
	what    taskKind
	stage   algorithm.Stage // announceStage
	counter counter.Counter
	bit     mitigation.Bit // announceBlock
}

type taskKind uint8

const (
	announceBlock taskKind = iota
	announceStage
	requestTimes
)

type taskKey struct {
	what taskKind
	key  mitigation.Key
}

// By taskAfter an edge has mostly read what another wrote to the log, and by taskAfter and
// taskSpread every edge has had its turn: a block is then on its way.
const (
	taskAfter  = 12 * time.Millisecond
	taskSpread = 16 * time.Millisecond
	// So many times as late: the edge that brought the counter there announces it, but for a fault
	stageLater = 3
)

func (t *task) key() taskKey {
	return taskKey{t.what, mitigation.Key{Rule: t.counter.Rule.ID, Source: t.counter.Source}}
}

// over reports whether there is nothing left to do.
func (a *Announcer) over(t *task, now time.Time) bool {
	// Else it has ended, or was lifted, or its rule was loosened
	blocked := !a.config.Blocks.Until(t.key().key, now).IsZero()
	return t.what == announceBlock && !blocked || t.what == announceStage && blocked
}

// leave leaves a task to be done when no other edge has.
func (a *Announcer) leave(t task, now time.Time) {
	edges := uint64(max(a.config.Edges, a.Budget.edges, 1))
	turn := placement.Mix(a.config.ID^a.config.Secret.PlacementHash(t.counter.Source)) % edges
	wait := taskAfter + taskSpread*time.Duration(turn)/time.Duration(edges)
	if t.what == announceStage {
		wait *= stageLater
	}
	if !a.tasks.has(t.key()) && !a.tasks.leave(t.key(), t, now.Add(wait)) {
		a.do(t, now)
	}
}

// Resume does the tasks that are due.
func (a *Announcer) Resume(now time.Time) {
	a.tasks.resume(now, func(t task) { a.do(t, now) })
}

func (a *Announcer) do(t task, now time.Time) {
	switch {
	case a.over(&t, now):
	case t.what == announceBlock:
		a.setBit(t.key().key, t.bit, now)
	case t.what == announceStage:
		a.announce(t.counter, t.stage, false, now)
	case t.what == requestTimes:
		a.requestTimes(t.counter, now)
	}
}

// done drops a task that another edge has done.
func (a *Announcer) done(t task) { a.tasks.drop(t.key()) }

// Waiting reports whether something was left for later.
func (a *Announcer) Waiting() bool { return a.tasks.len() > 0 }

// In is how soon what was left is due, and at least as soon as given.
func (a *Announcer) In(least time.Duration, now time.Time) time.Duration {
	if a.tasks.len() > 0 {
		least = min(least, max(a.tasks.next().Sub(now), 0))
	}
	return least
}

// learnState takes in a counter's state from a record of the log, and drops the tasks that it makes
// superfluous.
func (a *Announcer) learnState(c counter.Counter, r *record.Record, now time.Time) {
	switch r.Kind {
	case record.Block:
		if !r.End.After(a.wall(now)) {
			return // memcached is slow to forget
		}
		a.done(task{what: announceBlock, counter: c})
		a.done(task{what: requestTimes, counter: c})
	case record.State, record.RequestTimes:
		if a.config.Counters.Announced(c, r.Newest, r.Groups, now) {
			a.block(c, false, now)
		}
		if r.Kind == record.RequestTimes {
			a.done(task{what: requestTimes, counter: c})
		}
		a.done(task{what: announceStage, counter: c})
	}
}
