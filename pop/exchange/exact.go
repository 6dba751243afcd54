package exchange

import (
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/counter/exact"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

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
