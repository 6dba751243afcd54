package counter

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

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
	otherPoPs    otherPoPs
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

// A store has a shard's counters of one width: a record each, with a number for each group of
// lanes, the newest first.
type store struct{ records.Shard }

// head is what a counter is besides its lanes. Its layout is that of records.Head, where package
// records finds the key.
type head struct {
	id    [16]byte
	rule  uint32
	code  uint8
	state uint8 // flags
	// When the tier last answered about this counter, 0: never, and a flag; see Reply
	lastReply   uint16
	phase       uint16 // and in its lowest bits the bin of the first hit: see first
	unconfirmed uint16 // index of its entry in the shard, or 0
	base        uint32 // the group of the first lanes
}

// Flags of head.state; the table above Reply says what they are for.
const (
	active = 1 << iota
	hasHistogram
	repliedNow
	readPast
	announcedUnit // announced is three bits
	announced     = 7 * announcedUnit
)

// headOf is a record's head as a counter's.
func headOf(h *records.Head) *head { return (*head)(unsafe.Pointer(h)) }

// first is the bin of a counter's first hit, if it had no histogram yet; 0: that is not known.
func (h *head) first() int { return int(h.phase &^ algorithm.PhaseBits) }

func (h *head) setFirst(bin int) { h.phase = h.phase&algorithm.PhaseBits | uint16(bin) }

func (h *head) source() Source { return Source{id: h.id, code: h.code} }

func (st *store) head(i int) *head { return headOf(st.Head(i)) }

func (st *store) groups(i int) []uint64 { return st.Numbers(i) }

// record is head and groups at once.
func (st *store) record(i int) (*head, []uint64) {
	h, groups := st.Record(i)
	return headOf(h), groups
}

func (st *store) find(hash uint64, rule uint32, s *Source) (int, bool) {
	return st.Find(hash, &s.id, rule, s.code)
}

// advance moves a counter to the group that a position is in, dropping groups that are too old, and
// returns the position to count at and by how many groups the lanes were shifted.
func (st *store) advance(i int, r *algorithm.Spec,
	p algorithm.Position) (at algorithm.Position, moved int) {
	h, groups := st.record(i)
	if h.base == p.Group {
		return p, 0
	}
	at, moved = r.Move(h.base, p)
	if moved > 0 {
		r.Age(groups, int32(p.Group-h.base), moved)
		h.base = p.Group
		h.turn(moved, r.Groups())
	}
	return at, moved
}

// The compiler checks here that head has the layout of records.Head.
const (
	_ = -(unsafe.Sizeof(head{}) ^ unsafe.Sizeof(records.Head{}))
	_ = -(unsafe.Offsetof(head{}.rule) ^ unsafe.Offsetof(records.Head{}.Class))
	_ = -(unsafe.Offsetof(head{}.code) ^ unsafe.Offsetof(records.Head{}.Kind))
	_ = -(unsafe.Offsetof(head{}.state) ^ unsafe.Offsetof(records.Head{}.Own))
)

// A table has its own clock: it starts with the wall clock's reading when the table is made, and
// goes on by the monotonic clock. An offset leads from it to the wall clock, by which edges agree
// on sub-windows. When the wall clock steps, the owner of the table calls Adjust: the offset
// changes, and what the table holds moves along by as many whole sub-windows, so that it keeps its
// age to within half of one. An hour forwards then forgets nothing, and an hour back does not make
// a source wait for it.
//
// The tier keeps what was reported under the old time. After a step of less than a window both old
// and new numbers are in the window, and would be added up; after a longer one each table would
// tell others of the same hits, moved by other steps. So a table with a tier keeps only what it has
// not reported, and reads the rest anew with the source's next request.

// ns is an instant on the table's clock.
func (t *core) ns(now time.Time) int64 {
	if t.options.Began.IsZero() {
		return now.UnixNano()
	}
	return t.began + int64(now.Sub(t.options.Began))
}

// position is where an instant of the table's clock lies in a source's sub-windows.
func (s *shard) position(r *algorithm.Spec, ns int64, phase uint16) algorithm.Position {
	return r.Position(ns+s.offset, phase)
}

// Wall is the wall clock's reading at now, by the last Adjust.
func (t *core) Wall(now time.Time) time.Time { return time.Unix(0, t.ns(now)+t.offset.Load()) }

