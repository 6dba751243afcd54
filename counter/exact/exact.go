// Package exact keeps the instants of admitted requests in the tier, so that over all edges of a
// PoP no source ever has more of them than its limit in any window. It is for limits where one too
// many matters; what the counters of package counter say of a source is an estimate, and late.
//
// The sources of a rule share Buckets values in the tier, by a keyed hash. A value has the instants
// of its sources that still matter, and since when it is complete. A request waits until its edge
// has read the value and replaced it by one with the instant of the request, which memcached does
// only if no other edge has replaced it meanwhile (gets, cas); otherwise the edge reads again.
//
//	admitted   if fewer than limit instants of its source are younger than window + Margin(window)
//
// Whatever loses instants loses a whole value: a node that restarts, evicts or is flushed, or
// another node because the list of nodes has changed. Values never end by themselves, so one that
// is not there is lost, and is made anew as complete from now on. For a window and its Margin from
// then on a Closed rule admits no request by it. Edges make all values before they are needed, and
// see to it that they are used (pop/exchange/exchange.go). Under any rule each edge puts back the
// instants that it knows of, and under one that is not Closed goes on.
//
// Whether the tier has carried out an unanswered cas is unknown: the request is not admitted by it,
// and may count. A request that has been given up is taken back with the next exchange.
//
// One half of Margin is what clocks may differ by, the other what may pass between a decision and
// the arrival at an origin. A request that is under way for longer than half of that half counts
// from then on from the latest instant at which it was (Table.Done), so a client that sends its
// body slowly cannot bring two windows' requests to an origin at once. The rest is for the tier's
// answer to that.
//
// A token bucket has one instant for a source, that at which it is full again (GCRA's theoretical
// arrival time), and no Margin: edges whose clocks differ let through as much more as drains in the
// difference.
//
// There is no I/O, no goroutine and no clock in here.
package exact

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
)

const (
	// Buckets is how many values the sources of a rule share. More of them are smaller and cost
	// more to keep.
	Buckets = 1024
	// MaxMargin is the longest Margin, that of windows of 20 s and more.
	MaxMargin = 2 * time.Second
	// MinWindow is the shortest window for which clocks are likely to keep what Margin demands: a
	// twentieth of it, 100 ms.
	MinWindow = 2 * time.Second

	// again is how long a source is refused without asking the tier that the tier has said is full,
	// at most; less where answers may take back what counts. A flood costs the tier one read in
	// that time, for each source and edge.
	again     = time.Second
	againHeld = 64 * time.Millisecond

	maxTries   = 64      // of one exchange, in which other edges have been faster
	maxEntries = 1 << 16 // sources that are remembered,
	maxKept    = 1 << 22 // and instants of theirs, 8 bytes each
)

// Margin is for how much longer than its window an instant counts: a tenth of the window, and
// MaxMargin at most. A source whose requests come evenly is refused by it from ten elevenths of its
// limit on.
func Margin(window time.Duration) time.Duration { return min(window/10, MaxMargin) }

// Spec is a limit that is kept in the tier.
type Spec struct {
	Counter *algorithm.Spec // of which it is

	ID    string // names the values: rules of one ID share them, and have one Window
	Limit int
	// How long a value that was lost leaves doubt, and, without Interval, how long an instant
	// counts, µs; Margin included
	Window int64
	Closed bool // in doubt it admits no request
	Holds  bool // requests may turn out not to count

	// Of a token bucket: how long a hit takes to drain, µs, rounded up; 0: it is none
	Interval int64

	margin int64 // within Window, µs
}

// NewSpec makes a Spec of one that algorithm.NewExact or, without a queue, algorithm.NewBucket has
// made.
func NewSpec(r *algorithm.Spec, closed, holds bool) *Spec {
	margin := Margin(r.Window)
	rule := &Spec{
		Counter: r, ID: r.Identity() + "/" + r.Window.String(), Limit: int(r.Limit),
		Window: (r.Window + margin).Microseconds(), Closed: closed, Holds: holds,
		margin: margin.Microseconds(),
	}
	if per := r.Interval(); per > 0 {
		rule.ID, rule.Interval = r.Identity(), int64(per/1000)+1
	}
	return rule
}

