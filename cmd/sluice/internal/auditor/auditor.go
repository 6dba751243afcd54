// Package auditor brings together what the edges of a PoP noted of watched sources, and has one of them judge it.
//
//	every edge     audit.Audit ---> a batch each Interval, an item in the tier ---+
//	the oldest     exactlog.Judge <--- all edges' batches, two seconds later <----+
//
// The oldest edge by presence judges, so it stays the same as others come and go; if two take themselves for the oldest
// for a moment, both count what they find. One that begins to judge lacks the hits before.
//
// It costs one set per edge, and one get of all their items by the oldest, in Interval, whatever clients do: no request waits for it, and
// none causes a command of it. What a request causes is bytes: an entry of a batch, if its source is watched. Items are bounded by
// exactlog.MaxSize, and live for a minute. All go to one node, not to those of the sources: so it is seen when edges do not agree on a
// source's node.
package auditor

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/edge/audit"
	"sluice/edge/audit/exactlog"
	"sluice/pop/presence"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

const (
	lives = 60                     // seconds, of an item
	again = 500 * time.Millisecond // later a batch is looked for once more that was not there
	// settled is how long before the end of an interval everything that was decided is in its batch, however busy an edge is.
	settled = 500 * time.Millisecond
)

// Tier is what is needed of the PoP, as functions.
type Tier struct {
	Secret secret.Secret
	Do     func(context.Context, wire.Command) wire.Result
	Nodes  func() []string // by the index that commands name
	Up     func() []bool   // likewise
	Edges  func() []presence.Edge
}

// Auditor is one edge's part. Its fields but those of mu are set before Run.
type Auditor struct {
	Notes *audit.Audit
	ID    uint64          // of this edge
	Tier  *Tier           // nil: it counts alone, and judges what it noted itself
	Rules func() []string // that are in force

	mu       sync.Mutex
	judge    exactlog.Judge
	judges   bool
	read     int64           // the interval whose batches were judged last
	known    map[uint64]bool // edges whose batches came; false: it has ended
	commands uint64          // to the tier
	left     bool
}

// Inherits says that counters have, or get until then, hits of the process that this one replaces.
func (a *Auditor) Inherits(until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.judge.Missing(until.UnixMicro())
}

// Run works until ctx is done.
func (a *Auditor) Run(ctx context.Context) {
	const half = exactlog.Interval / 2
	for {
		next := time.Now().Truncate(half).Add(half) // Interval is a whole number of seconds, so halves begin with the clock's
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		switch number := exactlog.NumberOf(next) - 1; {
		case next.Truncate(exactlog.Interval).Equal(next): // it has ended
			a.write(ctx, number, time.Now(), false)
		case a.Tier != nil:
			a.gather(ctx, number)
		}
	}
}

// Leave gives away what was noted last, for an edge that ends.
func (a *Auditor) Leave(ctx context.Context) {
	now := time.Now()
	a.write(ctx, exactlog.NumberOf(now), now, true)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
}

// write sends a batch to the judging edge.
func (a *Auditor) write(ctx context.Context, number int64, now time.Time, last bool) {
	a.mu.Lock()
	left := a.left
	a.mu.Unlock()
	if left {
		return
	}
	b := a.Notes.Take(number, now)
	b.Edge, b.Last = a.ID, last
	if a.Tier == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.judge.Add(b)
		a.judge.Advance(b.Ends())
		return
	}
	item := a.Tier.Secret.Seal(secret.Audit, b.Append(nil))
	for range 2 { // a busy machine may miss a deadline
		for _, node := range a.nodes() {
			if r := a.do(ctx, wire.Command{Node: node, Op: wire.Set, Key: a.Tier.Secret.AuditKey(a.ID, number), Value: item, Expire: lives, Way: wire.List}); r.Status == wire.Done {
				return
			}
		}
	}
}

func (a *Auditor) do(ctx context.Context, c wire.Command) wire.Result {
	a.mu.Lock()
	a.commands++
	a.mu.Unlock()
	return a.Tier.Do(ctx, c)
}

// nodes are those that are up, in an order on which edges agree.
func (a *Auditor) nodes() (up []int) {
	names := a.Tier.Nodes()
	for i, is := range a.Tier.Up() {
		if is && i < len(names) {
			up = append(up, i)
		}
	}
	slices.SortFunc(up, func(i, k int) int { return strings.Compare(names[i], names[k]) })
	return up
}

