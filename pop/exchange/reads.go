package exchange

import (
	"time"

	"sluice/counter"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// A group read returns what the PoP has counted in some groups of a window, and whether the source
// is mitigated: other edges may know more than this one of a source that it sees for the first
// time, or again.
type groups struct {
	counter        counter.Counter
	epoch          uint64 // of the keys
	oldest, newest uint32
	reported       uint64 // hits, by the report that it goes with
	older          bool   // only the bit, under the secret that this one replaces
}

// values are how many a read brings.
func (g *groups) values() int {
	if g.older {
		return 1
	}
	return 2 + int(g.newest-g.oldest)
}

// reads are sent as one Get, because memcached writes the answer to each command with a system call
// of its own.
type reads struct {
	list []groups
	keys []byte // of each the bit's, then the groups' from newest to oldest
}

const (
	// Bytes of keys: a line of more than 2048 is an exception to memcached
	maxReadKeys = 1900
	maxReadKey  = 9 * (secret.CounterKeySize + 1) // of one read
)

// Read adds a read to those that are next sent to a node: of a counter's groups from the oldest to
// the newest, for a report of so many hits.
func (x *Exchanges) Read(node int, c counter.Counter, epoch uint64, name *secret.CounterName,
	oldest, newest uint32, reported uint64) {
	x.add(node, read, name, groups{counter: c, epoch: epoch, oldest: oldest, newest: newest,
		reported: reported})
	x.readOlder(read, c, epoch)
}

// readOlder reads the bit that a source has under the secret that this one replaces, if it replaces
// one: blocks outlast the change, which the edges that had them may not.
func (x *Exchanges) readOlder(k kind, c counter.Counter, epoch uint64) {
	older, is := x.config.Secret.Older()
	if !is {
		return
	}
	if node := x.config.Nodes.NodeUnder(older, c.Source); node >= 0 {
		x.add(node, k, nil, groups{counter: c, epoch: epoch, older: true})
	}
}

func (x *Exchanges) add(node int, k kind, name *secret.CounterName, g groups) {
	for len(x.open) <= node {
		x.open = append(x.open, nil)
	}
	if x.open[node] != nil && len(x.open[node].keys) > maxReadKeys-maxReadKey {
		x.sendReadsTo(node, k)
	}
	if x.open[node] == nil {
		if last := len(x.spare) - 1; last >= 0 {
			x.open[node], x.spare = x.spare[last], x.spare[:last]
		} else {
			x.open[node] = new(reads)
		}
	}
	l := x.open[node]
	if len(l.keys) > 0 {
		l.keys = append(l.keys, ' ')
	}
	if older, _ := x.config.Secret.Older(); g.older {
		l.keys = older.AppendBitKey(l.keys, g.counter, g.epoch)
		l.list = append(l.list, g)
		return
	}
	l.keys = x.config.Secret.AppendBitKey(l.keys, g.counter, g.epoch)
	for n := g.newest; ; n-- {
		l.keys = name.Append(append(l.keys, ' '), n)
		if n == g.oldest {
			break
		}
	}
	l.list = append(l.list, g)
}

// SendReads sends what reads there are.
func (x *Exchanges) SendReads() { x.sendReads(read) }

func (x *Exchanges) sendReads(k kind) {
	for i := range x.open {
		if x.open[i] != nil {
			x.sendReadsTo(i, k)
		}
	}
}

func (x *Exchanges) sendReadsTo(node int, k kind) {
	l := x.open[node]
	x.open[node] = nil
	x.config.Send(wire.Command{Node: node, Op: wire.Get, Report: true, Key: string(l.keys)},
		Request{kind: k, reads: l})
}

// readsDone takes in what reads have brought.
func (x *Exchanges) readsDone(a Request, r *wire.Result, now time.Time) {
	if r.Status == wire.Done && a.kind != stale {
		values := r.Values
		for _, l := range a.reads.list {
			n := l.values()
			x.readDone(l, a.kind, values[:n], now)
			values = values[n:]
		}
	}
	clear(a.reads.list)
	a.reads.list, a.reads.keys = a.reads.list[:0], a.reads.keys[:0]
	x.spare = append(x.spare, a.reads)
}

// readDone takes in what a read has brought: what is at the bit's key, and the groups'.
func (x *Exchanges) readDone(l groups, k kind, values [][]byte, now time.Time) {
	c := l.counter
	if l.epoch < x.config.Operators.Epoch(c.Rule, c.Source) {
		return // the source was lifted since
	}
	if bit := values[0]; l.older {
		if bit != nil {
			x.learnOlder(c, bit, now)
		}
		return
	} else if bit != nil {
		if rec, ok := record.Open(x.config.Secret, bit); !ok {
			x.forged.Add(1)
		} else if rec.Source == c.Source && rec.Rule == x.config.Secret.RuleDigest(c.Rule) {
			x.config.Announcer.Apply(rec, now)
		}
	}
	var totals [8]uint64
	found := false
	for i, v := range values[1:] {
		if v == nil {
			continue
		}
		total, ok := wire.ParseNumber(v)
		if !ok {
			x.forged.Add(1)
		}
		totals[i] = total
		found = found || ok
	}
	if !found && k == read {
		return // a source's first request: there are many of those
	}
	x.config.Announcer.ActOn(c, x.config.Counters.Apply(c, l.newest, totals[:len(values)-1],
		l.reported, now), now)
}

// learnOlder takes in a bit under the secret that this one replaces.
func (x *Exchanges) learnOlder(c counter.Counter, bit []byte, now time.Time) {
	older, _ := x.config.Secret.Older()
	rec, ok := record.Open(older, bit)
	if !ok {
		x.forged.Add(1)
		return
	}
	if rec.Source == c.Source && rec.Rule == older.RuleDigest(c.Rule) {
		rec.Rule = x.config.Secret.RuleDigest(c.Rule)
		x.config.Announcer.Renew(rec, now)
	}
}

const maxFetches = 1 << 14

// Fetch reads a counter that this edge does not know, because a request waits for the answer
// (counter.Table.Await). The next Step follows it up.
func (x *Exchanges) Fetch(c counter.Counter) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// A request that finds the list full goes on without an answer, as after the longest wait
	if len(x.wanted) < maxFetches {
		x.wanted = append(x.wanted, c)
	}
}

// readForRequests reads the counters that requests wait for.
func (x *Exchanges) readForRequests(now time.Time) {
	x.mu.Lock()
	x.fetching = append(x.fetching[:0], x.wanted...)
	x.wanted = x.wanted[:0]
	x.mu.Unlock()
	for _, c := range x.fetching {
		if node := x.config.Nodes.NodeOf(c.Source); node >= 0 {
			oldest, newest := x.config.Counters.Groups(c.Rule, now, x.config.Secret.Phase(c.Source))
			epoch := x.config.Operators.Epoch(c.Rule, c.Source)
			name := x.config.Secret.CounterName(c, epoch)
			x.add(node, waited, &name, groups{counter: c, epoch: epoch, oldest: oldest,
				newest: newest})
			x.readOlder(waited, c, epoch)
		}
	}
	x.sendReads(waited)
}