// By is r by another limit, that of a counter which is like its own but for that. Instants are the
// same under any limit, so a source that is given another keeps them; those of a token bucket are
// not.
func (r *Spec) By(c *algorithm.Spec) *Spec {
	by := NewSpec(c, r.Closed, r.Holds)
	if by.Interval == 0 {
		by.ID = r.ID
	}
	return by
}

// Key names the instants that are kept: of a rule and a source.
type Key struct {
	Rule   string // Spec.ID
	Source counter.Source
}

// Options are those of a Table.
type Options struct {
	// Wake is called when something is due. It must not block, nor call the Table; nil: no caller.
	Wake func()
	// Bucket returns the bucket of a source, by a keyed hash.
	Bucket func(counter.Source) uint32
}

// Table is the requests of one edge under such rules. It is safe for concurrent use; what the
// machine calls (exchange.go) belongs to one goroutine. All times are those of the wall clock.
type Table struct {
	options Options

	mu      sync.Mutex
	entries map[Key]*entry
	list    []*entry
	kept    int // instants in all entries
	hand    int
	buckets map[bucketKey]*bucket
	dirty   []*bucket
	open    []*stamp // of requests that are under way, in the order of their admission
	stamped int64    // when the first of open is to be moved on, as of the last Due; 0: none
	stats   Stats
}

// Stats is what a Table has seen.
type Stats struct {
	Doubted  uint64 // requests that were refused in doubt
	Conflict uint64 // exchanges in which another edge was faster
	Sources  int    // that are remembered
}

// entry is what this edge knows of a source.
type entry struct {
	key   Key
	tag   uint64  // by which the tier knows it: another after an operator has lifted the source
	known []int64 // its instants in the tier, as this edge has read or written them last
	own   []int64 // those of requests that this edge has admitted
	// Until then a source that is over the limit as far as this edge knows is refused without an
	// exchange
	again int64
	since int64 // of the value that known is from; 0: it is from none
}

// stamp is an instant of a request that is under way.
type stamp struct {
	rule  *Spec
	entry *entry
	at    int64
	done  bool
	moves bool // it is in a move that is under way,
	back  bool // after which it is taken back
}

// pending is a request that waits for the tier.
type pending struct {
	rule   *Spec
	entry  *entry
	reply  chan struct{}
	answer counter.Answer
	ended  bool  // reply is closed
	gone   bool  // no request waits any more
	look   bool  // it only wants to know
	at     int64 // its instant in the value that is being written
	until  int64 // Reject, Unknown: when to come back
	stamp  *stamp
}

// Ticket is a request's way through a Table. The zero Ticket is none.
type Ticket struct {
	Reply <-chan struct{} // closed when Confirm has an answer; nil: it has one already
	counter.Verdict

	pending *pending
	stamp   *stamp // of an admitted one
	answer  counter.Answer
}

// New makes a Table.
func New(o Options) *Table {
	if o.Wake == nil {
		o.Wake = func() {}
	}
	return &Table{options: o, entries: make(map[Key]*entry), buckets: make(map[bucketKey]*bucket)}
}

// Enter queues a request for the tier, unless the tier's last answer is enough to refuse it.
// Confirm is false where there is no tier.
func (t *Table) Enter(r *Spec, source counter.Source, confirm bool, wall time.Time) (k Ticket) {
	now := wall.UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entry(Key{r.ID, source})
	if !confirm {
		return Ticket{pending: &pending{rule: r, entry: e, ended: true}}
	}
	if now < e.again {
		// By the limit that is in force now: the tier may have refused by a lower one
		if _, until := r.next(e.known, now); until != 0 {
			k.answer = counter.Reject
			k.refused(r, e, until, now)
			return k
		}
	}
	a := t.put(r, e)
	return Ticket{Reply: a.reply, pending: a}
}

// put queues a request for its bucket's next exchange.
func (t *Table) put(r *Spec, e *entry) *pending {
	a := &pending{rule: r, entry: e, reply: make(chan struct{})}
	b := t.bucket(bucketKey{r.ID, t.options.Bucket(e.key.Source)})
	b.waiters = append(b.waiters, a)
	t.mark(b)
	return a
}

