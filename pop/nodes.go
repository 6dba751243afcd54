package pop

import (
	"time"

	"sluice/counter"
	"sluice/pop/log"
	"sluice/pop/operators"
	"sluice/pop/placement"
	"sluice/pop/wire"
)

// The log is read more often than a node is asked whether it is well, and every 3 ms for a while after it brought something, because what
// is in it is what no edge can know by itself. Replaying real logs over eight edges, each halves the wrong decisions that delay adds, and
// it is a small read.
const (
	logQuiet  = 15 * time.Millisecond
	logLively = 3 * time.Millisecond
	livelyFor = time.Second
)

// node is what the machine knows of a memcached node, but for its place (package placement).
type node struct {
	flying    int    // commands under way
	full      bool   // so many were that no more were sent, and more than half as many are
	waiting   queue  // to be reported when fewer are
	reads     *reads // to be sent with the end of this Step's reports; nil: none
	log       log.Reader
	asked     []uint64 // of the log, last: numbers,
	askedKeys string   // and the keys of their items
	writer    logWriter
	words     []operators.Node // a copy of the list under each secret
	marks     time.Time        // when to read them again
	mark      string           // the key of this edge's own; "": it has none
}

// addNodes makes room for nodes that have been added to the list.
func (m *Machine) addNodes() {
	for len(m.nodes) < m.Nodes.Len() {
		m.nodes = append(m.nodes, node{words: m.Operators.Nodes()})
	}
}

// jitter is a time a little below d that differs between edges and from time to time.
func (m *Machine) jitter(d time.Duration) time.Duration {
	m.random++
	return d*3/4 + time.Duration(placement.Mix(m.id^m.random)%uint64(d/4))
}

// probe asks a node whether it is well, by a read of the last number of its log, if it is time to: what others write has no part in how
// long that takes.
func (m *Machine) probe(i int, now time.Time) {
	due, lost := m.Nodes.Probe(i, now)
	if lost {
		m.giveUp(i, now)
	}
	if due {
		m.send(wire.Command{Node: i, Op: wire.Get, Key: m.headKey}, flight{what: aProbe})
	}
}

// pollEvery is how often a node's log is read.
func (m *Machine) pollEvery(n *node, now time.Time) time.Duration {
	if now.Sub(n.log.Found()) < livelyFor {
		return logLively
	}
	return logQuiet
}

// StepIn is how soon the machine wants to be stepped when nothing happens.
func (m *Machine) StepIn(now time.Time) time.Duration {
	least := m.exactIn(m.inFlightIn(logQuiet))
	if m.tasks.Len() > 0 {
		least = min(least, max(m.tasks.Next().Sub(now), 0))
	}
	for i := range m.nodes {
		n := &m.nodes[i]
		least = min(least, m.pollEvery(n, now))
		if len(n.writer.records) > 0 && !n.writer.underWay {
			least = min(least, max(m.writesIn(&n.writer, now), 0))
		}
	}
	return least
}

// probeAnswered takes in what a probe brought.
func (m *Machine) probeAnswered(r *wire.Result, now time.Time) {
	if m.Nodes.Probed(r.Node, r.Status == wire.Done, now) {
		m.giveUp(r.Node, now)
	}
	if r.Status == wire.Done {
		m.logHeadRead(&m.nodes[r.Node], r.Values[0], now)
	}
}

// giveUp takes in that a node is lost: what was under way to it is, and its sources move to other nodes with the next report.
func (m *Machine) giveUp(i int, now time.Time) {
	for tag := range m.flights {
		f := &m.flights[tag]
		if int(f.node) == i && f.what == aReport && !f.late && f.epoch >= m.epoch(f.counter.Rule, f.counter.Source) {
			m.counters.Lost(f.counter, f.part, now)
			f.late = true
		}
	}
}

// Alone says how many edges shared the tier, as last known, and since when no node is left, as Step noticed; the zero time: one is. It may be
// called from anywhere.
func (m *Machine) Alone() (edges int, since time.Time) {
	if since = m.Nodes.Alone(); since.IsZero() {
		return 0, since
	}
	return max(m.config.Edges, int(m.stats.edges.Load()), 1), since
}

// queue is counters that wait, first in, first out.
type queue struct {
	list []counter.Counter
	next int
}

func (q *queue) push(c counter.Counter) {
	if q.next > len(q.list)/2 && len(q.list) == cap(q.list) {
		q.list, q.next = append(q.list[:0], q.list[q.next:]...), 0
	}
	q.list = append(q.list, c)
}

func (q *queue) pop() (c counter.Counter, ok bool) {
	if q.next == len(q.list) {
		q.list, q.next = q.list[:0], 0
		return c, false
	}
	q.next++
	return q.list[q.next-1], true
}

// drain appends all to buf and returns it.
func (q *queue) drain(buf []counter.Counter) []counter.Counter {
	buf = append(buf, q.list[q.next:]...)
	q.list, q.next = q.list[:0], 0
	return buf
}
