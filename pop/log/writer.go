package log

import (
	"errors"
	"slices"
	"time"

	"sluice/pop/record"
	"sluice/pop/wire"
)

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
