// Package log is the mitigation log: numbered items at each node, in which edges tell each other of
// blocks, and of counters near their limit.
package log

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

const (
	// A log whose last number has not changed is not read. Once it has, the next items are read
	// every 3 ms for a while: only a read shows what others have written. Replaying real logs over
	// eight edges, that halves the wrong decisions that delay adds, and it is a small read.
	lively    = 3 * time.Millisecond
	livelyFor = time.Second

	// Kept is how long an item stays in a log.
	Kept = 30 * time.Second

	ahead = 10 * time.Second // how far the numbers may be ahead of the clock: no edge's is
)

const _ = uint(wire.MaxKeys - MaxNumbers) // a Get has a key for each number

// Logs are those of all nodes, by their index. Stats may be called from anywhere, all else belongs
// to one goroutine.
type Logs struct {
	secret  secret.Secret
	headKey string
	nodes   []node
	pause   time.Duration // between two batches of one edge for a node
	arena   wire.Arena
	opened  []record.Record // what Looked returned

	written, lost, forged atomic.Uint64
}

type node struct {
	reader        Reader
	requested     []uint64 // last: numbers,
	requestedKeys string   // and the keys of their items
	writer        writer
}

// New makes logs of no nodes yet.
func New(s secret.Secret) *Logs {
	l := &Logs{secret: s, headKey: s.LogHeadKey()}
	l.SetEdges(1)
	return l
}

// Grow makes room for so many nodes.
func (l *Logs) Grow(nodes int) {
	for len(l.nodes) < nodes {
		l.nodes = append(l.nodes, node{})
	}
}

// SetEdges sets how many edges share the tier: all together write one item to a node in PerItem at
// most.
func (l *Logs) SetEdges(n int) { l.pause = time.Duration(max(n, 1)) * PerItem }

// Head is the read of the last number given out at a node. It is small, and what others write has
// no part in how long it takes.
func (l *Logs) Head(i int) wire.Command {
	return wire.Command{Node: i, Op: wire.Get, Key: l.headKey}
}

// HeadRead takes in what a Head brought.
func (l *Logs) HeadRead(i int, value []byte, now, wall time.Time) (missed bool) {
	r := &l.nodes[i].reader
	if value == nil {
		r.NotThere()
		return false
	}
	head, ok := wire.ParseNumber(value)
	if !ok || !plausible(head, wall) {
		l.forged.Add(1)
		return false
	}
	if head > r.head || r.empty {
		r.found = now
	}
	return r.Head(head)
}

// plausible reports whether a number can be that of an item. One below Behind is none: incr goes on
// from 0 when an intruder's number has no successor, and 0 stands for an unknown log.
func plausible(number uint64, wall time.Time) bool {
	return number >= Behind && number < uint64(wall.Add(ahead).UnixMicro())
}

// HeadIsCurrent reports whether a HeadRead of this value would change nothing.
func (l *Logs) HeadIsCurrent(i int, value []byte, wall time.Time) bool {
	head, ok := wire.ParseNumber(value)
	return value == nil || ok && plausible(head, wall) && l.nodes[i].reader.IsCurrent(head)
}

// Look reads the next numbers of a node's log, if it is time to: some are known to be there, or have
// been lately.
func (l *Logs) Look(i int, now time.Time) (c wire.Command, due bool) {
	n := &l.nodes[i]
	if !n.reader.Behind() && now.Sub(n.reader.Found()) >= livelyFor {
		return c, false
	}
	numbers := n.reader.Next(now, lively)
	if numbers == nil {
		return c, false
	}
	if !slices.Equal(numbers, n.requested) { // mostly nothing has come, and the same are read again
		keys := make([]string, len(numbers))
		for k, number := range numbers {
			keys[k] = l.secret.LogItemKey(number)
		}
		n.requested, n.requestedKeys = append(n.requested[:0], numbers...), strings.Join(keys, " ")
	}
	return wire.Command{Node: i, Op: wire.Get, Way: wire.Log, Key: n.requestedKeys}, true
}

