// Package mitigation holds which sources are blocked, from when until when, started by what and
// why.
//
// A mitigation bit says that all requests of a source under a rule are refused until a known end.
// Until then an edge that knows of one refuses the source without counting and without the tier, so
// an attack makes the limiter cheaper. Bits come from this edge's own verdicts, from the PoP, from
// operators, and from other PoPs. A second verdict never shortens a first; an operator's word
// replaces whatever is in force, and no verdict changes it. The table is bounded: when it is full,
// the bit that would have ended first is dropped, and its source is counted again. Bits that refuse
// nothing (Bit.Shadow) are evicted first, operators' orders last, and none evicts one that is worth
// more.
//
// Nothing here does I/O, starts a goroutine or reads a clock. Ends are held against the monotonic
// clock where the given times have one, so a step of the wall clock neither lengthens nor ends a
// block.
package mitigation

import (
	"iter"
	"maps"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaissmai/bart"

	"sluice/counter"
)

// The story of a block, told in the README, as the tables of edges 1 and 3 have it, under a rule of
// 100 requests a minute that blocks for a minute:
//
//  1. At 12:00:00.000 a request of 192.0.2.7 comes to edge 1. Nobody is blocked: Table.Until is one
//     load of a number.
//  2. The request passes. It is no business of this table.
//  3. Its hit goes to memcached.
//  4. At 12:00:00.002 the answer says 101. Edge 1 starts a bit until 12:01:00.002, or until the
//     source would be within its limit again, if that is later (End, Table.Start): from then on
//     Until says so.
//  5. The Machine of edge 1, which started the bit, writes it to the log. A bit that a request
//     started waits among the unsent until the Machine takes it (Table.TakeUnsent).
//  6. At 12:00:00.018 the Machine of edge 3 reads it there, and starts the same bit in its table,
//     ByPoP. At 12:00:00.020 a request of 192.0.2.7 comes to edge 3: Until says 12:01:00.002, and
//     nothing is counted. At 12:01:00.002 Until says nothing, on both edges, and Sweep forgets it.

// By says what started a mitigation.
type By uint8

const (
	ByEdge  By = iota // this edge's own verdict
	ByPoP             // learned: another edge's verdict, or the PoP's total
	ByAdmin           // an operator
	ByPeer            // another PoP
)

func (b By) String() string { return [...]string{"edge", "pop", "admin", "peer"}[b] }

// Bit is one mitigation.
type Bit struct {
	Start   time.Time // when the verdict fell, on the clock of the edge that gave it
	End     time.Time // requests from then on are counted again
	Learned time.Time // when it came into force in this table; Start sets it
	By      By
	// a verdict of a shadow: it refuses no request
	Shadow bool
	Reason string // for people; empty for a verdict
	Who    string // of ByAdmin: the operator, as he calls himself

	// Memory is how long the bit is remembered after its end, so that a source that comes back can
	// be mitigated for longer (Repeat).
	Memory time.Duration

	Version RuleVersion // that a verdict was reached under; of ByAdmin none
}

// worth orders bits by what is lost with them in a full table.
func (b *common) worth() int {
	switch {
	case b.By == ByAdmin:
		return 2
	case b.Shadow:
		return 0
	}
	return 1
}

// replaces reports whether b replaces a bit that is in force.
func (b *Bit) replaces(old Bit) bool {
	if b.By == ByAdmin {
		return old.By != ByAdmin || !b.End.Equal(old.End) || b.Reason != old.Reason
	}
	return old.By != ByAdmin && b.End.After(old.End)
}

// MaxTimeout is the longest mitigation that a verdict starts.
const MaxTimeout = 24 * time.Hour

// Key is which source is mitigated under which rule (algorithm.Spec.ID).
type Key = counter.Key

// Unsent is a verdict of this edge, or a block that it received from another PoP, that has not been
// sent to its own PoP yet. Operators' orders are not among them: they travel separately, so that an
// attack cannot hold them up.
type Unsent struct {
	Key Key
	Bit Bit
}

// maxUnsent bounds the unsent that wait. More are dropped: other edges then learn of the bits at
// first sight of their sources.
const maxUnsent = 1 << 16

