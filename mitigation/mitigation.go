// Package mitigation holds who is blocked, until when, since when, by whom and why.
//
// A mitigation bit says that all requests of a source under a rule are refused until a known end. An edge that knows of one
// asks nobody about that source until then, so an attack makes the limiter cheaper. Bits come from this edge's own
// verdicts, from the PoP, and from operators; a second start never shortens a first. The table is bounded: when it is
// full, the bit that would have ended first is dropped, and its source is counted again.
//
// Nothing here does I/O, starts a goroutine or reads a clock. Ends are held against the monotonic clock where the given
// times have one, so a step of the wall clock neither lengthens nor ends a block.
package mitigation

import (
	"hash/maphash"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter"
)

// MaxTimeout is the longest mitigation.
const MaxTimeout = 24 * time.Hour

// By says who started a mitigation.
type By uint8

const (
	ByEdge  By = iota // this edge's own verdict
	ByPoP             // learned: another edge's verdict, or the PoP's total
	ByAdmin           // an operator
)

func (b By) String() string { return [...]string{"edge", "pop", "admin"}[b] }

// Key is who is mitigated under which rule (counter.Rule.ID).
type Key = counter.Key

// Bit is one mitigation.
type Bit struct {
	Start   time.Time // when the verdict fell, on the clock of the edge that gave it
	End     time.Time // requests from then on are counted again
	Learned time.Time // when it came into force in this table; Start sets it
	By      By
	Reason  string // for people; empty for a verdict
}

// News is what happened at this edge and the PoP has yet to be told of: a bit that was started or, without End, one that an
// operator lifted.
type News struct {
	Key Key
	Bit Bit
}

// maxNews bounds the news that wait. More are dropped: other edges then learn of the bits at first sight of their sources.
const maxNews = 1 << 16

// Table holds bits. It is safe for concurrent use.
type Table struct {
	// Observe, if not nil, is called with every bit that comes into force. Set it before the table is used; it must not block or
	// call back.
	Observe func(Key, Bit)

	seed   maphash.Seed
	n      atomic.Int64 // bits in all shards, changed with a shard's lock held: 0 most of the time
	shards [64]shard
	news   struct {
		mu   sync.Mutex
		list []News
	}
	wake func()

	startedMu sync.Mutex
	started   map[Started]uint64
}

type shard struct {
	mu   sync.RWMutex
	n    atomic.Int32 // len(bits), read without the lock: most shards are empty most of the time
	max  int
	bits map[Key]Bit
	_    [64]byte // a shard's lock and its neighbour's do not share a cache line
}

// Started labels a count of mitigations.
type Started struct {
	Rule uint32
	By   By
}

// New makes a table for so many bits; 0 means 1,000,000. wake is called when there is news for the PoP and must not block; nil
// means that there is nobody to tell.
func New(capacity int, wake func()) *Table {
	if capacity <= 0 {
		capacity = 1_000_000
	}
	t := &Table{seed: maphash.MakeSeed(), wake: wake, started: make(map[Started]uint64)}
	for i := range t.shards {
		t.shards[i].max = max(capacity/len(t.shards), 1)
		t.shards[i].bits = make(map[Key]Bit)
	}
	return t
}

// End is when a mitigation that a verdict starts at now should end: after the timeout, or when the source would be admitted
// again if that is later, so that a client who waits as long as it was told is served. The zero Time means that no mitigation
// starts: the rule only throttles.
func End(v counter.Verdict, timeout time.Duration, now time.Time) time.Time {
	if !v.Over || timeout <= 0 {
		return time.Time{}
	}
	return now.Add(max(timeout, v.RetryAfter))
}

func (t *Table) shard(k Key) *shard {
	var b [counter.SourceSize]byte
	return &t.shards[maphash.Bytes(t.seed, k.Source.AppendBinary(b[:0]))%uint64(len(t.shards))]
}

// Until returns when the mitigation of k ends, or the zero Time if it is not mitigated at now.
//
// It is asked about every request, and nearly always nobody is mitigated: then it costs one load of a number that seldom
// changes, which every processor has in its cache.
func (t *Table) Until(k Key, now time.Time) time.Time {
	if t.n.Load() == 0 {
		return time.Time{}
	}
	s := t.shard(k)
	if s.n.Load() == 0 {
		return time.Time{}
	}
	s.mu.RLock()
	end := s.bits[k].End
	s.mu.RUnlock()
	if !now.Before(end) {
		return time.Time{}
	}
	return end
}

