package pop

import (
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/record"
)

// What one edge finds about a source, all find that the source has just met. One of them is enough to tell the others, so who is not the
// one leaves the task for a while: longer than the log takes, and each for another while. It is done with when the log says so, else
// done then. While there is no credit for the log (perReport), it takes longer: who would have to wait with a record leaves the task.
type tasks struct {
	list []task // in the order in which they were left
	open map[taskKey]struct{}
	next time.Time // when they are looked at
}

type task struct {
	what    taskKind
	counter counter.Counter
	bit     mitigation.Bit // tellBlock
	due     time.Time
}

type taskKind uint8

const (
	tellBlock taskKind = iota
	askTimes
)

type taskKey struct {
	what taskKind
	key  mitigation.Key
}

const (
	taskAfter = 50 * time.Millisecond
	taskTurn  = 4 * time.Millisecond // between two edges
	taskEvery = 5 * time.Millisecond
	maxTasks  = 1 << 14 // who would leave more does them
)

func (t *task) key() taskKey {
	return taskKey{t.what, mitigation.Key{Rule: t.counter.Rule.ID, Source: t.counter.Source}}
}

// over reports whether there is nothing left to do.
func (t *task) over(now time.Time) bool { return t.what == tellBlock && !t.bit.End.After(now) }

// leave leaves a task.
func (m *Machine) leave(t task, now time.Time) {
	l := &m.left
	if len(l.list) >= maxTasks {
		m.do(t, now)
		return
	}
	if _, again := l.open[t.key()]; again {
		return
	}
	if l.open == nil {
		l.open = make(map[taskKey]struct{})
	}
	edges := uint64(max(m.config.Edges, m.presence.highest, 1))
	turn := mix(m.id^m.secret.Place(t.counter.Source)) % edges
	t.due = now.Add(taskAfter + time.Duration(turn)*taskTurn)
	l.open[t.key()] = struct{}{}
	l.list = append(l.list, t)
}

// resume does the tasks that are due.
func (m *Machine) resume(now time.Time) {
	l := &m.left
	if len(l.list) == 0 || now.Before(l.next) {
		return
	}
	l.next = now.Add(taskEvery)
	list := l.list
	l.list = l.list[:0]
	for _, t := range list {
		_, open := l.open[t.key()]
		switch {
		case !open:
		case now.Before(t.due), m.creditIn() > 0 && !t.over(now):
			l.list = append(l.list, t)
		default:
			delete(l.open, t.key())
			m.do(t, now)
		}
	}
	clear(list[len(l.list):])
}

func (m *Machine) do(t task, now time.Time) {
	switch t.what {
	case tellBlock:
		if !t.over(now) {
			m.setBit(t.key().key, t.bit, now)
		}
	case askTimes:
		m.askTimes(t.counter, now)
	}
}

// done drops a task that another edge has done.
func (m *Machine) done(what taskKind, c counter.Counter) {
	if len(m.left.list) > 0 {
		delete(m.left.open, taskKey{what, mitigation.Key{Rule: c.Rule.ID, Source: c.Source}})
	}
}

// Waiting reports whether the machine has left something for later, so that it is to be stepped though nothing happens.
func (m *Machine) Waiting() bool {
	for i := range m.nodes {
		if len(m.nodes[i].writer.records) > 0 {
			return true
		}
	}
	return len(m.left.list) > 0
}

// heardOf takes in what a record of the log says of a counter, and drops what it leaves nothing to do of.
func (m *Machine) heardOf(c counter.Counter, r *record.Record, now time.Time) {
	switch r.Kind {
	case record.Block:
		if !r.End.After(m.wall(now)) {
			return // memcached is slow to forget
		}
		m.done(tellBlock, c)
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
