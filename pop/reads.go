package pop

import (
	"sync"
	"time"

	"sluice/counter"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// A read asks what the PoP has counted in some groups of a window, and whether the source is mitigated: other edges may know
// more than this one of a source that it sees for the first time, or again.
type read struct {
	counter        counter.Counter
	epoch          uint64 // of the keys
	oldest, newest uint32
	reported       uint64 // hits, by the report that it goes with
}

// reads are sent as one Get, because memcached writes the answer to each by itself, whatever else it has to say.
type reads struct {
	list []read
	keys []byte // of each the bit's, then the groups' from newest to oldest
}

const (
	maxReadKeys = 1900                            // bytes of keys: a line of more than 2048 is an exception to memcached
	maxReadKey  = 9 * (secret.CounterKeySize + 1) // of one read
)

// read adds a read to those that are next sent to a node.
func (m *Machine) read(node int, what purpose, c counter.Counter, epoch uint64, name *secret.CounterName, oldest, newest uint32, reported uint64) {
	n := &m.nodes[node]
	if n.reads != nil && len(n.reads.keys) > maxReadKeys-maxReadKey {
		m.sendReadsTo(node, what)
	}
	if n.reads == nil {
		if last := len(m.spare) - 1; last >= 0 {
			n.reads, m.spare = m.spare[last], m.spare[:last]
		} else {
			n.reads = new(reads)
		}
	}
	l := n.reads
	if len(l.keys) > 0 {
		l.keys = append(l.keys, ' ')
	}
	l.keys = m.secret.AppendBitKey(l.keys, c, epoch)
	for g := newest; ; g-- {
		l.keys = name.Append(append(l.keys, ' '), g)
		if g == oldest {
			break
		}
	}
	l.list = append(l.list, read{c, epoch, oldest, newest, reported})
}

// sendReads sends what reads there are.
func (m *Machine) sendReads(what purpose) {
	for i := range m.nodes {
		if m.nodes[i].reads != nil {
			m.sendReadsTo(i, what)
		}
	}
}

func (m *Machine) sendReadsTo(node int, what purpose) {
	n := &m.nodes[node]
	m.send(wire.Command{Node: node, Op: wire.Get, Report: true, Key: string(n.reads.keys)}, flight{what: what, reads: n.reads})
	n.reads = nil
}

// readsDone takes in what reads have brought.
func (m *Machine) readsDone(f flight, r *wire.Result, now time.Time) {
	if r.Status == wire.Done && f.what != aStaleRead {
		values := r.Values
		for _, l := range f.reads.list {
			n := 2 + int(l.newest-l.oldest)
			m.readDone(l, f.what, values[:n], now)
			values = values[n:]
		}
	}
	clear(f.reads.list)
	f.reads.list, f.reads.keys = f.reads.list[:0], f.reads.keys[:0]
	m.spare = append(m.spare, f.reads)
}

// readDone takes in what a read has brought: what is at the bit's key, and the groups'.
func (m *Machine) readDone(l read, what purpose, values [][]byte, now time.Time) {
	c := l.counter
	if l.epoch < m.epoch(c.Rule, c.Source) {
		return // the source was lifted since
	}
	if bit := values[0]; bit != nil {
		if rec, ok := record.Open(m.secret, bit); !ok {
			m.stats.forged.Add(1)
		} else if rec.Source == c.Source && rec.Rule == m.secret.RuleDigest(c.Rule) {
			m.learn(rec, now)
		}
	}
	var groups [8]uint64
	found := false
	for i, v := range values[1:] {
		if v == nil {
			continue
		}
		total, ok := wire.ParseNumber(v)
		if !ok {
			m.stats.forged.Add(1)
		}
		if groups[i] = total; ok && total == 0 && c.Rule.Sync {
			groups[i] = counter.Emptied
		}
		found = found || ok
	}
	if !found && what == aRead {
		return // a source's first request: there are many of those
	}
	m.actOn(c, m.counters.Learn(c, l.newest, groups[:len(values)-1], l.reported, now), now)
}

// asks are the counters that requests wait for.
type asks struct {
	mu   sync.Mutex
	list []counter.Counter
}

// Ask asks the tier about a counter that this edge does not know, because a request waits for the answer
// (counter.Table.Await). It may be called from anywhere; a Step follows it up.
func (m *Machine) Ask(c counter.Counter) {
	m.asks.mu.Lock()
	defer m.asks.mu.Unlock()
	if len(m.asks.list) < maxAsks { // who finds the list full goes on without an answer, as after the longest wait
		m.asks.list = append(m.asks.list, c)
	}
}

const maxAsks = 1 << 14

// readForRequests reads the counters that requests wait for.
func (m *Machine) readForRequests(now time.Time) {
	m.asks.mu.Lock()
	m.dirty = append(m.dirty[:0], m.asks.list...)
	m.asks.list = m.asks.list[:0]
	m.asks.mu.Unlock()
	for _, c := range m.dirty {
		if node := m.Nodes.Place(c.Source); node >= 0 {
			oldest, newest := m.counters.Groups(c.Rule, now, m.secret.Phase(c.Source))
			epoch := m.epoch(c.Rule, c.Source)
			name := m.secret.CounterName(c, epoch)
			m.read(node, aWaitedRead, c, epoch, &name, oldest, newest, 0)
		}
	}
	m.sendReads(aWaitedRead)
}