// Looked takes in the answer to a Look, and returns the records that the items have, until the next
// Looked.
func (l *Logs) Looked(r *wire.Result, now time.Time) (records []record.Record, missed bool) {
	reader := &l.nodes[r.Node].reader
	if r.Status != wire.Done {
		reader.Failed()
		return nil, false
	}
	l.opened = l.opened[:0]
	for _, item := range r.Values {
		l.open(item)
	}
	return l.opened, reader.Read(r.Values, now)
}

func (l *Logs) open(item []byte) {
	sealed, rest := record.Cut(item)
	for ; sealed != nil; sealed, rest = record.Cut(rest) {
		if rec, ok := record.Open(l.secret, sealed); ok {
			l.opened = append(l.opened, rec)
		} else {
			l.forged.Add(1)
		}
	}
	if len(rest) > 0 {
		l.forged.Add(1) // cut off
	}
}

// FindsNothing reports whether the answer to a Look brings nothing, and nothing is missing.
func (l *Logs) FindsNothing(r *wire.Result) bool {
	return l.nodes[r.Node].reader.Settled() && !slices.ContainsFunc(r.Values,
		func(item []byte) bool { return item != nil })
}

// Moved reports whether a log has had something new within the time that its items are kept.
func (l *Logs) Moved(now time.Time) bool {
	return slices.ContainsFunc(l.nodes, func(n node) bool {
		return now.Sub(n.reader.Found()) < Kept
	})
}

// In is how soon a log is to be read or written, if nothing happens, and at most the time given.
func (l *Logs) In(least time.Duration, now time.Time) time.Duration {
	for i := range l.nodes {
		n := &l.nodes[i]
		if n.reader.Behind() || now.Sub(n.reader.Found()) < livelyFor {
			least = min(least, lively)
		}
		if len(n.writer.records) > 0 && !n.writer.underWay {
			least = min(least, max(n.writer.in(l.pause, now), 0))
		}
	}
	return least
}

// Waiting reports whether records have gathered that are not under way.
func (l *Logs) Waiting() bool {
	return slices.ContainsFunc(l.nodes, func(n node) bool { return len(n.writer.records) > 0 })
}

// Stats is how many records this edge wrote, how many of them were lost, and how many values were
// read that no edge of the PoP wrote.
func (l *Logs) Stats() (written, lost, forged uint64) {
	return l.written.Load(), l.lost.Load(), l.forged.Load()
}

const (
	Behind     = 4096 // numbers; a Reader that is further behind does not read them all
	MaxNumbers = 100  // that are read at once

	patience   = 2 * time.Second // for a number that is missing
	width      = 4               // numbers that are read at once where none is known to be there
	maxWidth   = MaxNumbers / 2
	maxMissing = MaxNumbers / 2 // numbers; more are given up
)

// A Reader knows how far a node's log has been read. Where it reports that something was missed,
// the log could not be read whole: what relies on it is read elsewhere. The zero Reader has no log.
type Reader struct {
	empty bool   // there was no log when last looked
	head  uint64 // the last number that is known to have been given out
	// The first that has been neither read nor missing; 0: nothing is known of the log
	next uint64
	// Up to this one numbers are not read again: their items may have been forgotten
	old       uint64
	missing   []missing
	width     uint64 // numbers to read that may be there
	most      uint64 // numbers to read, so that the answer comes in time
	polled    time.Time
	found     time.Time // see Found
	reading   bool
	requested []uint64 // of the read under way
}

type missing struct {
	number uint64
	since  time.Time
}

// Behind reports whether numbers were given out that have not been read.
func (r *Reader) Behind() bool { return r.next != 0 && (r.head >= r.next || len(r.missing) > 0) }

// Found is when the log last had something new: a number, or an item.
func (r *Reader) Found() time.Time { return r.found }

// NotThere notes that the node has no log.
func (r *Reader) NotThere() { r.empty = true }

// Head takes in the last number given out.
func (r *Reader) Head(number uint64) (missed bool) {
	begun := r.empty || number+Behind < r.next // or anew, by a clock that is behind
	r.head, r.empty = number, false
	switch {
	case begun:
		r.next, r.missing, r.old = number/Behind*Behind, r.missing[:0], 0
	case r.next == 0, number > r.next+Behind: // what is still there of the latest is worth reading
		r.next, r.missing, r.old = number/Behind*Behind, r.missing[:0], number
		return true
	}
	return false
}