// Get returns the bit of k if it is in force at now.
func (t *Table) Get(k Key, now time.Time) (Bit, bool) {
	s := t.shard(k)
	if s.n.Load() == 0 {
		return Bit{}, false
	}
	s.mu.RLock()
	b, ok := s.bits[k]
	s.mu.RUnlock()
	if !ok || !now.Before(b.End) {
		return Bit{}, false
	}
	return b, true
}

// Start mitigates k until b.End and reports whether that was news: it was not in force, or ends later now. It never shortens
// a mitigation. Bits ByEdge and ByAdmin that are news wait in News.
func (t *Table) Start(k Key, b Bit, now time.Time) bool {
	if !now.Before(b.End) {
		return false
	}
	s := t.shard(k)
	s.mu.Lock()
	old, was := s.bits[k]
	was = was && now.Before(old.End)
	if was && !b.End.After(old.End) {
		s.mu.Unlock()
		return false
	}
	b.Learned = now
	if was {
		b.Start, b.Learned = old.Start, old.Learned
	}
	if _, there := s.bits[k]; !there && len(s.bits) >= s.max {
		s.makeRoom(now)
	}
	s.bits[k] = b
	t.counted(s)
	s.mu.Unlock()

	t.startedMu.Lock()
	if !was {
		t.started[Started{k.Rule, b.By}]++
	}
	t.startedMu.Unlock()
	if t.Observe != nil {
		t.Observe(k, b)
	}
	if b.By != ByPoP {
		t.tell(News{k, b})
	}
	return true
}

func (t *Table) tell(n News) {
	if t.wake == nil {
		return
	}
	t.news.mu.Lock()
	if len(t.news.list) < maxNews {
		t.news.list = append(t.news.list, n)
	}
	t.news.mu.Unlock()
	t.wake()
}

// makeRoom drops what has ended or, if nothing has, the bit among a few that ends first.
func (s *shard) makeRoom(now time.Time) {
	var first Key
	var end time.Time
	seen := 0
	for k, b := range s.bits { // begins at a random place
		if !now.Before(b.End) {
			delete(s.bits, k)
			return
		}
		if seen == 0 || b.End.Before(end) {
			first, end = k, b.End
		}
		if seen++; seen == 16 {
			break
		}
	}
	delete(s.bits, first)
}

// Lift ends the mitigation of k and reports whether there was one. Lifted by an operator, it is news for the PoP even if
// there was none here.
func (t *Table) Lift(k Key, by By, now time.Time) bool {
	s := t.shard(k)
	s.mu.Lock()
	_, ok := s.bits[k]
	delete(s.bits, k)
	t.counted(s)
	s.mu.Unlock()
	if by == ByAdmin {
		t.tell(News{k, Bit{Start: now, By: by}})
	}
	return ok
}

// News appends to buf what this edge started since the last call, and returns it.
func (t *Table) News(buf []News) []News {
	t.news.mu.Lock()
	defer t.news.mu.Unlock()
	buf = append(buf, t.news.list...)
	clear(t.news.list)
	t.news.list = t.news.list[:0]
	return buf
}

// Sweep forgets bits that have ended. Call it about once a second.
func (t *Table) Sweep(now time.Time) {
	for i := range t.shards {
		s := &t.shards[i]
		if s.n.Load() == 0 {
			continue
		}
		s.mu.Lock()
		for k, b := range s.bits {
			if !now.Before(b.End) {
				delete(s.bits, k)
			}
		}
		t.counted(s)
		s.mu.Unlock()
	}
}

// counted makes the counts that are read without a lock true again. s is locked.
func (t *Table) counted(s *shard) {
	n := int32(len(s.bits))
	t.n.Add(int64(n - s.n.Swap(n)))
}

// All ranges over the bits in force at now, in no order. The table must not be changed from within.
func (t *Table) All(now time.Time) iter.Seq2[Key, Bit] {
	return func(yield func(Key, Bit) bool) {
		for i := range t.shards {
			if !t.shards[i].each(now, yield) {
				return
			}
		}
	}
}

func (s *shard) each(now time.Time, yield func(Key, Bit) bool) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for k, b := range s.bits {
		if now.Before(b.End) && !yield(k, b) {
			return false
		}
	}
	return true
}

// Forget drops the counts of rules that are gone, so that there are never more than rules. kept says which are not.
func (t *Table) Forget(kept func(rule uint32) bool) {
	t.startedMu.Lock()
	defer t.startedMu.Unlock()
	for k := range t.started {
		if !kept(k.Rule) {
			delete(t.started, k)
		}
	}
}

// Started returns how many mitigations have begun, by rule and by whom.
func (t *Table) Started() map[Started]uint64 {
	t.startedMu.Lock()
	defer t.startedMu.Unlock()
	out := make(map[Started]uint64, len(t.started))
	for k, n := range t.started {
		out[k] = n
	}
	return out
}
