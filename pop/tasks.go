package pop

import (
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/later"
	"sluice/pop/record"
)

// What is best done a little later is left for a while, longer than the log takes. What one edge finds about a source, all find that the
// source has just met, and one of them is enough to tell the others: so who is not the one leaves that, each for another while, and is
// done with it when the log says so. And who has announced a counter reads it again when the others have had time to report what they
// held back. While there is no credit for the log (perReport), it takes longer.
type tasks = later.List[taskKey, task]

type task struct {
	what    taskKind
	counter counter.Counter
	bit     mitigation.Bit // announceBlock
}

type taskKind uint8

const (
	announceBlock taskKind = iota
	askTimes
	reread
)

type taskKey struct {
	what taskKind
	key  mitigation.Key
}

const (
	taskAfter = 50 * time.Millisecond
	taskTurn  = 4 * time.Millisecond // between two edges
)

func (t *task) key() taskKey {
	return taskKey{t.what, mitigation.Key{Rule: t.counter.Rule.ID, Source: t.counter.Source}}
}

// over reports whether there is nothing left to do.
func (m *Machine) over(t *task, now time.Time) bool {
	switch t.what {
	case announceBlock:
		return !t.bit.End.After(now)
	case reread:
		return !m.bits.Until(t.key().key, now).IsZero()
	}
	return false
}

// leave leaves a task to be done when no other edge has.
func (m *Machine) leave(t task, now time.Time) {
	edges := uint64(max(m.config.Edges, m.peers.Highest(), 1))
	turn := mix(m.id^m.secret.Place(t.counter.Source)) % edges
	if !m.tasks.Has(t.key()) && !m.tasks.Leave(t.key(), t, now.Add(taskAfter+time.Duration(turn)*taskTurn)) {
		m.do(t, now)
	}
}

// leaveReread leaves it to read a counter that this edge has announced. Edges that hear of it report what they have held back, of groups
// that have ended, too; those totals nobody would know who has read them before.
func (m *Machine) leaveReread(c counter.Counter, now time.Time) {
	if c.Rule.HoldsBack() {
		t := task{what: reread, counter: c}
		m.tasks.Leave(t.key(), t, now.Add(taskAfter))
	}
}

// hasten has a task that was left, if any, done in this Step: it turns out to be this edge's.
func (m *Machine) hasten(what taskKind, c counter.Counter, now time.Time) {
	m.tasks.Hasten(taskKey{what, mitigation.Key{Rule: c.Rule.ID, Source: c.Source}}, now)
}

// resume does the tasks that are due.
func (m *Machine) resume(now time.Time) {
	waits := func(t *task) bool { return m.creditIn() > 0 && !m.over(t, now) }
	if m.tasks.Resume(now, waits, func(t task) { m.do(t, now) }) {
		m.sendReads(aNearRead)
	}
}

func (m *Machine) do(t task, now time.Time) {
	switch {
	case m.over(&t, now):
	case t.what == announceBlock:
		m.setBit(t.key().key, t.bit, now)
	case t.what == askTimes:
		m.askTimes(t.counter, now)
	case t.what == reread:
		m.readWhole(aNearRead, t.counter, now)
	}
}

// done drops a task that another edge has done.
func (m *Machine) done(what taskKind, c counter.Counter) {
	m.tasks.Drop(taskKey{what, mitigation.Key{Rule: c.Rule.ID, Source: c.Source}})
}

// Waiting reports whether the machine has left something for later, so that it is to be stepped though nothing happens.
func (m *Machine) Waiting() bool {
	for i := range m.nodes {
		if len(m.nodes[i].writer.records) > 0 {
			return true
		}
	}
	return m.tasks.Len() > 0 || m.config.InFlight != nil && m.config.InFlight.Waiting()
}

// learnStanding takes in what a record of the log says of a counter, and drops what it leaves nothing to do of.
func (m *Machine) learnStanding(c counter.Counter, r *record.Record, now time.Time) {
	switch r.Kind {
	case record.Block:
		if !r.End.After(m.wall(now)) {
			return // memcached is slow to forget
		}
		m.done(announceBlock, c)
		m.done(askTimes, c)
	case record.Standing, record.AskTimes:
		if m.counters.Announced(c, r.Newest, r.Groups, now) {
			m.block(c, false, now)
		}
		if r.Kind == record.AskTimes {
			m.done(askTimes, c)
		}
	}
}