// IsCurrent reports whether a Head of this number would change nothing.
func (r *Reader) IsCurrent(number uint64) bool {
	return !r.empty && r.next != 0 && number == r.head && number+Behind >= r.next &&
		number <= r.next+Behind
}

// Settled reports whether all numbers that were given out have been read: a Read that finds nothing
// more changes nothing.
func (r *Reader) Settled() bool { return len(r.missing) == 0 && r.head < r.next }

// Next returns which numbers to read: none if a read is under way, or the last was less than a time
// ago. Read or Failed must follow.
func (r *Reader) Next(now time.Time, every time.Duration) []uint64 {
	if r.reading || r.next == 0 || now.Sub(r.polled) < every {
		return nil
	}
	r.requested = r.requested[:0]
	for _, m := range r.missing {
		r.requested = append(r.requested, m.number)
	}
	wide := max(r.width, width)
	if r.head >= r.next {
		wide = max(wide, r.head-r.next+1)
	}
	if r.most == 0 {
		r.most = maxWidth
	}
	for k := range min(wide, r.most) {
		r.requested = append(r.requested, r.next+k)
	}
	r.reading, r.polled = true, now
	return r.requested
}

// Failed notes that the numbers were not read; perhaps they are too many at once.
func (r *Reader) Failed() {
	r.reading = false
	r.most = max(r.most/2, 1)
}

// Read takes in which of the numbers had an item: values are in the order of Next, nil where there
// is none.
func (r *Reader) Read(values [][]byte, now time.Time) (missed bool) {
	r.reading = false
	r.most = min(2*r.most, maxWidth)
	found := 0
	for i, number := range r.requested {
		if values[i] != nil {
			found++
			r.head = max(r.head, number)
			r.found = now
		}
	}
	still := r.missing[:0]
	for _, m := range r.missing {
		switch {
		case r.has(values, m.number):
		case now.Sub(m.since) < patience:
			still = append(still, m)
		default:
			missed = true
		}
	}
	r.missing = still
	for i, number := range r.requested {
		if number < r.next || number > r.head {
			continue // requested for again, or not given out yet
		}
		switch {
		case values[i] != nil || number <= r.old:
		case len(r.missing) < maxMissing:
			r.missing = append(r.missing, missing{number, now})
		default:
			missed = true
		}
		r.next = number + 1
	}
	r.width = width
	if r.head >= r.next || found > width/2 { // there is more
		r.polled = time.Time{}
		r.width = min(2*uint64(found), maxWidth)
	}
	return missed
}

// has reports whether an item was among the values of a read.
func (r *Reader) has(values [][]byte, number uint64) bool {
	for i, requested := range r.requested {
		if requested == number {
			return values[i] != nil
		}
	}
	return false
}

const (
	// PerItem is the least time between two items that all edges together write to a node.
	PerItem = 250 * time.Microsecond

	itemSize  = 32 << 10              // bytes of an item, about
	gathered  = 32 * itemSize         // at most
	again     = 25 * time.Millisecond // after a node did not take a batch
	againFull = time.Second           // after it had no memory for one
	// Ends a race between edges that begin a log, and a node that forgets
	maxTries = 4
	headKept = 30 * 24 * 3600 // seconds, as long as memcached takes for a span of time
)

// writer gathers records for a node.
type writer struct {
	records  []byte // each behind its length, 2 bytes
	paid     bool   // the cost of one of them has been set aside
	underWay bool   // a batch is
	last     time.Time
	rests    time.Time // until then nothing is written: the node did not take the last batch
}

// in is how long it is to wait.
func (w *writer) in(pause time.Duration, now time.Time) time.Duration {
	return max(pause-now.Sub(w.last), w.rests.Sub(now))
}

// Batch is an item on its way into a log.
type Batch struct {
	Paid   bool // its cost has been set aside
	text   []byte
	number uint64 // of a log that is begun
	tries  uint8
}

