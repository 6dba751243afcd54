// Package exchange sends what requests wait for to the tier. There are three kinds of it, and one
// mechanism: send the command, take in the answer, and the table that has the requests wakes those
// that wait.
//
//	reads      what the PoP has counted of a source that this edge does not know, under check: sync or at first sight. What reports
//	           ask of older groups goes the same way
//	in flight  how many requests of a source are under way at all edges, and how many at this one (package counter/inflight)
//	exact      admitted requests that the tier keeps each by itself (package counter/exact)
//
// Step sends what is due; Answered takes in an answer, and may send what follows. Nothing here does
// I/O or reads a clock: commands go to Config.Send.
package exchange

import (
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/mitigation"
	"sluice/pop/announcement"
	"sluice/pop/operators"
	"sluice/pop/placement"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// Config is what Exchanges work with.
type Config struct {
	Secret    secret.Secret
	Counters  counter.Reports
	InFlight  *inflight.Table // nil: they are not counted
	Exact     *exact.Table    // nil: no rule keeps requests in the tier
	Operators *operators.List
	Nodes     *placement.Nodes
	Announcer *announcement.Announcer // learns what reads bring
	Send      func(wire.Command, Request)
}

// Request is what a command was sent for, and comes back in Answered.
type Request struct {
	kind  kind
	part  uint32             // of inFlight
	reads *reads             // of read, waited, stale
	parts *inflight.Exchange // of inFlight
	exact *exact.Exchange    // of exactRead, exactWrite
}

type kind uint8

const (
	unheeded kind = iota // what is added only to exist; the answer is not used
	read                 // by a report
	waited               // a read that a request waits for
	stale                // a read of an earlier time on the wall clock
	inFlight
	exactRead
	exactWrite
)

// Read reports whether it is a read of counters, which reports pay for (announcement.Budget).
func (a *Request) Read() bool { return a.reads != nil }

// ClockStepped says that the wall clock has stepped since it was sent.
func (a *Request) ClockStepped() {
	if a.reads != nil {
		a.kind = stale
	}
}

const (
	// Exchanges of a Step; a node carries out its commands one after the other
	atOnce = 256
	behind = time.Millisecond // between two Steps that send the rest of one
)

// Exchanges are those of one edge. Fetch, SetRules and Forged may be called from anywhere, all else
// belongs to one goroutine.
type Exchanges struct {
	config Config
	arena  wire.Arena
	edges  int // that share the tier
	forged atomic.Uint64

	mu     sync.Mutex
	wanted []counter.Counter // that requests wait for; mu guards it

	fetching []counter.Counter // of a Step
	open     []*reads          // by node: to be sent; nil: none
	spare    []*reads

	parts []*inflight.Exchange // of a Step
	known *[]bool              // the health of nodes at the last; nil: all is to be said anew

	kept keeper
}

// New makes Exchanges under no rules.
func New(c Config) *Exchanges {
	x := &Exchanges{config: c}
	x.SetRules(nil)
	return x
}

// SetRules replaces the rules in force.
func (x *Exchanges) SetRules(rules []mitigation.Rule) {
	ids := []string{}
	for _, r := range rules {
		if r.Exact != nil {
			ids = append(ids, r.Exact.ID)
		}
	}
	x.kept.rules.Store(&ids)
}

// SetEdges sets how many edges share the tier.
func (x *Exchanges) SetEdges(n int) { x.edges = n }

// ClockStepped takes in that the wall clock has stepped: edges say what is in flight in other
// numbers now, one after the other.
func (x *Exchanges) ClockStepped() { x.known = nil }

// Step sends what is due.
func (x *Exchanges) Step(now time.Time) {
	x.readForRequests(now)
	x.writeInFlight(now)
	x.exchangeExact(now)
}

// Answered takes in an answer.
func (x *Exchanges) Answered(a Request, r *wire.Result, now time.Time) {
	switch a.kind {
	case read, waited, stale:
		x.readsDone(a, r, now)
	case inFlight:
		outcome := [...]inflight.Outcome{wire.Done: inflight.Counted,
			wire.NotThere: inflight.Missing, wire.Unsent: inflight.Unsent,
			wire.Unknown: inflight.Unknown}[r.Status]
		x.config.InFlight.Answered(a.parts, int(a.part), outcome, r.Number)
	case exactRead:
		x.exactRead(a.exact, r, now)
	case exactWrite:
		outcome := [...]exact.Outcome{wire.Done: exact.Stored, wire.NotThere: exact.Conflict,
			wire.Unsent: exact.Unsent, wire.Unknown: exact.Unknown}[r.Status]
		x.config.Exact.Written(a.exact, outcome, x.wall(now))
	}
}

// Waiting reports whether there is something to send.
func (x *Exchanges) Waiting() bool {
	return x.config.InFlight != nil && x.config.InFlight.Waiting() || x.config.Exact != nil &&
		x.config.Exact.Waiting()
}

// In is how soon there is more to send, and at most the time given.
func (x *Exchanges) In(least time.Duration, now time.Time) time.Duration {
	if x.config.InFlight != nil && x.config.InFlight.Behind() {
		least = min(least, behind)
	}
	if x.config.Exact != nil {
		least = max(x.config.Exact.In(least, x.wall(now)), min(least, behind))
	}
	return least
}

// Forged is how many values were read that no edge of the PoP wrote.
func (x *Exchanges) Forged() uint64 { return x.forged.Load() }

// wall is the wall clock's reading.
func (x *Exchanges) wall(now time.Time) time.Time { return x.config.Counters.Wall(now) }

// Buckets of instants (package exact) are each on one node of the list, whether or not that is up:
// were they on another while it is down, edges that see it down at different times would count on
// different nodes. So while it is down their requests get no answer, and rules go by their
// postures. Edges with different lists count on different nodes. A bucket that has just come to
// another node is empty, and rules that are closed admit no request by it for a window. So edges
// must get a new list within a window of each other; a list that changes while edges run (package
// placement) is in force for buckets when the transition ends.

const (
	sweepEvery = time.Second

	// All buckets are added once more in this time, by all edges together. What is there stays as
	// it is and is not evicted. One that is made only when it is needed would leave its sources in
	// doubt for a window under a rule that is closed, or is closed later.
	keepEvery = time.Minute
	keepFirst = time.Second // the first time, and after a node was lost or came back
)

// keeper adds buckets.
type keeper struct {
	rules     atomic.Pointer[[]string] // by exact.Spec.ID: those in force,
	under     *[]string                // and those that names are of
	exchanges []*exact.Exchange        // of a Step
	known     *[]bool                  // the health of nodes
	next      int                      // of Buckets times rules
	every     time.Duration
	due       time.Time
	swept     time.Time
	names     map[string]secret.CounterName // of rules
}

// exchangeExact sends the exchanges that requests wait for.
func (x *Exchanges) exchangeExact(now time.Time) {
	t := x.config.Exact
	if t == nil {
		return
	}
	k := &x.kept
	if k.exchanges == nil {
		k.exchanges = make([]*exact.Exchange, 0, atOnce)
	}
	x.keepExact(now)
	k.exchanges = t.Due(k.exchanges[:0], x.wall(now), func(r *exact.Spec, bucket uint32) int {
		if n := x.config.Nodes.Bucket(bucket); n >= 0 && x.config.Nodes.IsUp(n) {
			return n
		}
		return -1
	})
	for _, e := range k.exchanges {
		x.config.Send(wire.Command{Node: e.Node, Op: wire.Gets, Report: true,
			Key: x.exactKey(e.Rule, e.Bucket)}, Request{kind: exactRead, exact: e})
	}
	clear(k.exchanges)
	if now.Sub(k.swept) >= sweepEvery {
		k.swept = now
		t.Sweep(x.wall(now))
	}
}

func (x *Exchanges) exactKey(r *exact.Spec, bucket uint32) string {
	name, known := x.kept.names[r.ID]
	if !known {
		name = x.config.Secret.ExactName(r.ID)
	}
	return x.bucketKey(name, bucket)
}

func (x *Exchanges) bucketKey(name secret.CounterName, bucket uint32) string {
	var room [secret.CounterKeySize]byte
	return x.arena.Write(name.Append(room[:0], bucket))
}

// exactRead has the table take in what a bucket has, and writes what it wants written.
func (x *Exchanges) exactRead(e *exact.Exchange, r *wire.Result, now time.Time) {
	var body []byte
	there, answered := false, r.Status == wire.Done
	if answered && r.Values[0] != nil {
		in, ok := x.config.Secret.OpenAt(secret.Exact, r.Key, r.Values[0])
		if !ok {
			x.forged.Add(1)
		}
		if there = ok; ok {
			body = in.Rest()
		}
	}
	write := x.config.Exact.Read(e, body, there, answered, x.exactTag, x.wall(now))
	if write == nil {
		return
	}
	c := wire.Command{Node: r.Node, Op: wire.Add, Report: true, Key: r.Key,
		Value: x.config.Secret.SealAt(secret.Exact, r.Key, write)}
	if r.Values[0] != nil {
		c.Op, c.Delta = wire.Cas, r.Number
	}
	x.config.Send(c, Request{kind: exactWrite, exact: e})
}

func (x *Exchanges) exactTag(r *exact.Spec, source counter.Source) uint64 {
	return x.config.Secret.ExactTag(r.ID, source, x.config.Operators.Epoch(r.Counter, source))
}

// keepExact adds the next of all buckets.
func (x *Exchanges) keepExact(now time.Time) {
	k := &x.kept
	if rules, known := k.rules.Load(), x.config.Nodes.Known(); rules != k.under ||
		known != k.known {
		if k.under != rules {
			k.names = make(map[string]secret.CounterName, len(*rules))
			for _, id := range *rules {
				k.names[id] = x.config.Secret.ExactName(id)
			}
		}
		k.under, k.known, k.next, k.every, k.due = rules, known, 0, keepFirst, now
	}
	if len(k.names) == 0 {
		return
	}
	for i := 0; !now.Before(k.due) && i < exact.Buckets; i++ {
		k.due = k.due.Add(k.every / exact.Buckets)
		bucket := uint32(k.next)
		if k.next++; k.next == exact.Buckets {
			k.next, k.every = 0, keepEvery*time.Duration(max(x.edges, 1))
		}
		node := x.config.Nodes.Bucket(bucket)
		if node < 0 || !x.config.Nodes.IsUp(node) {
			continue
		}
		for _, name := range k.names {
			key := x.bucketKey(name, bucket)
			x.config.Send(wire.Command{Node: node, Op: wire.Add, Report: true, Key: key,
				Value: x.config.Secret.SealAt(secret.Exact, key,
					exact.Fresh(x.wall(now)))}, Request{})
		}
	}
	if !now.Before(k.due) {
		k.due = now
	}
}

// writeInFlight writes to the tier how many requests are in flight here (package inflight). A
// source's numbers are where its counters are. While edges change from one list of nodes to another
// at different times, they count requests in flight apart.
func (x *Exchanges) writeInFlight(now time.Time) {
	t := x.config.InFlight
	if t == nil {
		return
	}
	if x.parts == nil {
		x.parts = make([]*inflight.Exchange, 0, atOnce)
	}
	known := x.config.Nodes.Known()
	x.parts = t.Due(x.parts[:0], x.wall(now), known != x.known, x.config.Nodes.NodeOf)
	x.known = known
	for _, e := range x.parts {
		name := x.config.Secret.InFlightName(e.Rule, e.Source)
		for i, p := range e.Parts {
			var room [secret.CounterKeySize]byte
			key := x.arena.Write(name.Append(room[:0], p.Epoch))
			if p.Create {
				x.config.Send(wire.Command{Node: e.Node, Op: wire.Add, Report: true, Key: key,
					Value: x.arena.Number(0), Expire: inflight.Lifetime}, Request{})
			}
			c := wire.Command{Node: e.Node, Op: wire.Incr, Report: true, Key: key,
				Delta: uint64(p.Delta)}
			if p.Delta < 0 {
				c.Op, c.Delta = wire.Decr, uint64(-p.Delta)
			}
			x.config.Send(c, Request{kind: inFlight, parts: e, part: uint32(i)})
		}
	}
	clear(x.parts)
}

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