// stepsFrom is how far the wall clock and the table's drift apart before it counts as a step. The
// clocks of two edges may differ by more.
const stepsFrom = 200 * time.Millisecond

// Stepped is how far the wall clock has stepped since Adjust was last called; 0 if not.
func (t *core) Stepped(now time.Time) time.Duration {
	if t.options.Began.IsZero() {
		return 0
	}
	if d := now.Round(0).Sub(t.Wall(now)); d.Abs() >= stepsFrom {
		return d
	}
	return 0
}

// Adjust takes in that the wall clock has stepped. Nothing may be under way to the tier, which
// would count it under the old time. tier reports whether the tier can be read.
func (t *core) Adjust(step time.Duration, tier bool, now time.Time) {
	ns := t.ns(now)
	t.offset.Add(int64(step))
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, st := range []*store{&s.narrow, &s.wide} {
			for i := range st.All() {
				if r := t.rule(st.head(i).rule); r != nil {
					s.shiftBy(st, i, r, ns, int64(step))
					if tier {
						s.unlearn(st, i, r)
					}
				}
			}
		}
		s.offset += int64(step)
		s.otherPoPs = nil
		s.mu.Unlock()
	}
}

// shiftBy moves the lanes of a counter by a step of the clock. It forgets when within their
// sub-windows hits came.
func (s *shard) shiftBy(st *store, i int, r *algorithm.Spec, ns, step int64) {
	h, groups := st.record(i)
	from := s.advance(st, i, r, ns)
	sub := int64(r.SubWindow())
	by := (step + sub/2) / sub
	if step < 0 {
		by = (step - sub/2) / sub
	}
	to := r.Position(ns+s.offset+step, h.phase)
	base := to.Group
	by -= int64(int32(base-h.base)) << r.Packing() // further than the groups move by themselves
	pending := uint32(0)
	if h.unconfirmed != 0 {
		pending = s.unconfirmed.At(h.unconfirmed).Hits
	}
	by = r.Step(groups, from, to, by, uint64(pending))
	h.base = base
	h.turn(0, r.Groups())
	if h.unconfirmed != 0 {
		s.stats.LostExpired += s.unconfirmed.Shift(s.unconfirmed.At(h.unconfirmed), by)
	}
	if h.state&hasHistogram != 0 {
		h.state &^= hasHistogram
		s.histograms.Unlink(i, st == &s.wide)
	}
}

// unlearn leaves of a counter only the hits that have not been reported, as if the tier had never
// answered about it.
func (s *shard) unlearn(st *store, i int, r *algorithm.Spec) {
	h, groups := st.record(i)
	for g := range groups[:r.Groups()] {
		groups[g] = 0
		if h.unconfirmed != 0 {
			groups[g] = s.unconfirmed.In(s.unconfirmed.At(h.unconfirmed), g).Pending
		}
	}
	h.lastReply = 0
}

// Groups gives the first and last group, modulo 2^32, that the tier may hold of a source with the
// given phase at now.
func (t Reports) Groups(r *algorithm.Spec, now time.Time, phase uint16) (oldest, newest uint32) {
	p := r.Position(t.ns(now)+t.offset.Load(), phase)
	return p.Group - uint32(r.Groups()-1), p.Group
}

// lookup is where the counter of a reservation is while its shard is locked.
type lookup struct {
	hash  uint64
	s     *shard
	store *store
	i     int
	at    algorithm.Position
	first bool // this lookup locked the shard
	there bool // i is the counter's
}

// find looks for a counter.
func (l *lookup) find(r *algorithm.Spec, source *Source) {
	l.store = l.s.store(r)
	l.i, l.there = l.store.find(l.hash, r.ID, source)
}

// open locks a source's shard, and looks for a counter.
func (t *core) open(r *algorithm.Spec, source *Source) (l lookup) {
	l.hash = t.hash(source)
	l.s = t.shard(l.hash)
	l.s.mu.Lock()
	l.find(r, source)
	return l
}