// Table holds bits. It is safe for concurrent use.
type Table struct {
	// of the rules in force, by their IDs; nil: SetVersions has not been called
	versions atomic.Pointer[map[uint32]RuleVersion]
	// Observe, if not nil, is called with every bit that comes into force. Set it before the table
	// is used; it must not block or call back.
	Observe func(Key, Bit)

	hasher counter.Hasher
	some   atomic.Int64 // shards in which a bit may be in force: none, most of the time
	// from which the table's clock goes: when the first bit came, and written before that is there
	began  time.Time
	begin  sync.Once
	anchor atomic.Pointer[anchor]
	shards [64]shard
	sweeps sweep

	commonMu sync.Mutex
	commons  map[common]*common
	unsent   struct {
		mu   sync.Mutex
		list []Unsent
	}
	wake func()
	// unasked, awaited or asked
	asked atomic.Uint32

	evicted  atomic.Uint64
	loosened atomic.Uint64 // see Loosened

	startedMu sync.Mutex
	started   map[Started]uint64

	lifted   lifted
	prefixes prefixes
}

// Started labels a count of mitigations.
type Started struct {
	Rule uint32
	By   By
}

// New makes a table for so many bits; 0 means 1,000,000. A bit takes 100 bytes at most. wake is
// called when there is something to send to the PoP and must not block; nil means that nothing is
// sent.
func New(capacity int, wake func()) *Table {
	if capacity <= 0 {
		capacity = 1_000_000
	}
	t := &Table{hasher: counter.NewHasher(0), wake: wake, started: make(map[Started]uint64),
		commons: make(map[common]*common)}
	for i := range t.shards {
		t.shards[i].max = max(capacity/len(t.shards), 1)
	}
	return t
}

// Seed makes a table that is not in use yet one in which every run is like another: which bits are
// evicted depends on their hashes. It is for simulations; see counter.NewHasher.
func (t *Table) Seed(seed uint64) { t.hasher = counter.NewHasher(seed) }

// End is when a mitigation that a verdict starts at now should end: after the timeout, or when the
// source would be admitted again if that is later, so that a client that waits for its Retry-After
// is served. The zero Time means that no mitigation starts: the rule only throttles, or the source
// is over its limit only by requests that are still under way and may not count.
func End(v counter.Verdict, timeout time.Duration, now time.Time) time.Time {
	if !v.Committed || timeout <= 0 {
		return time.Time{}
	}
	return now.Add(max(timeout, v.RetryAfter))
}

// Capacity is how many bits there is room for.
func (t *Table) Capacity() int {
	n := 0
	for i := range t.shards {
		n += t.shards[i].max
	}
	return n
}

// shardOf gives the shard of a key and the key's hash.
func (t *Table) shardOf(k Key) (*shard, uint32) {
	h := (t.hasher.Of(&k.Source) ^ uint64(k.Rule)) * 0x9e3779b97f4a7c15
	return &t.shards[h>>58], uint32(h>>26) | 1
}

// clock is now by the table's clock. There is a bit, or has been one.
func (t *Table) clock(now time.Time) int64 { return int64(now.Sub(t.began)) }

// anchor is an instant by the wall clock and by the table's. Ends are shown by the wall clock's
// reading, which are the same each time until that steps.
type anchor struct {
	at    time.Time
	clock int64
}

// stepsFrom is how far the wall clock and the table's drift apart before there is another anchor.
const stepsFrom = 200 * time.Millisecond

func (a *anchor) time(clock int64) time.Time { return a.at.Add(time.Duration(clock - a.clock)) }

// follow takes in that the wall clock has stepped.
func (t *Table) follow(now time.Time) {
	if a := t.anchor.Load(); a != nil &&
		now.Round(0).Sub(a.time(t.clock(now)).Round(0)).Abs() >= stepsFrom {
		t.anchor.Store(&anchor{now, t.clock(now)})
	}
}

// maxCommon is how many of what bits have in common are kept for the next to share.
const maxCommon = 1024

// entry is a bit as the table holds it.
func (t *Table) entry(k Key, b *Bit, now time.Time) *entry {
	t.begin.Do(func() {
		t.began = now
		t.anchor.Store(&anchor{at: now})
	})
	at := func(u time.Time) int64 {
		if u.IsZero() {
			return math.MinInt64
		}
		return t.clock(now) + int64(u.Sub(now)) // by the clock of now, whatever u has of it
	}
	return &entry{k, at(b.Start), at(b.End), at(b.Learned), t.common(b)}
}

func (t *Table) common(b *Bit) *common {
	c := common{b.By, b.Shadow, b.Reason, b.Who, b.Memory, b.Version}
	if b.Reason != "" || b.Who != "" {
		return &c
	}
	t.commonMu.Lock()
	defer t.commonMu.Unlock()
	shared := t.commons[c]
	if shared == nil {
		if len(t.commons) >= maxCommon {
			clear(t.commons)
		}
		shared = &c
		t.commons[c] = shared
	}
	return shared
}

