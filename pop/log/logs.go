// Package log is the mitigation log, as one edge reads and writes it. Every node has one: a row of
// numbered items, each written once. An item is some records (package record). A writer gets the
// next number by incr, and stores its item under it; a reader keeps reading the next few numbers.
// So nothing is read twice, and one edge's writes do not delay another's. Numbers begin at the wall
// clock's microseconds, of which there are always more than items: those of a node that comes back
// empty go on upwards. The first is a multiple of Behind, so that a reader of a new log knows where
// it began.
//
// A number may be missing for a while, or for good: between incr and set lies a round trip, and its
// writer may end in between. It holds up nothing, is read again for two seconds, and then given up.
//
//	writing  Append gathers records for a node; Write asks for a number for what has gathered; Written takes in the answers to that, and
//	         says what follows. One batch of a node is under way at a time
//	reading  Head asks for the last number given out, and HeadRead takes it in; Look asks for items, and Looked takes them in
//
// Where Logs reports that something was missed, a log could not be read whole: what relies on it is
// read elsewhere. Nothing here does I/O or reads a clock: commands are returned, for others to
// carry out.
package log

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

const (
	// Quiet is how often a node's log is read while there is nothing in it. Only a read shows what
	// others have written, so after it has brought something it is read every 3 ms for a while.
	// Replaying real logs over eight edges, each halves the wrong decisions that delay adds, and it
	// is a small read.
	Quiet     = 15 * time.Millisecond
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
func (l *Logs) HeadRead(i int, value []byte, wall time.Time) (missed bool) {
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

// Look reads the next numbers of a node's log, if it is time to.
func (l *Logs) Look(i int, now time.Time) (c wire.Command, due bool) {
	n := &l.nodes[i]
	numbers := n.reader.Next(now, n.every(now))
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

// every is how often a log is read.
func (n *node) every(now time.Time) time.Duration {
	if now.Sub(n.reader.Found()) < livelyFor {
		return lively
	}
	return Quiet
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

// In is how soon a log is to be read or written, if nothing happens.
func (l *Logs) In(now time.Time) time.Duration {
	least := Quiet
	for i := range l.nodes {
		n := &l.nodes[i]
		least = min(least, n.every(now))
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