// Append adds a record to what gathers for a node's log. Paid says that its cost has been set
// aside. Where the node is too slow to take it, it is lost, and others find the source at first
// sight. What is not paid is left out where an item waits already: a block that comes next would
// wait behind it.
func (l *Logs) Append(i int, r *record.Record, paid bool) {
	w := &l.nodes[i].writer
	if !paid && len(w.records) >= itemSize {
		return
	}
	if len(w.records) >= gathered {
		l.lost.Add(1)
		return
	}
	w.records = record.Append(w.records, r.Seal(l.secret))
	w.paid = w.paid || paid
	l.written.Add(1)
}

// Write requests a number from a node for the records that have gathered, if it is time to.
func (l *Logs) Write(i int, now time.Time) (c wire.Command, b *Batch, due bool) {
	w := &l.nodes[i].writer
	if len(w.records) == 0 || w.underWay || w.in(l.pause, now) > 0 {
		return c, nil, false
	}
	rest := w.records
	for len(rest) > 0 && len(w.records)-len(rest) < itemSize {
		_, rest = record.Cut(rest)
	}
	b = &Batch{Paid: w.paid, text: slices.Clone(w.records[:len(w.records)-len(rest)])}
	w.records = append(w.records[:0], rest...)
	w.paid = b.Paid && len(rest) > 0
	w.underWay, w.last = true, now
	return l.number(i), b, true
}

func (l *Logs) number(i int) wire.Command {
	return wire.Command{Node: i, Op: wire.Incr, Report: true, Key: l.headKey, Delta: 1}
}

// Written takes in the answer to a command of a batch, and returns the command that follows, if one
// does; the answer to a Delete is not used. A batch is stored under the number that it got. A log
// that is not there begins at the clock.
func (l *Logs) Written(b *Batch, r *wire.Result, up bool, now,
	wall time.Time) (c wire.Command, follows bool) {
	switch done := r.Status == wire.Done; {
	case r.Op == wire.Set && done:
		l.nodes[r.Node].writer.underWay = false
		return c, false
	case r.Op == wire.Set:
	case done && r.Op == wire.Incr && plausible(r.Number, wall):
		return l.store(r.Node, r.Number, b), true
	case done && r.Op == wire.Add:
		return l.store(r.Node, b.number, b), true
	case r.Status == wire.NotThere && b.tries < maxTries:
		b.tries++
		c = l.number(r.Node)
		if r.Op == wire.Incr {
			b.number = uint64(wall.UnixMicro()) / Behind * Behind
			c = wire.Command{Node: r.Node, Op: wire.Add, Report: true, Key: l.headKey,
				Value: l.arena.Number(b.number), Expire: headKept}
		}
		return c, true
	case done || errors.Is(r.Err, wire.ErrNotNumber): // it was written by no edge
		l.forged.Add(1)
		c, follows = wire.Command{Node: r.Node, Op: wire.Delete, Report: true, Key: l.headKey}, true
	}
	l.returned(b, r, up, now)
	return c, follows
}

func (l *Logs) store(i int, number uint64, b *Batch) wire.Command {
	return wire.Command{Node: i, Op: wire.Set, Report: true, Key: l.secret.LogItemKey(number),
		Value: b.text, Expire: wire.Seconds(Kept)}
}

// returned writes a batch again, under another number: records may arrive twice. It does so after a
// while, because a node that does not take it now is not likely to at once. Records for a node that
// is down are lost, and their sources found at first sight.
func (l *Logs) returned(b *Batch, r *wire.Result, up bool, now time.Time) {
	w := &l.nodes[r.Node].writer
	w.underWay = false
	switch {
	case errors.Is(r.Err, wire.ErrFull):
		w.rests = now.Add(againFull)
	case r.Status == wire.Unsent && !errors.Is(r.Err, wire.ErrNotNumber):
		w.rests = now.Add(again)
	}
	if up && len(w.records)+len(b.text) < gathered {
		w.records = append(w.records, b.text...)
		w.paid = w.paid || b.Paid
		return
	}
	l.lost.Add(uint64(record.Count(b.text)))
}
