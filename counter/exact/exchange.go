package exact

import (
	"slices"
	"time"

	"sluice/counter"
)

// What an exchange costs: a gets, and a cas or an add where something is to be written; once more
// of both for each time that another edge was faster. Requests of a bucket that come while one is
// under way go together with the next.

// Exchange is a read and a write of a bucket. What is read goes to Read, and, if that wants
// something written, what became of it to Written.
type Exchange struct {
	Rule   *Spec // of that ID
	Bucket uint32
	Node   int

	bucket  *bucket
	sent    int64      // µs
	waiters []*pending // what is being written is about them,
	moves   []move     // and these
}

// mostAge is how long after its read was sent a value may be replaced: a node that restarts numbers
// versions anew, and a cas with an old version could replace another value. No node restarts, and
// has its values made, in so short a time.
const mostAge = 250 * time.Millisecond

type bucketKey struct {
	rule   string
	number uint32
}

// bucket is what is due for one.
type bucket struct {
	key      bucketKey
	waiters  []*pending
	moves    []move
	exchange *Exchange // under way; nil: none is
	dirty    bool
	tries    int // exchanges in vain, since the last that was not
}

// move replaces an instant in the tier by another.
type move struct {
	rule  *Spec
	entry *entry
	from  int64
	to    int64  // 0: none, until it is known
	stamp *stamp // the request that it belongs to; nil: it is taken back
}

func (t *Table) bucket(key bucketKey) *bucket {
	b := t.buckets[key]
	if b == nil {
		b = &bucket{key: key}
		t.buckets[key] = b
	}
	return b
}

func (t *Table) mark(b *bucket) {
	if !b.dirty && b.exchange == nil {
		b.dirty = true
		t.dirty = append(t.dirty, b)
		t.options.Wake()
	}
}

// rule is one of a bucket's.
func (b *bucket) rule() *Spec {
	if len(b.waiters) > 0 {
		return b.waiters[0].rule
	}
	return b.moves[0].rule
}

// Due appends the exchanges that are due, as many as buf has room for. Node returns a bucket's
// node; less than 0: it has none, and no request waits for it.
func (t *Table) Due(buf []*Exchange, wall time.Time,
	node func(r *Spec, bucket uint32) int) []*Exchange {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.restamp(wall.UnixMicro())
	n := 0
	for ; n < len(t.dirty) && len(buf) < cap(buf); n++ {
		b := t.dirty[n]
		b.dirty = false
		b.waiting()
		if len(b.waiters)+len(b.moves) == 0 {
			delete(t.buckets, b.key)
			continue
		}
		r := b.rule()
		at := node(r, b.key.number)
		if at < 0 {
			t.giveUp(b)
			continue
		}
		b.exchange = &Exchange{Rule: r, Bucket: b.key.number, Node: at, bucket: b,
			sent: wall.UnixMicro()}
		buf = append(buf, b.exchange)
	}
	t.dirty = append(t.dirty[:0], t.dirty[n:]...)
	return buf
}

// waiting drops requests that have been given up.
func (b *bucket) waiting() {
	waiters := b.waiters[:0]
	for _, a := range b.waiters {
		if !a.gone {
			waiters = append(waiters, a)
		}
	}
	clear(b.waiters[len(waiters):])
	b.waiters = waiters
}

// giveUp ends what a bucket waits for without an answer.
func (t *Table) giveUp(b *bucket) {
	for _, a := range b.waiters {
		a.end(counter.NoAnswer)
	}
	t.unmove(b.moves)
	delete(t.buckets, b.key)
}

// unmove leaves instants where they are. What was to be taken back counts as long as they do.
func (t *Table) unmove(moves []move) {
	for i := range moves {
		if s := moves[i].stamp; s != nil {
			moves[i].undo(t)
			s.moves = false
		}
	}
}

// swap replaces an instant that this edge knows by another.
func (m *move) swap(from, to int64, t *Table) {
	other := func(at []int64) []int64 {
		if _, there := slices.BinarySearch(at, from); there {
			return m.rule.with(m.rule.without(at, from), to)
		}
		return at
	}
	t.keep(m.entry, other(m.entry.known), other(m.entry.own))
}

// undo takes a move back that came to nothing so far.
func (m *move) undo(t *Table) {
	if m.to != 0 {
		m.swap(m.to, m.from, t)
		m.to = 0
	}
}

func (a *pending) end(answer counter.Answer) {
	if !a.ended {
		a.answer, a.ended = answer, true
		close(a.reply)
	}
}

// late is how old an instant may be by which a request is admitted or that of one under way, µs: at
// the latest then it is to be replaced, and the tier has as long again to do it.
func (r *Spec) late() int64 { return r.margin / 4 }

// restamp has the instants of requests moved that have been under way for so long, and forgets
// those that are not any more.
func (t *Table) restamp(now int64) {
	open := t.open[:0]
	t.stamped = 0
	for _, s := range t.open {
		if s.done && !s.moves {
			continue
		}
		open = append(open, s)
		if s.moves {
			continue
		}
		if at := s.at + s.rule.late(); now < at {
			if t.stamped == 0 || at < t.stamped {
				t.stamped = at
			}
			continue
		}
		s.moves = true
		b := t.bucket(bucketKey{s.rule.ID, t.options.Bucket(s.entry.key.Source)})
		b.moves = append(b.moves, move{rule: s.rule, entry: s.entry, from: s.at, stamp: s})
		t.mark(b)
	}
	clear(t.open[len(open):])
	t.open = open
}