// refused fills in the verdict on one that is over its limit.
func (k *Ticket) refused(r *Spec, e *entry, until, now int64) {
	k.Verdict = counter.Verdict{Over: true, Committed: r.settled(e.known, now), Fresh: true,
		Estimate: float64(r.used(e.known, now) + 1), RetryAfter: micros(max(until-now, 0))}
}

// admitted fills in the verdict on one that is within it, and counted.
func (k *Ticket) admitted(r *Spec, e *entry, now int64) {
	n := r.used(e.known, now)
	k.Verdict = counter.Verdict{Fresh: e.since != 0, Estimate: float64(n),
		Remaining: uint32(max(r.Limit-n, 0))}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// Confirm returns the tier's answer. What has NoAnswer is to be decided Locally, or to be
// Cancelled.
func (t *Table) Confirm(k *Ticket, wall time.Time) counter.Answer {
	if k.pending == nil {
		return k.answer
	}
	now := wall.UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	a := k.pending
	if !a.ended {
		return counter.NoAnswer
	}
	switch k.answer = a.answer; k.answer {
	case counter.Admit:
		k.stamp = a.stamp
		k.admitted(a.rule, a.entry, now)
	case counter.Reject:
		k.refused(a.rule, a.entry, a.until, now)
	case counter.Unknown:
		t.stats.Doubted++
		k.Verdict = counter.Verdict{RetryAfter: micros(max(a.until-now, 0))}
	case counter.NoAnswer:
		return counter.NoAnswer
	}
	k.pending = nil
	return k.answer
}

// Locally decides about a request on what this edge knows, and reports whether it admits it. Its
// instant is written to the tier once that is back.
func (t *Table) Locally(k *Ticket, wall time.Time) bool {
	now := wall.UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	a := k.pending
	a.gone, k.pending = true, nil
	r, e := a.rule, a.entry
	at, until := r.next(e.known, now)
	if until != 0 {
		k.answer = counter.Reject
		k.refused(r, e, until, now)
		return false
	}
	t.keep(e, r.with(r.live(e.known, now), at), r.with(r.live(e.own, now), at))
	k.answer, k.stamp = counter.Admit, t.begin(r, e, at)
	k.admitted(r, e, now)
	if !a.ended { // else the tier is not there
		t.put(r, e).look = true
	}
	return true
}

// Cancel takes a request back that does not count. It may be called for any Ticket, and more than
// once.
func (t *Table) Cancel(k *Ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := k.pending; a != nil {
		a.gone, k.pending = true, nil
		if a.stamp == nil {
			return
		}
		k.stamp = a.stamp // the answer has come since
	}
	if s := k.stamp; s != nil {
		k.stamp = nil
		if s.back = s.moves; !s.moves {
			t.takeBack(s.rule, s.entry, s.at)
		}
		t.end(s)
	}
}

// takeBack takes an instant out of what is known here and in the tier.
func (t *Table) takeBack(r *Spec, e *entry, at int64) {
	t.keep(e, r.without(e.known, at), r.without(e.own, at))
	e.again = 0
	b := t.bucket(bucketKey{r.ID, t.options.Bucket(e.key.Source)})
	b.moves = append(b.moves, move{entry: e, rule: r, from: at})
	t.mark(b)
}

// begin notes that a request is under way.
func (t *Table) begin(r *Spec, e *entry, at int64) *stamp {
	s := &stamp{rule: r, entry: e, at: at}
	if r.Interval == 0 {
		t.open = append(t.open, s)
	}
	return s
}

func (t *Table) end(s *stamp) { s.done = true }

// Done notes that an admitted request is no longer under way: its answer, if there is one, has
// begun. Until then its instant is moved on, half of Margin behind the clock at most.
func (t *Table) Done(k *Ticket) {
	if k.stamp == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(k.stamp)
}

// Look reads a source's state from the tier. Its Reply is closed when Peek has it, or when none
// will come.
func (t *Table) Look(r *Spec, source counter.Source) (reply <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.put(r, t.entry(Key{r.ID, source}))
	a.look = true
	return a.reply
}

// Peek returns a source's state as far as this edge knows, and whether it knows anything.
func (t *Table) Peek(r *Spec, source counter.Source,
	wall time.Time) (v counter.Verdict, there bool) {
	now := wall.UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[Key{r.ID, source}]
	if e == nil {
		return v, false
	}
	var k Ticket
	k.admitted(r, e, now)
	if _, until := r.next(e.known, now); until != 0 {
		k.Over, k.Committed, k.RetryAfter = true, true, micros(until-now)
	}
	return k.Verdict, true
}

// Stats may be called from anywhere.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Sources = len(t.list)
	return s
}