// at runs f on the counter c with its shard locked, if the table still has it.
func (t *core) at(c Counter, f func(s *shard, st *store, i int)) {
	if c.position != 0 { // while it has an unconfirmed entry, no search is needed
		s := &t.shards[int(c.position>>16)%len(t.shards)]
		s.mu.Lock()
		if w := uint16(c.position); int(w) < s.unconfirmed.Len() {
			if k := s.unconfirmed.At(w); k.Rule == c.Rule && s.source(k) == c.Source {
				f(s, s.store(c.Rule), int(k.Slot))
				s.unlock(t)
				return
			}
		}
		s.mu.Unlock()
	}
	l := t.open(c.Rule, &c.Source)
	if l.there {
		f(l.s, l.store, l.i)
	}
	l.s.unlock(t)
}

// unlock unlocks a shard, and wakes the reporter if hits have begun to wait.
func (s *shard) unlock(t *core) {
	if s.grows {
		s.split(t)
	}
	wake := s.wakes
	s.wakes = false
	s.mu.Unlock()
	if wake && t.options.Wake != nil {
		t.options.Wake()
	}
}

// advance brings a counter, and what of it is on its way, to the group of now.
func (s *shard) advance(st *store, i int, r *algorithm.Spec, now int64) algorithm.Position {
	h := st.head(i)
	at, moved := st.advance(i, r, s.position(r, now, h.phase))
	if moved > 0 && h.unconfirmed != 0 {
		pending, inFlight := s.unconfirmed.Age(s.unconfirmed.At(h.unconfirmed), moved)
		s.stats.LostExpired += pending
		s.stats.LostUnknown += inFlight
	}
	return at
}

// estimate is a counter's estimate at a position.
func (s *shard) estimate(r *algorithm.Spec, st *store, i int, at algorithm.Position) float64 {
	if len(s.otherPoPs) > 0 {
		return s.estimateOf(r, st, i, st.groups(i), at)
	}
	return r.Read(st.groups(i), s.own(st, i), at)
}

// retryAfter is how long it takes until n more hits of a counter are within the limit.
func (s *shard) retryAfter(r *algorithm.Spec, st *store, i int, at algorithm.Position,
	n float64) time.Duration {
	return s.retryAfterOf(r, st, i, st.groups(i), at, n)
}

// peek returns a counter's estimate at now, with its groups as they would be then.
func (s *shard) peek(r *algorithm.Spec, st *store, i int, now int64,
	room *[lanes.MaxGroups]uint64) (estimate float64, groups []uint64, at algorithm.Position) {
	h := st.head(i)
	groups = room[:copy(room[:], st.groups(i))]
	p := s.position(r, now, h.phase)
	at, moved := r.Move(h.base, p)
	r.Age(groups, int32(p.Group-h.base), moved)
	return s.estimateOf(r, st, i, groups, at), groups, at
}

// Peek returns what Reserve would answer to one hit, and whether the source is in the table. It
// changes nothing.
func (t *core) Peek(r *algorithm.Spec, source Source, now time.Time) (v Verdict, there bool) {
	return t.PeekFor(r, source, 1, now)
}

// Shared is the estimate at now of those hits of a source that this table is not alone to know of:
// what the tier has confirmed. Where it is unknown which they are, because too many sources have
// hits that are not confirmed, it is 0.
func (t *core) Shared(r *algorithm.Spec, source Source, now time.Time) (estimate float64) {
	t.at(Counter{Rule: r, Source: source}, func(s *shard, st *store, i int) {
		h := st.head(i)
		if h.unconfirmed == 0 && s.unconfirmed.Full() {
			return
		}
		s.advance(st, i, r, t.ns(now)) // with the hits that are not confirmed
		all, groups, at := s.peek(r, st, i, t.ns(now), new([lanes.MaxGroups]uint64))
		if estimate = all; h.unconfirmed == 0 {
			return
		}
		for g := range groups[:r.Groups()] {
			u := s.unconfirmed.In(s.unconfirmed.At(h.unconfirmed), g)
			groups[g] = r.Packing().Plus(u.Pending, u.InFlight)
		}
		estimate = max(all-r.Read(groups, s.own(st, i), at), 0)
	})
	return estimate
}