// bit is an entry's.
func (t *Table) bit(e *entry) Bit {
	a := t.anchor.Load()
	at := func(u int64) time.Time {
		if u == math.MinInt64 {
			return time.Time{}
		}
		return a.time(u)
	}
	c := e.common
	return Bit{Start: at(e.start), End: at(e.end), Learned: at(e.learned), By: c.By,
		Shadow: c.Shadow, Reason: c.Reason, Who: c.Who, Memory: c.Memory, Version: c.Version}
}

// What is known of requests since Asked was last called.
const (
	unasked uint32 = iota
	awaited        // none has come, and the first calls wake
	asked
)

// noteAsked notes that a request has come. Mostly one has before it, so a request costs a load.
func (t *Table) noteAsked() {
	if t.asked.Swap(asked) == awaited && t.wake != nil {
		t.wake()
	}
}

// Asked reports whether a request has come since Renew was last called. What an edge knows of blocks
// may be older while nobody asks.
func (t *Table) Asked() bool { return t.asked.Load() == asked }

// Renew forgets what Asked says. With await, the next request calls wake.
func (t *Table) Renew(await bool) {
	if await {
		t.asked.Store(awaited)
	} else {
		t.asked.Store(unasked)
	}
}

// Until returns when the mitigation of k ends, or the zero Time if it is not mitigated at now.
//
// It is called for every request, and takes no lock. Nearly always no source is mitigated: then it
// costs one load of a number that seldom changes, which every processor has in its cache.
func (t *Table) Until(k Key, now time.Time) time.Time {
	if t.asked.Load() != asked {
		t.noteAsked()
	}
	if t.some.Load() == 0 {
		return time.Time{}
	}
	s, h := t.shardOf(k)
	if e := s.find(h, k); e != nil {
		if end := t.anchor.Load().time(e.end); now.Before(end) {
			return end
		}
	}
	return time.Time{}
}

// Get returns the bit of k if it is in force at now.
func (t *Table) Get(k Key, now time.Time) (Bit, bool) {
	s, h := t.shardOf(k)
	if e := s.find(h, k); e != nil && t.clock(now) < e.end {
		return t.bit(e), true
	}
	return Bit{}, false
}

// Start mitigates k until b.End and reports whether that changed anything: it was not in force, or
// ends later now, or an operator says otherwise. A verdict never shortens a mitigation, and changes
// none that is ByAdmin; one of this edge that fell before the last Lift of k is void, as is a
// peer's, one under a rule version that holds no more (SetVersions), and what is worth less than
// all that a full table could drop for it. Bits ByEdge that changed something wait for TakeUnsent.
func (t *Table) Start(k Key, b Bit, now time.Time) bool {
	if !now.Before(b.End) {
		t.remember(k, b, now)
		return false
	}
	s, h := t.shardOf(k)
	s.mu.Lock()
	var old Bit
	e := s.find(h, k)
	was := e != nil && t.clock(now) < e.end
	if was {
		old = t.bit(e)
	}
	verdict := b.By == ByEdge || b.By == ByPeer
	if t.invalid(k, b.By, b.Version) || verdict && t.lifted.invalidates(k, b.Start) ||
		was && !b.replaces(old) {
		s.mu.Unlock()
		return false
	}
	again := was && (b.By != ByAdmin || old.By == ByAdmin)
	b.Learned = now
	if was && b.By != ByAdmin {
		b.Start, b.Learned = old.Start, old.Learned
	}
	if !t.put(s, h, t.entry(k, &b, now), now) {
		s.mu.Unlock()
		return false
	}
	s.mu.Unlock()
	if b.By == ByAdmin {
		t.prefixes.note(k.Source, b.End)
		t.loosened.Add(1)
	}

	t.startedMu.Lock()
	if !again {
		t.started[Started{k.Rule, b.By}]++
	}
	t.startedMu.Unlock()
	if t.Observe != nil {
		t.Observe(k, b)
	}
	if b.By == ByEdge {
		t.queue(Unsent{k, b})
	}
	return true
}

// AddPeerBlock is Start for a block of another PoP, which this edge sends to its own PoP like a
// verdict.
func (t *Table) AddPeerBlock(k Key, b Bit, now time.Time) bool {
	b.By = ByPeer
	if !t.Start(k, b, now) {
		return false
	}
	t.queue(Unsent{k, b})
	return true
}