// oldest is the edge that judges: one that does not publish since when it runs is taken for young.
func oldest(edges []presence.Edge) uint64 {
	age := func(e presence.Edge) int64 {
		if e.Started.IsZero() {
			return math.MaxInt64
		}
		return e.Started.UnixNano()
	}
	return slices.MinFunc(edges, func(x, y presence.Edge) int { return cmp.Or(cmp.Compare(age(x), age(y)), cmp.Compare(x.ID, y.ID)) }).ID
}

// gather has the batches of an interval judged, if this edge is to.
func (a *Auditor) gather(ctx context.Context, number int64) {
	edges := a.Tier.Edges()
	a.mu.Lock()
	starts := (&exactlog.Batch{Number: number}).Starts()
	switch judges := len(edges) > 0 && oldest(edges) == a.ID; {
	case !judges:
		a.judge.Begin(0) // the next judge starts without state
		a.judges, a.known = false, nil
		a.mu.Unlock()
		return
	case !a.judges:
		a.judge.Begin(starts)
		a.judges, a.known = true, make(map[uint64]bool)
	case a.read != number-1: // this process was stopped, or the clock
		a.judge.Missing(starts)
	}
	a.read = number
	ids := make([]uint64, 0, len(edges)+len(a.known))
	started := make(map[uint64]time.Time, len(edges))
	for _, e := range edges {
		started[e.ID] = e.Started
		ids = append(ids, e.ID)
	}
	for id, lives := range a.known {
		if lives {
			ids = append(ids, id)
		}
	}
	a.mu.Unlock()
	slices.Sort(ids)
	ids = slices.Compact(ids)
	batches := make([]*exactlog.Batch, len(ids))
	a.fetch(ctx, ids, number, batches)
	if slices.Contains(batches, nil) {
		again := time.NewTimer(again)
		select {
		case <-ctx.Done():
		case <-again.C:
		}
		a.fetch(ctx, ids, number, batches)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	for i, b := range batches {
		a.take(ids[i], started[ids[i]], b, number)
	}
	for id := range a.known { // an edge that presence has lost is forgotten
		if !slices.ContainsFunc(edges, func(e presence.Edge) bool { return e.ID == id }) {
			delete(a.known, id)
		}
	}
	a.judge.Advance((&exactlog.Batch{Number: number}).Ends() - settled.Microseconds())
}

// take takes in an edge's batch; nil: there is none, so its hits are missing if it ran in the interval and had not ended. An edge that watches
// other sources has not noted the hits of ours.
func (a *Auditor) take(id uint64, started time.Time, b *exactlog.Batch, number int64) {
	ends := (&exactlog.Batch{Number: number}).Ends()
	lives, known := a.known[id]
	if b == nil {
		if lives || !known && started.UnixMicro() < ends {
			a.judge.Missing(ends)
		}
		return
	}
	if !known && b.Began < b.Starts() {
		a.judge.Missing(b.Starts()) // what it noted before was not read
	}
	if b.OneIn == a.Notes.OneIn() {
		a.judge.Add(b)
	} else {
		a.judge.Missing(ends)
	}
	a.known[id] = !b.Last
}

// fetch reads the batches of edges that are not there yet, as far as any node has them.
func (a *Auditor) fetch(ctx context.Context, ids []uint64, number int64, batches []*exactlog.Batch) {
	for _, node := range a.nodes() {
		var wanted []int
		for i := range ids {
			if batches[i] == nil {
				wanted = append(wanted, i)
			}
		}
		for part := range slices.Chunk(wanted, wire.MaxKeys) {
			keys := make([]string, len(part))
			for k, i := range part {
				keys[k] = a.Tier.Secret.AuditKey(ids[i], number)
			}
			r := a.do(ctx, wire.Command{Node: node, Op: wire.Get, Key: strings.Join(keys, " "), Way: wire.List})
			if r.Status != wire.Done {
				continue
			}
			for k, i := range part {
				batches[i] = a.open(r.Values[k], ids[i], number)
			}
		}
	}
}

// open reads an item. What is not authentic, or another's, is not there.
func (a *Auditor) open(item []byte, id uint64, number int64) *exactlog.Batch {
	in, ok := a.Tier.Secret.Open(secret.Audit, item)
	if !ok {
		return nil
	}
	b, err := exactlog.ReadBatch(in.Rest())
	if err != nil || b.Edge != id || b.Number != number {
		return nil
	}
	return b
}
