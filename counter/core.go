package counter

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"sluice/counter/algorithm"
	"sluice/counter/internal/elsewhere"
	"sluice/counter/internal/histogram"
	"sluice/counter/internal/records"
	"sluice/counter/internal/unconfirmed"
)

// core is the counters of a Table, and what both of its sides do with them: deciding about requests
// (Table), and carrying reports and answers (Reports).
type core struct {
	options Options
	began   int64        // Options.Began on the wall clock, ns
	offset  atomic.Int64 // the shards'
	missed  atomic.Int64 // when something of the mitigation log was missed, 0: never
	// With a seed of this process, so that no client can aim at one bucket
	hasher Hasher
	shards []shard
	narrow *records.Table
	wide   *records.Table
	edges  atomic.Uint32
	// *algorithm.Spec by its ID: those that have counters, to find the rule of a counter by its ID
	rules sync.Map
	// What decisions read, and what changes with the hits, on other cache lines
	_            [64]byte
	dirtyShards  shardSet // see shard
	activeShards shardSet
	turn         atomic.Uint32 // the shard that Dirty looks at next
}

const (
	maxShards = 1024 // so many that two processors seldom want one lock
	// Counters at most, while there are fewer shards; with few, chance fills some much more than
	// others
	perShard = 2048
)

// A shardSet has a bit for each shard.
type shardSet [maxShards / 64]atomic.Uint64

// A shard is a lock and what it guards. All counters of a source are in one shard.
type shard struct {
	guarded
	_ [64 - unsafe.Sizeof(guarded{})%64]byte // the next shard is on another cache line
}

type guarded struct {
	narrow store
	wide   store
	// What a decision only reads is on other cache lines than the lock, which travels
	_      [64 - 2*unsafe.Sizeof(store{})%64]byte
	mu     sync.Mutex
	offset int64 // from the table's clock to the wall's, ns: see Adjust
	grows  bool  // a page should be split
	wakes  bool  // hits have begun to wait since it was last unlocked
	// What is on its way to the tier, or held; its first fields are those that decisions read
	unconfirmed unconfirmed.Set
	dirty       []uint16 // entries that wait to be taken
	// The shard's in the words below, so that a shard without work is not locked
	bit          uint64
	dirtyShards  *atomic.Uint64 // dirty is not empty
	activeShards *atomic.Uint64 // there may be an entry, or a request waits
	histograms   histogram.Set  // of the sources that are worth it
	waiting      map[Key]chan struct{}
	stats        Stats
	otherPoPs    elsewhere.Set[Key]
}

// Stats is what a Table has done and holds.
type Stats struct {
	Counters   int    // in the table
	Capacity   int    // how many there is room for
	Evicted    uint64 // counters that made room for others
	Unreported uint64 // hits that the tier has not confirmed
	// Hits that never reach the tier, by reason. This table still counts them.
	LostUnknown   uint64 // sent, and no answer came
	LostFull      uint64 // the tier had no memory for them
	LostExpired   uint64 // their sub-window left the window before they could be sent
	LostBacklog   uint64 // too many sources had unreported hits
	LostSaturated uint64 // their lane in the tier is full
	LostEvicted   uint64 // their counter made room for another
	Bytes         int    // of memory that the counters take, with all that belongs to them
}

// SetEdges sets how many edges share the counters: the more there are, the sooner a hit must be
// reported.
func (t *core) SetEdges(n int) { t.edges.Store(uint32(min(max(n, 1), MaxEdges))) }

// hash returns the hash of a source. Its upper half, the same for all rules, chooses the shard.
func (t *core) hash(s *Source) uint64 { return t.hasher.Of(s) }

func (t *core) shard(hash uint64) *shard { return &t.shards[t.shardIndex(hash)] }

func (t *core) shardIndex(hash uint64) int { return int(hash >> 32 & uint64(len(t.shards)-1)) }

// know notes a rule. It may replace one with the same counters and another limit: a limit that
// comes with a request is a new rule each time.
func (t *core) know(r *algorithm.Spec) {
	if t.rule(r.ID) != r {
		t.rules.Store(r.ID, r)
	}
}

// rule is the one with an ID that has counters, or nil.
func (t *core) rule(id uint32) *algorithm.Spec {
	r, _ := t.rules.Load(id)
	known, _ := r.(*algorithm.Spec)
	return known
}

// Keep forgets the rules that are not in force any more, so that there are never more than were in
// force together. Their counters are the first to be evicted. kept reports by ID which rules are in
// force.
func (t *core) Keep(kept func(rule uint32) bool) {
	for id := range t.rules.Range {
		if !kept(id.(uint32)) {
			t.rules.Delete(id)
		}
	}
}

func (s *shard) store(r *algorithm.Spec) *store {
	if r.Wide() {
		return &s.wide
	}
	return &s.narrow
}

// Stats adds up the shards.
func (t *core) Stats() (sum Stats) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		sum.Counters += s.narrow.Len() + s.wide.Len()
		sum.Capacity += s.narrow.Cap()
		sum.Evicted += s.stats.Evicted
		sum.Unreported += s.unconfirmed.Hits
		sum.LostUnknown += s.stats.LostUnknown
		sum.LostFull += s.stats.LostFull
		sum.LostExpired += s.stats.LostExpired
		sum.LostBacklog += s.stats.LostBacklog
		sum.LostSaturated += s.stats.LostSaturated
		sum.LostEvicted += s.stats.LostEvicted
		sum.Bytes += s.narrow.Bytes() + s.wide.Bytes() + s.unconfirmed.Bytes() +
			s.histograms.Bytes() + 2*cap(s.dirty)
		s.mu.Unlock()
	}
	return sum
}

// Unreported is Stats.Unreported alone, found faster.
func (t *core) Unreported() (hits uint64) {
	for i := range t.shards {
		if s := &t.shards[i]; s.activeShards.Load()&s.bit != 0 {
			s.mu.Lock()
			hits += s.unconfirmed.Hits
			s.mu.Unlock()
		}
	}
	return hits
}

// split gives stores that should grow one more page, to which counters move, and with them what
// belongs to them.
func (s *shard) split(t *core) {
	s.grows = false
	for _, st := range [...]*store{&s.narrow, &s.wide} {
		if !st.Crowded() {
			continue
		}
		var room records.Moves
		moves := st.Split(func(id [16]byte, kind uint8) uint64 { return t.hash(&Source{id, kind}) },
			&room)
		// First all histograms are taken out, because their slots may be others' new ones
		for k := range moves {
			if m := &moves[k]; headOf(&m.Head).state&hasHistogram != 0 {
				m.From = s.histograms.Unlink(m.From, st == &s.wide)
			}
		}
		for k := range moves {
			m := &moves[k]
			h := headOf(&m.Head)
			if m.To < 0 {
				s.evicted(h)
				continue
			}
			if h.unconfirmed != 0 {
				s.unconfirmed.At(h.unconfirmed).Slot = int32(m.To)
			}
			if h.state&hasHistogram != 0 {
				s.histograms.Link(m.From, m.To, st == &s.wide)
			}
		}
	}
}