// LiftPeers ends what other PoPs have said.
func (t *Table) LiftPeers() {
	t.dropAll(func(e *entry) bool { return e.common.By == ByPeer })
}

// dropAll drops the entries that are over by what over says.
func (t *Table) dropAll(over func(*entry) bool) {
	defer t.loosened.Add(1)
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock() // whoever has put a bit there by what held before has done so by now
		for e := range s.all() {
			if over(e) {
				_, h := t.shardOf(e.key)
				s.drop(h, e.key)
			}
		}
		s.mu.Unlock()
	}
}

// put puts an entry into a shard, which is locked, and reports whether there was room.
func (t *Table) put(s *shard, h uint32, e *entry, now time.Time) bool {
	before, clock := s.live, t.clock(now)
	if s.find(h, e.key) == nil && s.n >= s.max {
		ok, inForce := s.makeRoom(e.common, clock)
		if !ok {
			return false
		}
		if inForce {
			t.evicted.Add(1)
			t.loosened.Add(1)
		}
	}
	s.put(h, e)
	s.came = s.came || clock < e.end
	s.live = s.live || s.came
	t.counted(s, before)
	return true
}

func (t *Table) queue(n Unsent) {
	if t.wake == nil {
		return
	}
	t.unsent.mu.Lock()
	if len(t.unsent.list) < maxUnsent {
		t.unsent.list = append(t.unsent.list, n)
	}
	t.unsent.mu.Unlock()
	t.wake()
}