// entry is that of a source; of too many one is forgotten that is none too busy.
func (t *Table) entry(key Key) *entry {
	e := t.entries[key]
	if e == nil {
		for len(t.list) >= maxEntries || t.kept > maxKept && len(t.list) > 0 {
			t.hand = (t.hand + 1) % len(t.list)
			t.forget(t.hand)
		}
		e = &entry{key: key}
		t.entries[key] = e
		t.list = append(t.list, e)
	}
	return e
}

// forget drops an entry. The tier has what it knew, but for what was admitted in its absence.
func (t *Table) forget(i int) {
	e, last := t.list[i], len(t.list)-1
	delete(t.entries, e.key)
	t.kept -= len(e.known) + len(e.own)
	e.known, e.own = nil, nil
	t.list[i], t.list[last] = t.list[last], nil
	t.list = t.list[:last]
}

// keep notes instants.
func (t *Table) keep(e *entry, known, own []int64) {
	if t.entries[e.key] == e {
		t.kept += len(known) + len(own) - len(e.known) - len(e.own)
	}
	e.known, e.own = known, own
}

// Sweep forgets sources of which nothing matters any more. Call it about once a second.
func (t *Table) Sweep(wall time.Time) {
	now := wall.UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := min(len(t.list), 1024); n > 0 && len(t.list) > 0; n-- {
		t.hand = (t.hand + 1) % len(t.list)
		if e := t.list[t.hand]; now >= e.again && over(e.known, now) && over(e.own, now) {
			t.forget(t.hand)
		}
	}
}

// over reports whether instants are all older than any window.
func over(at []int64, now int64) bool {
	return len(at) == 0 || at[len(at)-1]+(algorithm.MaxWindow+MaxMargin).Microseconds() <= now
}

// Waiting reports whether something is under way, so that Due is to be called though nothing
// happens.
func (t *Table) Waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.dirty) > 0 || len(t.open) > 0
}

// In is how soon Due is to be called again: at once if something waits, or when the instant of a
// request that is under way is to be moved on, and after the time given at the latest.
func (t *Table) In(least time.Duration, wall time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.dirty) > 0 {
		return 0
	}
	if t.stamped == 0 {
		return least
	}
	return min(least, micros(max(t.stamped-wall.UnixMicro(), 0)))
}

// A value is what the tier has of a bucket: a form, since when it is complete (µs), and for each
// source its tag, how many instants it has, the first, and how long after the one before each other
// came. An instant of a window of an hour takes four bytes on average where there are a thousand.
type value struct {
	since   int64
	sources []source
}

type source struct {
	tag uint64
	at  []int64
}

const (
	form      = 1
	valueHead = 1 + 8
	// maxValue is the longest value. A bucket with a longer value answers no request until instants
	// have left it.
	maxValue = 256 << 10
)

// Fresh is the value of a bucket that the tier did not have.
func Fresh(wall time.Time) []byte { return (&value{since: wall.UnixMicro()}).append(nil) }

func (v *value) append(b []byte) []byte {
	b = append(b, form)
	b = binary.BigEndian.AppendUint64(b, uint64(v.since))
	for _, s := range v.sources {
		if len(s.at) == 0 {
			continue
		}
		b = binary.BigEndian.AppendUint64(b, s.tag)
		b = binary.AppendUvarint(b, uint64(len(s.at)))
		before := int64(0)
		for _, at := range s.at {
			b = binary.AppendUvarint(b, uint64(at-before))
			before = at
		}
	}
	return b
}

// parse reads what append has written.
func parse(b []byte) (v value, ok bool) {
	if len(b) < valueHead || b[0] != form || len(b) > maxValue {
		return v, false
	}
	v.since, b = int64(binary.BigEndian.Uint64(b[1:])), b[valueHead:]
	number := func() (n uint64) {
		n, size := binary.Uvarint(b)
		if ok = size > 0 && n < 1<<62; ok {
			b = b[size:]
		}
		return n
	}
	for len(b) > 0 {
		if len(b) < 8 {
			return value{}, false
		}
		s := source{tag: binary.BigEndian.Uint64(b)}
		b = b[8:]
		n := number()
		if !ok || n > uint64(len(b)) { // each has a byte at least
			return value{}, false
		}
		s.at = make([]int64, n)
		before := int64(0)
		for i := range s.at {
			before += int64(number())
			if !ok || before < 0 {
				return value{}, false
			}
			s.at[i] = before
		}
		v.sources = append(v.sources, s)
	}
	return v, true
}

