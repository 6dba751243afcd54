package inflight

import (
	"time"

	"sluice/counter"
)

// What is said to the tier costs at most, with adding a number that was not there before it is
// counted up:
//
//	a request of a key that this edge has not seen since half a second ago, or in an epoch    2 add, 2 incr, and 2 decr when it ends
//	a request of any other                                                                    2 incr, 2 decr
//	a live key, edge and second                                                               an incr; of the first edge 2, and an add
//
// It is less where requests share an exchange, and in the fifth of a second in which no neighbour
// is kept. A command has about 45 bytes.

// Exchange is what is said to the tier of a key at once. All its parts must be sent to its node in
// one pipeline, and each answered once.
type Exchange struct {
	Key
	Node  int
	Parts []Part

	entry   *entry // nil: it was given up
	decides uint32 // epoch; 0: no request waits for it; undecided: those that do get no answer
	members int32  // requests that wait, when it was made
	open    int    // parts without an answer
	room    [2]Part
}

// Part is what is said of one epoch.
type Part struct {
	Epoch  uint32
	Delta  int32 // to be added, or, below 0, to be taken
	Create bool  // the number is to be added as 0 first, unless there is one

	outcome Outcome
	total   uint64
}

const undecided = 1<<32 - 1

// Outcome is what became of a part.
type Outcome uint8

const (
	Counted Outcome = iota // the total is known
	Missing                // there is no number
	Unsent                 // certainly nothing was done
	Unknown                // nobody knows
)

// Due appends the exchanges that are due, as many as buf has room for: more are due as long as
// Behind reports it. nodeOf returns the node of a source; less than 0: it has none. Moved says that
// the node may have changed since the last call, or that the wall clock has stepped.
func (t *Table) Due(buf []*Exchange, wall time.Time, moved bool,
	nodeOf func(counter.Source) int) []*Exchange {
	first, decides, last := epochs(wall)
	t.mu.Lock()
	defer t.mu.Unlock()
	if moved && t.last != 0 {
		t.unsettled = wall.Add(settling)
	}
	if moved || first != t.first || last != t.last {
		t.first, t.last, t.pass = first, last, len(t.list)
	}
	send := func(e *entry, passes bool) {
		if x := t.exchange(e, passes, decides, wall, nodeOf); x != nil {
			buf = append(buf, x)
		}
	}
	n := 0
	for ; n < len(t.dirty) && len(buf) < cap(buf); n++ {
		e := t.dirty[n]
		if e.dirty = false; !e.out {
			send(e, false)
		}
	}
	t.dirty = append(t.dirty[:0], t.dirty[n:]...)
	for looked := 0; t.pass > 0 && looked < passAtOnce && len(buf) < cap(buf); looked++ {
		if t.pass = min(t.pass, len(t.list)); t.pass == 0 {
			break
		}
		t.pass-- // downwards: the entry that moves into a removed one's index has been visited
		e := t.list[t.pass]
		e.failed = false
		send(e, true)
	}
	return buf
}

// settling is how long after nodes were lost or came back, or clocks stepped, the tier's numbers
// decide nothing: edges notice one after the other, and write what they hold to the new node. Rules
// go by their failure policies meanwhile.
const settling = 100 * time.Millisecond

// passAtOnce bounds how long a Due holds up requests.
const passAtOnce = 1024

// Behind reports whether the last Due left something for the next.
func (t *Table) Behind() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pass > 0 || len(t.dirty) > 0
}