// PeekFor is Peek for so many hits.
func (t *core) PeekFor(r *algorithm.Spec, source Source, hits uint32,
	now time.Time) (v Verdict, there bool) {
	v = Verdict{Remaining: r.Limit, Fresh: !t.options.Tier}
	t.at(Counter{Rule: r, Source: source}, func(s *shard, st *store, i int) {
		h := st.head(i)
		committed, groups, at := s.peek(r, st, i, t.ns(now), new([lanes.MaxGroups]uint64))
		v, there = Verdict{Estimate: committed + float64(s.unconfirmed.Held(h.unconfirmed)),
			Fresh: t.known(h, r, t.ns(now))}, true
		v.Remaining = r.Remaining(v.Estimate)
		if v.Over = r.Over(v.Estimate + float64(hits)); v.Over {
			held := v.Estimate - committed
			committed = s.firm(r, st, i, groups, at, committed) + float64(hits)
			v.Over, v.Committed = r.Over(committed+held), r.Over(committed)
		}
		if !v.Over {
			v.Delay = r.Delay(v.Estimate + float64(hits))
		}
		if v.Committed {
			v.RetryAfter = s.retryAfterOf(r, st, i, groups, at, float64(hits))
		}
	})
	return v, there
}

// locate makes a counter for a source that has none. It evicts no counter that is evaluated
// together with it.
func (t *core) locate(l *lookup, r *algorithm.Spec, source Source, now int64, together []lookup) {
	var room [8]int
	inUse := room[:0]
	for i := range together {
		if o := &together[i]; o.there && o.store == l.store {
			inUse = append(inUse, o.i)
		}
	}
	phase := uint16(0)
	if t.options.Phase != nil {
		phase = t.options.Phase(source)
	}
	t.know(r)
	i, evicted, full := l.store.Insert(l.hash, &source.id, r.ID, source.code,
		t.evictionCost(l, now, inUse))
	if full {
		out := headOf(&evicted)
		if out.state&hasHistogram != 0 {
			l.s.histograms.Unlink(i, l.store == &l.s.wide)
		}
		l.s.evicted(out)
	}
	l.s.grows = l.s.grows || l.store.Crowded()
	h := l.store.head(i)
	h.phase = phase & algorithm.PhaseBits
	l.i, l.there, l.at = i, true, l.s.position(r, now, h.phase)
	h.base = l.at.Group
}

// evictionCost is how much would be lost with a counter: the share of its limit that is used, more
// than all if requests have reserved of it, and most if it is in use.
func (t *core) evictionCost(l *lookup, now int64, inUse []int) records.EvictionCost {
	return func(i int) float64 {
		h := l.store.head(i)
		switch {
		case slices.Contains(inUse, i):
			return math.Inf(1)
		case h.state&active == 0 && h.unconfirmed == 0:
			return 0
		case l.s.unconfirmed.Held(h.unconfirmed) > 0:
			return math.MaxFloat64
		}
		r := t.rule(h.rule)
		if r == nil {
			return 0
		}
		estimate, _, _ := l.s.peek(r, l.store, i, now, new([lanes.MaxGroups]uint64))
		return estimate / float64(r.Limit)
	}
}

// recentlyActive is whether so much used makes a counter active.
func recentlyActive(r *algorithm.Spec, estimate float64) uint8 {
	if 7*estimate >= float64(r.Limit) {
		return active
	}
	return 0
}

// evicted gives up the unconfirmed hits of a counter that was evicted.
func (s *shard) evicted(h *head) {
	s.stats.Evicted++
	if h.unconfirmed != 0 {
		s.stats.LostEvicted += s.unconfirmed.Release(h.unconfirmed)
	}
}

// Forget drops what is known of a source under a rule: the next hit starts from nothing.
func (t *core) Forget(r *algorithm.Spec, source Source) {
	t.at(Counter{Rule: r, Source: source}, func(s *shard, st *store, i int) {
		if w := st.head(i).unconfirmed; w != 0 {
			s.stats.LostExpired += s.unconfirmed.Release(w)
		}
		if st.head(i).state&hasHistogram != 0 {
			s.histograms.Unlink(i, st == &s.wide)
		}
		st.Remove(i)
	})
	s := t.shard(t.hash(&source))
	s.mu.Lock()
	delete(s.otherPoPs, Key{source, r.ID})
	s.mu.Unlock()
}

// Counter names a counter by the rule that counts and the source that is counted.
type Counter struct {
	Rule   *algorithm.Spec
	Source Source
	// Of its unconfirmed entry when Dirty gave it out: its shard, and its index there; 0: not known
	position uint32
}