// of is a source's instants, for as long as no other source is added.
func (v *value) of(tag uint64) *[]int64 {
	for i := range v.sources {
		if v.sources[i].tag == tag {
			return &v.sources[i].at
		}
	}
	v.sources = append(v.sources, source{tag: tag})
	return &v.sources[len(v.sources)-1].at
}

// prune drops what does not count any more.
func (v *value) prune(r *Spec, now int64) {
	for i := range v.sources {
		s := &v.sources[i]
		s.at = r.live(s.at, now)
	}
	v.sources = slices.DeleteFunc(v.sources, func(s source) bool { return len(s.at) == 0 })
}

// Instants of a source are µs since the Unix epoch, ascending; several may be alike. Of a token
// bucket there is one, which is when all that has come has drained.

// live is those that still count.
func (r *Spec) live(at []int64, now int64) []int64 {
	if r.Interval > 0 {
		if len(at) > 0 && at[0] > now {
			return at
		}
		return nil
	}
	i := 0
	for i < len(at) && at[i]+r.Window <= now {
		i++
	}
	return at[i:]
}

// used is how much of the limit instants use.
func (r *Spec) used(at []int64, now int64) int {
	at = r.live(at, now)
	if r.Interval > 0 && len(at) > 0 {
		return int((at[0] - now + r.Interval - 1) / r.Interval)
	}
	return len(at)
}

// next is the instant of one request more, or, if that would be over the limit, when it would not
// be.
func (r *Spec) next(at []int64, now int64) (next, until int64) {
	at = r.live(at, now)
	if r.Interval > 0 {
		tat := now
		if len(at) > 0 {
			tat = at[0]
		}
		if full := tat - int64(r.Limit-1)*r.Interval; full > now {
			return 0, full
		}
		return tat + r.Interval, 0
	}
	if len(at) >= r.Limit {
		return 0, at[len(at)-r.Limit] + r.Window
	}
	return now, 0
}

// settled reports whether instants are over the limit without those of requests that are under way
// and may turn out not to count. Such a request's instant is moved on until its answer is there
// (restamp), so what is as old as Margin stands. For a bucket this is unknown.
func (r *Spec) settled(at []int64, now int64) bool {
	if at = r.live(at, now); !r.Holds {
		return true
	}
	return r.Interval == 0 && len(at) >= r.Limit && at[r.Limit-1]+r.margin <= now
}

// with is instants and one more. What is given is not changed.
func (r *Spec) with(at []int64, one int64) []int64 {
	if r.Interval > 0 {
		if len(at) > 0 {
			one = max(one, at[0])
		}
		return []int64{one}
	}
	i, _ := slices.BinarySearch(at, one)
	return slices.Insert(slices.Clone(at), i, one)
}

// without is instants without one of that time. Of a bucket a hit is taken out.
func (r *Spec) without(at []int64, one int64) []int64 {
	if r.Interval > 0 {
		if len(at) > 0 {
			return []int64{at[0] - r.Interval}
		}
		return at
	}
	if i, there := slices.BinarySearch(at, one); there {
		return slices.Delete(slices.Clone(at), i, i+1)
	}
	return at
}

// merge is instants and those of own that are not among them, and whether there are such.
func (r *Spec) merge(at, own []int64) (all []int64, more bool) {
	if r.Interval > 0 {
		if len(own) > 0 && (len(at) == 0 || own[0] > at[0]) {
			return own, true
		}
		return at, false
	}
	i := 0
	for _, one := range own {
		for i < len(at) && at[i] < one {
			i++
		}
		if i < len(at) && at[i] == one {
			i++ // each stands for one
			continue
		}
		all, more = append(all, one), true
	}
	if !more {
		return at, false
	}
	all = append(all, at...)
	slices.Sort(all)
	return all, true
}
