package records

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// user is a table as counter uses it: a shard is chosen, locked, asked for a record of each class, and these are written to.
type user struct {
	table  *Table
	shards []Shard
	locks  []sync.Mutex
	ids    [][16]byte // in random order
	hashes []uint64
	class  uint32 // so many
	next   int
}

func newUser(table *Table, shards, ids int, classes uint32) *user {
	u := &user{table: table, shards: make([]Shard, shards), locks: make([]sync.Mutex, shards), class: classes}
	for i := range u.shards {
		u.shards[i] = table.Shard(i)
	}
	for _, n := range rand.Perm(ids) {
		hash, id, _, _ := key(uint32(n), 0)
		u.ids, u.hashes = append(u.ids, *id), append(u.hashes, hash)
		s := &u.shards[hash>>32%uint64(shards)]
		for class := range classes {
			s.Insert(hash, id, class, 1, nothing)
			grow(s)
		}
	}
	return u
}

// use asks for records of so many IDs and says how long one of them took.
func (u *user) use(n int, prefetch bool) float64 {
	begin := time.Now()
	for range n {
		u.next = (u.next + 7919) % len(u.ids) // another order than they were made in
		id, hash := &u.ids[u.next], u.hashes[u.next]
		at := int(hash >> 32 % uint64(len(u.shards)))
		if prefetch {
			for class := range u.class {
				u.table.Prefetch(at, hash, class)
			}
		}
		s := &u.shards[at]
		u.locks[at].Lock()
		for class := range u.class {
			if i, ok := s.Find(hash, id, class, 1); ok {
				s.Numbers(i)[0]++
			}
		}
		u.locks[at].Unlock()
	}
	return float64(time.Since(begin)) / float64(n)
}

// paired runs two forms of the same in turn, many times, and reports the median of each, and by how much of the first the second is less in
// the median of all pairs: whatever else the machine does meanwhile, it does to both.
func paired(b *testing.B, without, with func(n int) float64) {
	const turn = 500
	var offs, ons, saved []float64
	b.ResetTimer()
	for i := 0; i < b.N; i += 2 * turn {
		var off, on float64
		if i/turn/2%2 == 0 {
			off, on = without(turn), with(turn)
		} else {
			on, off = with(turn), without(turn)
		}
		offs, ons, saved = append(offs, off), append(ons, on), append(saved, 100*(off-on)/off)
	}
	median := func(x []float64) float64 { slices.Sort(x); return x[len(x)/2] }
	b.ReportMetric(median(offs), "ns-without")
	b.ReportMetric(median(ons), "ns-with")
	b.ReportMetric(median(saved), "%-saved")
}

func sizes(b *testing.B, f func(b *testing.B, shards, ids int, classes uint32)) {
	for _, ids := range []int{10_000, 100_000, 1_000_000} {
		for _, classes := range []uint32{1, 3} {
			b.Run(fmt.Sprintf("ids=%d/classes=%d", ids, classes), func(b *testing.B) { f(b, min(512, ids/1000), ids, classes) })
		}
	}
}

// BenchmarkPrefetch is what Prefetch saves who then locks the shard and finds and writes to records.
func BenchmarkPrefetch(b *testing.B) {
	sizes(b, func(b *testing.B, shards, ids int, classes uint32) {
		u := newUser(New(shards, ids*int(classes)/shards, 4), shards, ids, classes)
		paired(b, func(n int) float64 { return u.use(n, false) }, func(n int) float64 { return u.use(n, true) })
	})
}

// BenchmarkHugePages is the same for huge pages.
func BenchmarkHugePages(b *testing.B) {
	sizes(b, func(b *testing.B, shards, ids int, classes uint32) {
		small := newUser(layout(shards, ids*int(classes)/shards, 4), shards, ids, classes)
		huge := newUser(New(shards, ids*int(classes)/shards, 4), shards, ids, classes)
		paired(b, func(n int) float64 { return small.use(n, true) }, func(n int) float64 { return huge.use(n, true) })
	})
}
