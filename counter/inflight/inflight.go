// Package inflight counts requests in flight: how many a key has under way at this moment, on one
// edge and over the edges of a PoP.
//
// A request Enters, and Leaves when its answer has ended. On one edge that is a number per key.
// Over a PoP it is a number per key and epoch in the tier: each edge adds what it holds to the
// number of the epoch that it is in and to that of the nearer neighbour, and takes it off when it
// ends,
//
//	said(key, epoch) = held(key)    for the epochs that are kept now
//
// so an edge that dies is gone from the count with the first epoch that it does not begin, without
// anything that detects it. What an edge sends is always held - said: an admission, an end, what is
// carried into the next epoch, and what is said again after a node was lost are all the same
// difference.
//
// The tier decides in the order in which it counts. Requests that come while an exchange of their
// key is under way go together with the next. Its answer is the number with them in it, so without
// them it is used, and limit - used of them are within. What is beyond is taken back by the next
// exchange; until then it stands in the answers to others, so they may be refused in vain for a
// round trip, but never admitted in vain.
//
// There is no I/O, no goroutine and no clock in here. An entry has about 200 bytes. There are no
// more than requests in flight, which limits.connections bounds (but for clients that have closed,
// for some seconds), keys that were full in the last second, and maxIdle.
package inflight

import (
	"sync"
	"time"

	"sluice/counter"
)

// Concurrency says how many requests of a key may be in flight.
type Concurrency struct {
	// Names the numbers: rules of one name share them, and edges of a PoP know them by it
	Name  string
	Limit int32
}

// Key is what has requests in flight.
type Key struct {
	Rule   string // Rule.Name
	Source counter.Source
}

// recency is how long a key is refused without an exchange after the tier has refused it, unless a
// slot comes free here; twice as long each time that it does so again, up to maxRecency. So a flood
// costs the tier few exchanges per key and edge, and the vain tries of many edges seldom keep out a
// request that could be admitted. With 32 edges and a round trip of 6 ms a flood would otherwise
// keep four fifths of the slots empty (TestFloodOfManyEdges).
const (
	recency    = 25 * time.Millisecond
	maxRecency = 4 * recency
)

// Options are those of a Table.
type Options struct {
	Tier bool   // the owner calls Due
	Wake func() // something is due; must not block, nor call the Table; nil: no caller
}

// Table is the requests in flight of one edge. It is safe for concurrent use; Due and Answered
// belong to one goroutine.
type Table struct {
	tier bool
	wake func()

	mu        sync.Mutex
	entries   map[Key]*entry
	list      []*entry // the same, to go through
	dirty     []*entry // to be looked at by the next Due
	pass      int      // list[:pass] as well
	first     uint32   // epochs that were kept at the last Due
	last      uint32
	unsettled time.Time // until then totals say nothing
	spare     []*Exchange
	unused    []*entry
}

// entry is the requests in flight of a key.
type entry struct {
	key   Key
	at    int   // in Table.list
	held  int32 // slots that requests have here, those included that wait for the tier
	dirty bool
	out   bool // it is in no table any more

	full   time.Time     // until then no exchange is needed
	beyond time.Duration // for so long it was said last

	next     *confirmation // requests that go with the next exchange; nil: none
	sent     *confirmation // that went with the one under way
	exchange *Exchange     // under way; nil: none is
	// The last came to nothing: it is tried again in the next epoch, or with the next request
	failed bool
	node   int       // what follows is about
	stored [2]stored // by epoch & 1
}

// stored is what a node has of this edge.
type stored struct {
	epoch   uint32
	there   bool  // the number was there at this edge's last exchange,
	missing bool  // or it was not
	n       int32 // of the number so many are this edge's
}

// confirmation is a round of requests that wait together for one answer of the tier. Requests of a
// key that come while a round of it is under way are its next round: so a key has two rounds at
// most, and a request waits for two answers at most. The tier counts in one order, so one number
// decides who has a slot: the room that it leaves to the whole round, which requests use up in the
// order in which they take the answer.
type confirmation struct {
	Reply   chan struct{} // closed when there is an answer, or when none will come
	waiting uint32        // requests that have neither taken the answer nor gone on without it
	room    uint32        // slots for requests that have not taken the answer
	ranked  bool          // the tier has answered

	limit int32
	kept  int32  // requests that went on without it, and still hold their slots
	looks bool   // a Look waits, which holds no slot
	used  uint32 // slots that all edges had then, with those that waited
}

// Slot is a request's slot under a limit of concurrency. The zero Slot is none.
type Slot struct {
	Reply <-chan struct{} // closed when Confirm has the tier's answer; nil: no answer is needed

	entry *entry
	round *confirmation // that it waits for, or, without a Reply, has waited for in vain; nil: none
}

// New makes a Table.
func New(o Options) *Table {
	if o.Wake == nil {
		o.Wake = func() {}
	}
	return &Table{tier: o.Tier, wake: o.Wake, entries: make(map[Key]*entry)}
}