// exchange is what is to be said of an entry; nil: nothing, or not yet. An entry of which nothing
// is left to say is removed by the next pass over all, half a second later, or, where there are
// many, at once: a client that comes back costs two commands less.
func (t *Table) exchange(e *entry, passes bool, decides uint32, wall time.Time,
	nodeOf func(counter.Source) int) *Exchange {
	node := nodeOf(e.key.Source)
	if x := e.exchange; x != nil {
		if node == x.Node {
			return nil // it is looked at again when that is answered
		}
		x.entry, e.exchange = nil, nil
		if e.sent != nil {
			close(e.sent.Reply)
			e.sent = nil
		}
	}
	if node != e.node {
		e.node, e.stored = node, [2]stored{}
	}
	if e.next != nil && (e.next.waiting == 0 && !e.next.looks || node < 0) {
		close(e.next.Reply)
		e.next = nil
	}
	waited := e.next != nil
	var x *Exchange
	if node >= 0 && (waited || !e.failed) {
		for k := t.first; k <= t.last; k++ {
			s := &e.stored[k&1]
			if s.epoch != k {
				*s = stored{epoch: k}
			}
			if s.n == e.held && !(waited && k == decides) {
				continue
			}
			if x == nil {
				x = t.make(e)
			}
			x.Parts = append(x.Parts, Part{Epoch: k, Delta: e.held - s.n, Create: !s.there &&
				(waited || s.missing)})
		}
	}
	switch {
	case x != nil:
		x.Node, x.open = node, len(x.Parts)
		if e.exchange = x; waited {
			e.sent, e.next = e.next, nil
			x.decides, x.members = decides, int32(e.sent.waiting)
			// More: the clock has stepped back
			if d := t.unsettled.Sub(wall); d > 0 && d <= settling {
				x.decides = undecided
			}
			e.sent.kept = 0 // requests that went on before are among those that hold a slot
		}
	case e.held == 0 && !wall.Before(e.full) && (passes || len(t.list) > maxIdle):
		t.remove(e)
	}
	return x
}

func (t *Table) make(e *entry) (x *Exchange) {
	if n := len(t.spare); n > 0 {
		x, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		x = new(Exchange)
	}
	*x = Exchange{Key: e.key, entry: e}
	x.Parts = x.room[:0]
	return x
}

// Answered takes in what became of a part, and its total.
func (t *Table) Answered(x *Exchange, part int, o Outcome, total uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &x.Parts[part]
	p.outcome, p.total = o, total
	if x.open--; x.open > 0 {
		return
	}
	if e := x.entry; e != nil {
		e.exchange = nil
		t.learn(e, x)
		t.mark(e)
	}
	x.entry = nil
	t.spare = append(t.spare, x)
}

// learn takes in an exchange.
func (t *Table) learn(e *entry, x *Exchange) {
	missing, used, known := false, int64(0), false
	for i := range x.Parts {
		p := &x.Parts[i]
		s := &e.stored[p.Epoch&1]
		if s.epoch != p.Epoch {
			continue
		}
		switch p.outcome {
		case Counted:
			s.n, s.there, s.missing = s.n+p.Delta, true, false
			// The next epoch's number is never too large, and has all that is held as soon as every
			// edge has carried it there.
			if p.Epoch >= x.decides && p.total < 1<<32 {
				used, known = max(used, int64(p.total)), known || p.Epoch == x.decides
			}
		case Missing:
			*s = stored{epoch: p.Epoch, missing: true}
			if p.Create { // its node has no memory for it
				e.failed = true
			} else {
				missing = true
			}
		case Unknown:
			// Too much may stand there until the epoch ends, never too little: what may have been
			// taken is not taken again.
			s.n += min(p.Delta, 0)
			e.failed = true
		case Unsent:
			e.failed = true
		}
	}
	b := e.sent
	if e.sent = nil; b == nil {
		return
	}
	switch {
	case known:
		b.used = uint32(used)
		b.rank(int64(b.limit) - (used - int64(x.members)) - int64(b.kept))
	case missing && e.next == nil && (b.waiting > 0 || b.looks): // once more, and it is created
		e.next = b
		return
	}
	close(b.Reply)
}

// An epoch is a second of the wall clock. Its number decides while it lasts. Edges keep it from
// overlap before it begins, when they carry what they hold into it, until overlap after it has
// ended, for edges whose clocks are behind. So clocks may differ by overlap, less the time that
// carrying takes: an edge that is further behind or ahead counts apart.
//
// What a dead edge held stands in the number of the epoch in which it died, and in that of the next
// if it died within overlap of that: for 1.4 s at most.
const (
	epoch   = time.Second
	overlap = 400 * time.Millisecond

	// Lifetime is the seconds after which the tier forgets a number. It is kept for 1.8 s, clocks
	// may differ by twice overlap, and memcached forgets up to a second early.
	Lifetime = 4
)

// epochs are those that are kept at an instant, first to last, and the one that decides.
func epochs(wall time.Time) (first, decides, last uint32) {
	of := func(t time.Time) uint32 { return uint32(t.UnixNano() / int64(epoch)) }
	return of(wall.Add(-overlap)), of(wall), of(wall.Add(overlap))
}
