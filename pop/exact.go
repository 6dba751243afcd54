package pop

import (
	"time"

	"sluice/counter"
	"sluice/counter/exact"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// Buckets of instants (package exact) are each on one node of the list, whether or not that is up: were they on another while it is down, edges
// that see it down at different times would each count in a place of their own. So while it is down they answer nobody, and rules go by
// their postures. Edges with different lists count in different places; a bucket that has just come to another node knows nothing, and rules that
// are closed admit nobody by it for a window. So edges must get a new list within a window of each other; a list that changes while edges run
// (package placement) is in force for buckets when the transition ends.

const (
	exactBehind = time.Millisecond // between two Steps that ask what is left of one

	// All buckets are added once more in this time, by all edges together. What is there stays as it is and is not
	// evicted. One that is made only when it is needed would leave its sources in doubt for a window under a rule that is closed, or is closed later.
	keepEvery = time.Minute
	keepFirst = time.Second // the first time, and after a node was lost or came back
)

// exactKeeper adds buckets.
type exactKeeper struct {
	exchanges []*exact.Exchange // of a Step
	rules     *ruleSet
	health    *[]bool
	next      int // of Buckets times rules
	every     time.Duration
	due       time.Time
	swept     time.Time
	names     map[string]secret.CounterName // of rules, by exact.Rule.ID
}

// exchangeExact asks nodes what requests wait for.
func (m *Machine) exchangeExact(now time.Time) {
	t := m.config.Exact
	if t == nil {
		return
	}
	k := &m.exact
	if k.exchanges == nil {
		k.exchanges = make([]*exact.Exchange, 0, exchangesAtOnce)
	}
	m.keepExact(now)
	k.exchanges = t.Due(k.exchanges[:0], m.wall(now), func(r *exact.Rule, bucket uint32) int {
		if n := m.Nodes.Bucket(bucket); n >= 0 && m.Nodes.IsUp(n) {
			return n
		}
		return -1
	})
	for _, x := range k.exchanges {
		m.sendExact(wire.Command{Node: x.Node, Op: wire.Gets, Key: m.exactKey(x.Rule, x.Bucket)}, flight{what: anExactRead, exact: x})
	}
	clear(k.exchanges)
	if now.Sub(k.swept) >= cleanEvery {
		k.swept = now
		t.Sweep(m.wall(now))
	}
}

// sendExact sends a command, of which reports pay nothing.
func (m *Machine) sendExact(c wire.Command, f flight) {
	c.Report, f.paid = true, true
	m.send(c, f)
}

func (m *Machine) exactKey(r *exact.Rule, bucket uint32) string {
	name, known := m.exact.names[r.ID]
	if !known {
		name = m.secret.ExactName(r.ID)
	}
	return m.bucketKey(name, bucket)
}

func (m *Machine) bucketKey(name secret.CounterName, bucket uint32) string {
	var room [secret.CounterKeySize]byte
	return m.arena.Write(name.Append(room[:0], bucket))
}

// exactRead has the table take in what a bucket has, and writes what it wants written.
func (m *Machine) exactRead(f flight, r *wire.Result, now time.Time) {
	var body []byte
	there, answered := false, r.Status == wire.Done
	if answered && r.Values[0] != nil {
		in, ok := m.secret.OpenAt(secret.Exact, r.Key, r.Values[0])
		if !ok {
			m.stats.forged.Add(1)
		}
		if there = ok; ok {
			body = in.Rest()
		}
	}
	write := m.config.Exact.Read(f.exact, body, there, answered, m.exactTag, m.wall(now))
	if write == nil {
		return
	}
	c := wire.Command{Node: r.Node, Op: wire.Add, Key: r.Key, Value: m.secret.SealAt(secret.Exact, r.Key, write)}
	if r.Values[0] != nil {
		c.Op, c.Delta = wire.Cas, r.Number
	}
	m.sendExact(c, flight{what: anExactWrite, exact: f.exact})
}

func (m *Machine) exactTag(r *exact.Rule, source counter.Source) uint64 {
	return m.secret.ExactTag(r.ID, source, m.epoch(r.Counter, source))
}

// exactWritten takes in what became of that.
func (m *Machine) exactWritten(f flight, r *wire.Result) {
	m.config.Exact.Written(f.exact, [...]exact.Outcome{wire.Done: exact.Stored, wire.NotThere: exact.Conflict, wire.Unsent: exact.Unsent, wire.Unknown: exact.Unknown}[r.Status])
}

// exactIn is how soon there is more to ask, at least as soon as given.
func (m *Machine) exactIn(least time.Duration) time.Duration {
	if t := m.config.Exact; t != nil && t.Behind() {
		return min(least, exactBehind)
	}
	return least
}

// keepExact adds the next of all buckets.
func (m *Machine) keepExact(now time.Time) {
	k := &m.exact
	if rules, health := m.rules.Load(), m.Nodes.Known(); rules != k.rules || health != k.health {
		if k.rules != rules {
			k.names = make(map[string]secret.CounterName)
			for _, r := range rules.byID {
				if r.Exact != nil {
					k.names[r.Exact.ID] = m.secret.ExactName(r.Exact.ID)
				}
			}
		}
		k.rules, k.health, k.next, k.every, k.due = rules, health, 0, keepFirst, now
	}
	if len(k.names) == 0 {
		return
	}
	for i := 0; !now.Before(k.due) && i < exact.Buckets; i++ {
		k.due = k.due.Add(k.every / exact.Buckets)
		bucket := uint32(k.next)
		if k.next++; k.next == exact.Buckets {
			k.next, k.every = 0, keepEvery*time.Duration(max(m.peers.Highest(), 1))
		}
		node := m.Nodes.Bucket(bucket)
		if node < 0 || !m.Nodes.IsUp(node) {
			continue
		}
		for _, name := range k.names {
			key := m.bucketKey(name, bucket)
			m.sendExact(wire.Command{Node: node, Op: wire.Add, Key: key, Value: m.secret.SealAt(secret.Exact, key, exact.Fresh(m.wall(now)))}, flight{what: anEmptyAdd})
		}
	}
	if !now.Before(k.due) {
		k.due = now
	}
}