// Enter takes a slot for a request, and reports whether one was free as far as this edge knows. If
// confirm is set and there is a tier, call Confirm once Reply is closed.
func (t *Table) Enter(r *Concurrency, source counter.Source, confirm bool,
	now time.Time) (p Slot, entered bool) {
	confirm = confirm && t.tier
	t.mu.Lock()
	defer t.mu.Unlock()
	key := Key{r.Name, source}
	e := t.entries[key]
	switch {
	case e == nil:
		e = t.add(key)
	case e.held >= r.Limit || confirm && now.Before(e.full):
		return Slot{}, false
	}
	e.held++
	p.entry = e
	if confirm {
		b := e.ask(r)
		b.waiting++
		p.round, p.Reply = b, b.Reply
	}
	t.mark(e)
	return p, true
}

// ask returns the round that goes with the next exchange.
func (e *entry) ask(r *Concurrency) *confirmation {
	if e.next == nil {
		e.next = &confirmation{Reply: make(chan struct{})}
	}
	e.next.limit = r.Limit
	return e.next
}

// rank takes in how many slots the limit leaves to those that wait.
func (b *confirmation) rank(left int64) {
	b.ranked, b.room = true, uint32(min(max(left, 0), int64(b.waiting)))
}

// mark has an entry looked at.
func (t *Table) mark(e *entry) {
	if t.tier && !e.dirty {
		e.dirty = true
		t.dirty = append(t.dirty, e)
		t.wake()
	}
}

// Confirm returns the tier's answer about a slot. One with NoAnswer is kept, for Leave to give
// back; a rejected one is gone.
func (t *Table) Confirm(p *Slot, now time.Time) counter.Answer {
	b := p.round
	if p.Reply == nil {
		return counter.NoAnswer
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p.Reply = nil
	b.waiting--
	switch {
	case !b.ranked:
		b.kept++
		return counter.NoAnswer
	case b.room > 0:
		b.room--
		p.round, p.entry.beyond = nil, 0
		return counter.Admit
	}
	p.round = nil
	e := p.entry
	p.entry = nil
	e.held--
	if !now.Before(e.full) { // of those that were beyond at once the first
		e.beyond = min(max(2*e.beyond, recency), maxRecency)
		e.full = now.Add(e.beyond)
	}
	t.mark(e)
	return counter.Reject
}

// Leave gives a slot back. It may be called more than once.
func (t *Table) Leave(p *Slot) {
	e := p.entry
	if e == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch b := p.round; {
	case b == nil:
	case p.Reply != nil:
		b.waiting--
	default:
		b.kept--
	}
	*p = Slot{}
	e.held--
	e.full = time.Time{}
	if t.mark(e); !t.tier && e.held == 0 {
		t.remove(e)
	}
}

// add makes an entry.
func (t *Table) add(key Key) (e *entry) {
	if n := len(t.unused); n > 0 {
		e, t.unused = t.unused[n-1], t.unused[:n-1]
	} else {
		e = new(entry)
	}
	*e = entry{key: key, at: len(t.list), node: -1, dirty: e.dirty} // it may be in t.dirty as what it was before
	t.entries[key], t.list = e, append(t.list, e)
	return e
}

// Bounds of what is kept for reuse: entries of keys that hold nothing, and entries without a key.
const (
	maxIdle   = 1 << 14
	maxUnused = 1 << 10
)

// remove forgets an entry that holds nothing.
func (t *Table) remove(e *entry) {
	last := t.list[len(t.list)-1]
	t.list[e.at], last.at = last, e.at
	t.list[len(t.list)-1] = nil
	t.list = t.list[:len(t.list)-1]
	delete(t.entries, e.key)
	if e.out = true; len(t.unused) < maxUnused {
		t.unused = append(t.unused, e)
	}
}

// Held is how many slots requests have here, by the name of their rule, and Keys of how many keys.
func (t *Table) Held() (by map[string]int, keys int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	by = make(map[string]int)
	for _, e := range t.list {
		by[e.key.Rule] += int(e.held)
	}
	return by, len(t.list)
}

// A Look reads from the tier how many slots a source has. The zero Look reads nothing.
type Look struct {
	// Closed when Of has the answer, or none will come; nil: the tier is not read
	Reply <-chan struct{}

	round *confirmation
}

// Look reads from the tier, if there is one, and takes no slot. It costs what a request costs.
func (t *Table) Look(r *Concurrency, source counter.Source) Look {
	if !t.tier {
		return Look{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := Key{r.Name, source}
	e := t.entries[key]
	if e == nil {
		e = t.add(key)
	}
	b := e.ask(r)
	b.looks = true
	t.mark(e)
	return Look{b.Reply, b}
}

// Of is how many slots requests of a source have under a rule: over the PoP, with those that the
// tier is about to refuse, and here. Where the tier has not said the former to the Look, it is
// those that are here.
func (t *Table) Of(r *Concurrency, source counter.Source, l Look) (all, here int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[Key{r.Name, source}]; e != nil {
		here = int(e.held)
	}
	if l.round != nil && l.round.ranked {
		all = int(l.round.used)
	}
	return max(all, here), here
}

// Waiting reports whether something is held, or to be said to the tier, so that Due is to be called
// though nothing happens.
func (t *Table) Waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.list) > 0
}