// Lift ends the mitigation of k and reports whether there was one. Verdicts of this edge that fell
// until now are void: a request may have been judged by counts that are forgotten, and not have
// started its mitigation yet. So forget the counts first.
func (t *Table) Lift(k Key, now time.Time) bool {
	s, h := t.shardOf(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer t.loosened.Add(1)
	t.lifted.note(k, now)
	return s.drop(h, k)
}

// Invalidate is Lift for verdicts of this edge alone: a mitigation with another cause stays.
func (t *Table) Invalidate(k Key, now time.Time) {
	s, h := t.shardOf(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer t.loosened.Add(1)
	t.lifted.note(k, now)
	if e := s.find(h, k); e != nil && e.common.By == ByEdge && e.start <= t.clock(now) {
		s.drop(h, k)
	}
}

// Resend has all that is in force and was not an operator's order wait for TakeUnsent, up to a
// bound: the tier has it no more, because the PoP has another secret.
func (t *Table) Resend(now time.Time) {
	for k, b := range t.All(now) {
		if b.By != ByAdmin {
			t.queue(Unsent{k, b})
		}
	}
}

// TakeUnsent appends to buf what this edge started since the last call, and returns it.
func (t *Table) TakeUnsent(buf []Unsent) []Unsent {
	t.unsent.mu.Lock()
	defer t.unsent.mu.Unlock()
	buf = append(buf, t.unsent.list...)
	clear(t.unsent.list)
	t.unsent.list = t.unsent.list[:0]
	return buf
}

// Sweep forgets bits that have ended, or are remembered no longer: a slice of the table, which
// takes a fraction of a millisecond. It reports whether there is more of the table to be swept.
// Call it about once a second, until there is no more or, where something else waits, for a slice
// each time: what has ended is in force no more, swept or not.
func (t *Table) Sweep(now time.Time) (more bool) {
	w := &t.sweeps
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shard == 0 && w.slot == 0 {
		t.follow(now)
		t.lifted.sweep(now)
		t.prefixes.sweep(now)
	}
	for left := sweepSlice; w.shard < len(t.shards); w.shard++ {
		s := &t.shards[w.shard]
		if s.slots.Load() == nil {
			continue // most of them, in most tables: nothing has ever been there
		}
		s.mu.Lock()
		before := s.live
		left = s.sweep(w, left, t.clock(now))
		t.counted(s, before)
		s.mu.Unlock()
		if left == 0 {
			return true
		}
	}
	w.shard = 0
	return false
}

// counted makes the count that is read without a lock true again. s is locked, and was live before
// or not.
func (t *Table) counted(s *shard, before bool) {
	switch {
	case !before && s.live:
		t.some.Add(1)
	case before && !s.live:
		t.some.Add(-1)
	}
}

// All ranges over the bits in force at now, in no order. Bits that come or go meanwhile may be
// among them or not.
func (t *Table) All(now time.Time) iter.Seq2[Key, Bit] {
	return func(yield func(Key, Bit) bool) {
		for k, b := range t.Remembered(now) {
			if now.Before(b.End) && !yield(k, b) {
				return
			}
		}
	}
}

// Loosened is another number whenever a bit may have ended before its end, or an operator has given
// an order, which may allow a source: whoever keeps a copy of the bits must read them again then.
func (t *Table) Loosened() uint64 { return t.loosened.Load() }

// Evicted is how many bits were dropped for others before their end.
func (t *Table) Evicted() uint64 { return t.evicted.Load() }

// Forget drops the counts of rules that are gone, so that there are never more than rules. kept
// says which are not.
func (t *Table) Forget(kept func(rule uint32) bool) {
	t.startedMu.Lock()
	defer t.startedMu.Unlock()
	maps.DeleteFunc(t.started, func(k Started, _ uint64) bool { return !kept(k.Rule) })
}

// Started returns how many mitigations have begun, by rule and by cause.
func (t *Table) Started() map[Started]uint64 {
	t.startedMu.Lock()
	defer t.startedMu.Unlock()
	return maps.Clone(t.started)
}

// What an order may name instead of a rule: IDs for Key.Rule that no rule has (algorithm.Reserved).
const (
	AllRules uint32 = math.MaxUint32 - iota // mitigated under every rule
	Allowed                                 // never limited: the bit stands for a permission
	Denied                                  // refused whatever the rules say
	Site                                    // of nobody's source: what is said of the whole site
)

// MaxBlock is the longest that operators may say something for: memcached keeps their list no
// longer.
const MaxBlock = 30 * 24 * time.Hour

// prefixes are those of which operators have said something: sources that may be wider, or
// narrower, than those that rules count. Nearly always there are none, and then looking for them
// costs one load. They say where to look for bits and nothing more: one that stays after its bit
// was lifted does no harm, and goes when that would have ended.
type prefixes struct {
	tree atomic.Pointer[bart.Lite] // immutable; nil: there are none
	mu   sync.Mutex
	ends map[netip.Prefix]time.Time
}

// note remembers the prefix of a source, if it has one.
func (p *prefixes) note(s counter.Source, end time.Time) {
	prefix, ok := s.Prefix()
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ends == nil {
		p.ends = make(map[netip.Prefix]time.Time)
	}
	before, there := p.ends[prefix]
	if there && !end.After(before) {
		return
	}
	if p.ends[prefix] = end; !there {
		tree := p.tree.Load()
		if tree == nil {
			tree = new(bart.Lite)
		}
		p.tree.Store(tree.InsertPersist(prefix))
	}
}

// sweep forgets what has ended.
func (p *prefixes) sweep(now time.Time) {
	if p.tree.Load() == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	tree := p.tree.Load()
	for prefix, end := range p.ends {
		if !now.Before(end) {
			delete(p.ends, prefix)
			tree = tree.DeletePersist(prefix)
		}
	}
	if len(p.ends) == 0 {
		tree = nil
	}
	p.tree.Store(tree)
}

// WiderPrefixes appends to buf the sources that hold all of a prefix and of which operators have
// said something, the narrowest first, and returns it. Until reports whether their orders are still
// in force.
func (t *Table) WiderPrefixes(p netip.Prefix, buf []counter.Source) []counter.Source {
	tree := t.prefixes.tree.Load()
	if tree == nil || !p.IsValid() || !tree.LookupPrefix(p) {
		return buf
	}
	for wider := range tree.Supernets(p) {
		buf = append(buf, counter.SourceOf(wider.Addr(), min(wider.Bits(), 32), wider.Bits()))
	}
	return buf
}

// OrderedWithin is Ordered for the sources that lie in a prefix, the narrower ones and the prefix
// itself.
func (t *Table) OrderedWithin(what uint32, p netip.Prefix, now time.Time) bool {
	tree := t.prefixes.tree.Load()
	if tree == nil || !p.IsValid() {
		return false
	}
	for narrower := range tree.Subnets(p) {
		s := counter.SourceOf(narrower.Addr(), min(narrower.Bits(), 32), narrower.Bits())
		if !t.Until(Key{Rule: what, Source: s}, now).IsZero() {
			return true
		}
	}
	return false
}

// UntilOf is Until for the latest end of what is in force under a rule of the source of k, or by
// operators under the rule or under all of one that covers it. A verdict, or a block of another
// PoP, is about a source that the rule counts, and not about all that are in it.
func (t *Table) UntilOf(k Key, covering []counter.Source, now time.Time) time.Time {
	until := t.Until(k, now)
	for _, s := range covering {
		for _, rule := range [...]uint32{k.Rule, AllRules} {
			if end := t.UntilOrdered(Key{Rule: rule, Source: s}, now); end.After(until) {
				until = end
			}
		}
	}
	return until
}

// OrderOf is the operators' bit by which UntilOf is what it is: that of k, of a wider source, or of
// another rule whose variant k is of (0: none). It is for requests that are refused.
func (t *Table) OrderOf(k Key, of uint32, wider []counter.Source,
	until, now time.Time) (Bit, bool) {
	for i, s := range append([]counter.Source{k.Source}, wider...) {
		for _, rule := range [...]uint32{k.Rule, of, AllRules} {
			if rule == 0 || i == 0 && rule == AllRules {
				continue
			}
			bit, in := t.Get(Key{Rule: rule, Source: s}, now)
			if in && bit.By == ByAdmin && bit.End.Equal(until) {
				return bit, true
			}
		}
	}
	return Bit{}, false
}

// UntilOrdered is Until for what operators say alone.
func (t *Table) UntilOrdered(k Key, now time.Time) time.Time {
	if bit, in := t.Get(k, now); in && bit.By == ByAdmin {
		return bit.End
	}
	return time.Time{}
}

// Ordered reports whether operators allow or deny one of the sources.
func (t *Table) Ordered(what uint32, covering []counter.Source, now time.Time) bool {
	for _, s := range covering {
		if !t.Until(Key{Rule: what, Source: s}, now).IsZero() {
			return true
		}
	}
	return false
}

// A RuleVersion is what of a rule a verdict depends on. A verdict outlives it: the verdict waits in
// a request under way, among the Unsent, in the tier, or in a process that hands over to another,
// while its rule changes. So a verdict carries its version wherever it goes.
type RuleVersion struct {
	Limit            uint32 // hits in a window
	Timeout, Longest time.Duration
}

// VersionOf is the version of a rule with this limit, timeout and repeat.
func VersionOf(limit uint32, timeout time.Duration, r Repeat) RuleVersion {
	return RuleVersion{limit, timeout, r.Longest(timeout)}
}

// Invalidates reports whether a verdict under an older version is none under v, because v allows
// more: a source that went over a lower limit may be within this one, and a source that was
// mitigated for longer may be free by now.
func (v RuleVersion) Invalidates(old RuleVersion) bool {
	return old.Limit < v.Limit || old.Timeout > v.Timeout || old.Longest > v.Longest
}

// SetVersions sets which rules are in force from now on, by their IDs, and drops what is void under
// them: verdicts under rules that are not, and those that RuleVersion.Invalidates. It returns them.
// No verdict that is void starts from here on, wherever it comes from and however late. What
// operators say is no verdict, and stays.
func (t *Table) SetVersions(rules map[uint32]RuleVersion) (void map[Key]Bit) {
	t.versions.Store(&rules)
	void = make(map[Key]Bit)
	t.dropAll(func(e *entry) bool {
		if !t.invalid(e.key, e.common.By, e.common.Version) {
			return false
		}
		void[e.key] = t.bit(e)
		return true
	})
	return void
}

// invalid reports whether a bit is a verdict that the rules in force do not give.
func (t *Table) invalid(k Key, by By, under RuleVersion) bool {
	all := t.versions.Load()
	if all == nil || by == ByAdmin {
		return false
	}
	version, inForce := (*all)[k.Rule]
	return !inForce || version.Invalidates(under)
}

// lifted remembers when mitigations were lifted of late, for verdicts that fell before and come
// after.
type lifted struct {
	n  atomic.Int64 // len(at), for readers that only need to know that there are none
	mu sync.Mutex   // taken with a shard locked, never the other way round
	at map[Key]time.Time
}

// verdictTime is longer than any request takes from its verdict to the bit.
const verdictTime = time.Minute

func (l *lifted) note(k Key, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = make(map[Key]time.Time)
	}
	l.at[k] = now
	l.n.Store(int64(len(l.at)))
}

// invalidates reports whether a verdict fell before the last lift.
func (l *lifted) invalidates(k Key, verdict time.Time) bool {
	if l.n.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !verdict.After(l.at[k])
}

func (l *lifted) sweep(now time.Time) {
	if l.n.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.at, func(_ Key, at time.Time) bool { return now.Sub(at) > verdictTime })
	l.n.Store(int64(len(l.at)))
}
