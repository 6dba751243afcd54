package pop

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"sluice/counter"
	"sluice/pop/log"
	"sluice/pop/operators"
	"sluice/pop/wire"
)

// How a node's health is told, and how often its log is read. A probe is a read of one number, the log's last: what others write has no
// part in how long that takes.
const (
	probeEvery = 25 * time.Millisecond
	// The log is read more often, and every 3 ms for a while after it brought something, because what is in it is what no
	// edge can know by itself. Replaying real logs over eight edges, each halves the wrong decisions that delay adds, and
	// it is a small read.
	logQuiet  = 15 * time.Millisecond
	logLively = 3 * time.Millisecond
	livelyFor = time.Second
	downAfter = 350 * time.Millisecond // without an answer, though one was asked for
	upAfter   = time.Second            // of answers, so that a flapping node stays down
)

// node is what the machine knows of a memcached node.
type node struct {
	name      string // canonical
	spelled   string // as it was configured
	hash      uint64
	role      role // 0: it is no longer in use
	up        bool
	probing   bool      // a probe is under way
	probed    time.Time // when the last one was sent
	answered  time.Time // when the last good answer came
	good      time.Time // since when all answers have been good
	flying    int       // commands under way
	full      bool      // so many were that no more were sent, and more than half as many are
	waiting   queue     // to be reported when fewer are
	reads     *reads    // to be sent with the end of this Step's reports; nil: none
	log       log.Reader
	asked     []uint64 // of the log, last: numbers,
	askedKeys string   // and the keys of their items
	writer    logWriter
	words     []operators.Node // a copy of the list under each secret
	marks     time.Time        // when to read them again
	mark      string           // the key of this edge's own; "": it has none
}

// place chooses the node of a source among those that are up by rendezvous hashing (Thaler and Ravishankar, 1998): every
// node scores the source and the highest wins, so a lost node moves its own sources only. It returns -1 if none is up.
func (m *Machine) place(s counter.Source) int {
	i := m.placeAmong(s, current)
	if i < 0 && !m.moving.IsZero() {
		i = m.placeAmong(s, joining)
	}
	return i
}

// placeAmong chooses among nodes of a role.
func (m *Machine) placeAmong(s counter.Source, r role) int {
	if m.peers.Full() { // it counts alone
		return -1
	}
	h := m.secret.Place(s)
	best, most := -1, uint64(0)
	for i := range m.nodes {
		if n := &m.nodes[i]; n.up && n.role&r != 0 {
			if score := mix(h ^ n.hash); best < 0 || score > most {
				best, most = i, score
			}
		}
	}
	return best
}

// mix is the finaliser of SplitMix64: every bit of x moves half the bits of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// jitter is a time a little below d that differs between edges and from time to time.
func (m *Machine) jitter(d time.Duration) time.Duration {
	m.random++
	return d*3/4 + time.Duration(mix(m.id^m.random)%uint64(d/4))
}

func (m *Machine) newNode(name, spelled string, now time.Time) node {
	return node{name: name, spelled: spelled, role: current, hash: xxhash.Sum64String(name), up: true, answered: now, good: now, words: m.Operators.Nodes()}
}

// probe asks a node for the last number of its log if it is time to.
func (m *Machine) probe(i int, now time.Time) {
	n := &m.nodes[i]
	if n.up && n.probing && m.silent(n, now) && now.Sub(n.probed) >= downAfter {
		m.down(i, now)
	}
	if n.probing && now.Sub(n.probed) < time.Second || now.Sub(n.probed) < probeEvery {
		return
	}
	n.probing, n.probed = true, now
	m.send(wire.Command{Node: i, Op: wire.Get, Key: m.headKey}, flight{what: aProbe})
}

// silent reports whether a node has not answered for too long, while this edge was awake to hear it.
func (m *Machine) silent(n *node, now time.Time) bool {
	return now.Sub(n.answered) >= downAfter && now.Sub(m.awake) >= downAfter
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
	n := &m.nodes[r.Node]
	n.probing = false
	if r.Status != wire.Done {
		n.good = time.Time{}
		if n.up && m.silent(n, now) {
			m.down(r.Node, now)
		}
		return
	}
	n.answered = now
	if n.good.IsZero() {
		n.good = now
	}
	if !n.up && now.Sub(n.good) >= upAfter {
		n.up = true
		m.publish()
	}
	m.logHeadRead(n, r.Values[0], now)
}

// down gives a node up: what was under way to it is lost, and its sources move to other nodes with the next report.
func (m *Machine) down(i int, now time.Time) {
	n := &m.nodes[i]
	n.up, n.good = false, time.Time{}
	for tag := range m.flights {
		f := &m.flights[tag]
		if int(f.node) == i && f.what == aReport && !f.late && f.epoch >= m.epoch(f.counter.Rule, f.counter.Source) {
			m.counters.Lost(f.counter, f.part, now)
			f.late = true
		}
	}
	m.publish()
}

// publish lets the request path and operators know which nodes there are, and which are up.
func (m *Machine) publish() {
	m.moved = true
	health, names, members := make([]bool, len(m.nodes)), make([]string, len(m.nodes)), []Member{}
	for i := range m.nodes {
		n := &m.nodes[i]
		health[i], names[i] = n.up && n.role != 0, n.spelled
		if n.role != 0 {
			members = append(members, Member{
				Name: n.spelled, Up: n.up, Joining: n.role&current == 0, Leaving: !m.moving.IsZero() && n.role&joining == 0,
			})
		}
	}
	m.health.Store(&health)
	m.names.Store(&names)
	m.members.Store(&members)
}

// Health says which nodes are up, by their index. It may be called from anywhere; do not change the result.
func (m *Machine) Health() []bool { return *m.health.Load() }

// Up reports whether any node is left to count a source in: a lost node's sources move to the others at once. An edge that counts
// alone because the PoP is full has none.
func (m *Machine) Up() bool {
	if m.stats.full.Load() {
		return false
	}
	for _, up := range m.Health() {
		if up {
			return true
		}
	}
	return false
}

// Alone says how many edges shared the tier, as last known, and since when no node is left, as Step noticed; the zero time: one is. It may be
// called from anywhere.
func (m *Machine) Alone() (edges int, since time.Time) {
	at := m.alone.Load()
	if at == nil || m.Up() {
		return 0, since
	}
	return max(m.config.Edges, int(m.stats.edges.Load()), 1), *at
}

// noteAlone notes when this edge begins to count alone, and when it does no more.
func (m *Machine) noteAlone(now time.Time) {
	if alone := !m.Up(); alone != (m.alone.Load() != nil) {
		if m.alone.Store(nil); alone {
			m.alone.Store(&now)
		}
	}
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
