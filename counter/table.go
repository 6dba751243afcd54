package counter

import (
	"sluice/counter/algorithm"
	"sluice/counter/internal/histogram"
	"sluice/counter/internal/lanes"
	"sluice/counter/internal/records"
	"sluice/counter/internal/unconfirmed"
)

// Table holds counters, and the operations that requests need. It is safe for concurrent use; a
// call touches one shard, the source's, unless its rules are asked about several sources.
type Table struct{ core }

// Reports is the side of a Table that faces the tier (pop): which counters have hits to report, and
// what answers and other edges bring. Requests need none of its methods.
type Reports struct{ *core }

// Reports returns the side of the table that faces the tier.
func (t *Table) Reports() Reports { return Reports{&t.core} }

// Key names a counter: what a rule, known by its ID, counts of a source.
type Key struct {
	Source Source
	Rule   uint32
}

// New makes a table.
func New(o Options) *Table {
	if o.Counters <= 0 {
		o.Counters = 1_000_000
	}
	n := 1
	for n < maxShards && o.Counters/n > perShard {
		n *= 2
	}
	t := &Table{core{options: o, began: o.Began.UnixNano(), hasher: NewHasher(o.Seed),
		shards: make([]shard, n)}}
	t.narrow = records.New(n, (o.Counters+n-1)/n, lanes.NarrowGroups)
	t.wide = records.New(n, (o.Counters/16+n-1)/n, lanes.MaxGroups)
	for i := range t.shards {
		s := &t.shards[i]
		s.narrow, s.wide = store{t.narrow.Shard(i)}, store{t.wide.Shard(i)}
		s.bit, s.dirtyShards, s.activeShards = 1<<(i%64), &t.dirtyShards[i/64],
			&t.activeShards[i/64]
		s.histograms = histogram.NewSet(o.Counters / n / histogramShare)
		s.unconfirmed = unconfirmed.NewSet(o.Counters / n)
	}
	t.edges.Store(1)
	return t
}

// prefetch fetches what a shard will look at to find a counter.
func (t *Table) prefetch(r *algorithm.Spec, hash uint64) {
	if r.Wide() {
		t.wide.Prefetch(t.shardIndex(hash), hash, r.ID)
	} else {
		t.narrow.Prefetch(t.shardIndex(hash), hash, r.ID)
	}
}