// Read takes in the value of a bucket: answered is false where the tier has not answered, there
// where it has none, or none that is authentic. It returns the value that is to replace it; nil:
// none. Tag returns the name of a source in the tier.
func (t *Table) Read(x *Exchange, body []byte, there, answered bool,
	tag func(*Spec, counter.Source) uint64, wall time.Time) (write []byte) {
	now := wall.UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	b := x.bucket
	if !answered {
		t.over(x)
		t.giveUp(b)
		return nil
	}
	if age := now - x.sent; age > mostAge.Microseconds() || age < 0 {
		t.over(x)
		return nil
	}
	v, ok := parse(body)
	changed := !there || !ok // one that was lost knows something from now on
	if changed {
		v = value{since: now}
	}
	v.prune(x.Rule, now)
	b.waiting()
	x.waiters, x.moves = x.waiters[:0], b.moves
	b.moves = nil
	for i := range x.moves {
		m := &x.moves[i]
		at := v.of(tag(m.rule, m.entry.key.Source))
		if *at = m.rule.without(*at, m.from); m.stamp != nil {
			m.to = now
			*at = m.rule.with(*at, now)
			m.swap(m.from, m.to, t)
		}
		changed = true
	}
	for _, a := range b.waiters {
		changed = t.decide(x, a, &v, tag, now) || changed
	}
	clear(b.waiters)
	b.waiters = b.waiters[:0]
	if !changed {
		t.over(x)
		return nil
	}
	if write = v.append(nil); len(write) > maxValue {
		t.silence(x)
		return nil
	}
	return write
}

// decide decides about a request by a value, into which it puts what is to be stored, if anything,
// and reports whether it does.
func (t *Table) decide(x *Exchange, a *pending, v *value, tag func(*Spec, counter.Source) uint64,
	now int64) (changed bool) {
	r, e := a.rule, a.entry
	id := tag(r, e.key.Source)
	if e.tag != id {
		if e.tag != 0 { // an operator has lifted the source since
			t.keep(e, nil, nil)
		}
		e.tag = id
	}
	at := v.of(id)
	*at, changed = r.merge(*at, r.live(e.own, now))
	// It was lost: what others had admitted as well
	if e.since != 0 && e.since != v.since && !r.Holds {
		var more bool
		*at, more = r.merge(*at, r.live(e.known, now))
		changed = changed || more
	}
	doubt := v.since + r.Window
	next, until := r.next(*at, now)
	switch {
	case a.look:
		a.end(counter.Admit)
	case r.Closed && now < doubt:
		a.until = doubt
		a.end(counter.Unknown)
	case until != 0:
		a.until = until
		e.again = now + again.Microseconds()
		if r.Holds {
			e.again = now + againHeld.Microseconds()
		}
		a.end(counter.Reject)
	default:
		a.at = next
		*at = r.with(*at, next)
		x.waiters, changed = append(x.waiters, a), true
	}
	t.keep(e, *at, e.own)
	e.since = v.since
	return changed
}

// Outcome is what became of what Read wanted written.
type Outcome uint8

const (
	Stored   Outcome = iota
	Conflict         // another edge was faster
	Unsent           // certainly nothing was done
	Unknown          // nobody knows
)

// Written takes in what became of what Read has returned. A request whose instant is late by then
// is admitted by it no more: it would arrive at its origin too long after that.
func (t *Table) Written(x *Exchange, o Outcome, wall time.Time) {
	now := wall.UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	b := x.bucket
	switch o {
	case Conflict:
		t.stats.Conflict++
		if b.tries++; b.tries < maxTries {
			b.waiters = append(x.waiters, b.waiters...) // in their order
			for i := range x.moves {
				x.moves[i].undo(t)
			}
			b.moves = append(x.moves, b.moves...)
			x.waiters, x.moves = nil, nil
			break
		}
		fallthrough
	case Unsent, Unknown:
		t.silence(x)
		return
	case Stored:
		b.tries = 0
		for i := range x.moves {
			if m := &x.moves[i]; m.stamp != nil {
				m.stamp.at, m.stamp.moves = m.to, false
				if m.stamp.back {
					t.takeBack(m.rule, m.entry, m.to)
				}
			}
		}
		for _, a := range x.waiters {
			late := a.rule.Interval == 0 && now-a.at > a.rule.late()
			if late {
				a.end(counter.NoAnswer)
			}
			if a.gone || late {
				b.moves = append(b.moves, move{rule: a.rule, entry: a.entry, from: a.at})
				continue
			}
			t.keep(a.entry, a.entry.known, a.rule.with(a.rule.live(a.entry.own, a.at), a.at))
			a.stamp = t.begin(a.rule, a.entry, a.at)
			a.end(counter.Admit)
		}
	}
	t.over(x)
}

// silence ends an exchange that came to nothing.
func (t *Table) silence(x *Exchange) {
	x.bucket.tries = 0
	for _, a := range x.waiters {
		a.end(counter.NoAnswer)
	}
	t.unmove(x.moves)
	t.over(x)
}

// over ends an exchange.
func (t *Table) over(x *Exchange) {
	b := x.bucket
	b.exchange = nil
	if len(b.waiters)+len(b.moves) > 0 {
		t.mark(b)
	} else {
		delete(t.buckets, b.key)
	}
}
