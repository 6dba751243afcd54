package pop

import (
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/later"
	"sluice/pop/placement"
	"sluice/pop/record"
)

// What is best done a little later is left for a while, longer than the log takes. What one edge finds about a source, all find that the
// source has just met, and one of them is enough to tell the others: so who is not the one leaves that, each for another while, and is
// done with it when the log says so.
type tasks = later.List[taskKey, task]

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
	askTimes
)

type taskKey struct {
	what taskKind
	key  mitigation.Key
}

// By taskAfter an edge has mostly read what another wrote to the log, and by taskAfter and taskSpread every edge has had its turn: a block is
// then on its way.
const (
	taskAfter  = 12 * time.Millisecond
	taskSpread = 16 * time.Millisecond
	stageLater = 3 // so many times as late: who has brought the counter there tells it, but for a fault
)

func (t *task) key() taskKey {
	return taskKey{t.what, mitigation.Key{Rule: t.counter.Rule.ID, Source: t.counter.Source}}
}

// over reports whether there is nothing left to do.
func (m *Machine) over(t *task, now time.Time) bool {
	blocked := !m.bits.Until(t.key().key, now).IsZero() // else it has ended, or was lifted, or its rule was loosened
	return t.what == announceBlock && !blocked || t.what == announceStage && blocked
}

// leave leaves a task to be done when no other edge has.
func (m *Machine) leave(t task, now time.Time) {
	edges := uint64(max(m.config.Edges, m.peers.Highest(), 1))
	turn := placement.Mix(m.id^m.secret.Place(t.counter.Source)) % edges
	wait := taskAfter + taskSpread*time.Duration(turn)/time.Duration(edges)
	if t.what == announceStage {
		wait *= stageLater
	}
	if !m.tasks.Has(t.key()) && !m.tasks.Leave(t.key(), t, now.Add(wait)) {
		m.do(t, now)
	}
}

// resume does the tasks that are due.
func (m *Machine) resume(now time.Time) {
	m.tasks.Resume(now, func(t task) { m.do(t, now) })
}

func (m *Machine) do(t task, now time.Time) {
	switch {
	case m.over(&t, now):
	case t.what == announceBlock:
		m.setBit(t.key().key, t.bit, now)
	case t.what == announceStage:
		m.announce(t.counter, t.stage, now)
	case t.what == askTimes:
		m.askTimes(t.counter, now)
	}
}

// done drops a task that another edge has done.
func (m *Machine) done(t task) { m.tasks.Drop(t.key()) }

// Waiting reports whether the machine has left something for later, so that it is to be stepped though nothing happens.
func (m *Machine) Waiting() bool {
	for i := range m.nodes {
		if len(m.nodes[i].writer.records) > 0 {
			return true
		}
	}
	return m.tasks.Len() > 0 || m.config.InFlight != nil && m.config.InFlight.Waiting() || m.config.Exact != nil && m.config.Exact.Waiting()
}

// learnStanding takes in what a record of the log says of a counter, and drops what it leaves nothing to do of.
func (m *Machine) learnStanding(c counter.Counter, r *record.Record, now time.Time) {
	switch r.Kind {
	case record.Block:
		if !r.End.After(m.wall(now)) {
			return // memcached is slow to forget
		}
		m.done(task{what: announceBlock, counter: c})
		m.done(task{what: askTimes, counter: c})
	case record.Standing, record.AskTimes:
		if m.counters.Announced(c, r.Newest, r.Groups, now) {
			m.block(c, false, now)
		}
		if r.Kind == record.AskTimes {
			m.done(task{what: askTimes, counter: c})
		}
		m.done(task{what: announceStage, counter: c})
	}
}
