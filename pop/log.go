package pop

import (
	"errors"
	"slices"
	"strings"
	"time"

	"sluice/mitigation"
	"sluice/pop/log"
	"sluice/pop/record"
	"sluice/pop/wire"
)

// What is written to the mitigation log (package log), and when. Whoever has missed an item reads bits again at the next report of
// their sources (counter.Table.Missed).
const (
	logKept   = 30 * time.Second
	logItem   = 32 << 10         // bytes of an item, about
	headAhead = 10 * time.Second // how far the numbers may be ahead of the clock: no edge's is
	perItem   = 250 * time.Microsecond
	logAgain  = 25 * time.Millisecond // after a node did not take a batch
	logFull   = time.Second           // after it had no memory for one
)

const _ = uint(wire.MaxKeys - log.MaxNumbers) // a Get has a key for each number

// logWriter gathers records for a node. One batch is under way at a time, and all edges together write one item in perItem at most.
type logWriter struct {
	records  []byte // each behind its length, 2 bytes
	paid     bool   // reports have set the cost of one of them aside (perRequest)
	underWay bool
	last     time.Time
	rests    time.Time // until then nothing is written: the node did not take the last batch
}

// appendLog adds a record to the log of a node. Paid says that reports have set its cost aside. What is not paid is left out where an item
// waits already: a block that comes next would wait behind it.
func (m *Machine) appendLog(node int, r record.Record, paid bool) {
	w := &m.nodes[node].writer
	if !paid && len(w.records) >= logItem {
		return
	}
	if len(w.records) >= 32*logItem { // the node is too slow for it: others find the source at first sight
		m.stats.logLost.Add(1)
		return
	}
	w.records = record.Append(w.records, r.Seal(m.secret))
	w.paid = w.paid || paid
	m.stats.logRecords.Add(1)
}

// writeLogs asks for numbers for what has gathered.
func (m *Machine) writeLogs(now time.Time) {
	for i := range m.nodes {
		w := &m.nodes[i].writer
		if len(w.records) == 0 || w.underWay || m.writesIn(w, now) > 0 {
			continue
		}
		rest := w.records
		for len(rest) > 0 && len(w.records)-len(rest) < logItem {
			_, rest = record.Cut(rest)
		}
		batch := slices.Clone(w.records[:len(w.records)-len(rest)])
		w.records = append(w.records[:0], rest...)
		paid := w.paid
		w.paid = paid && len(rest) > 0
		w.underWay, w.last = true, now
		m.send(wire.Command{Node: i, Op: wire.Incr, Report: true, Key: m.headKey, Delta: 1}, flight{what: aNumber, batch: batch, paid: paid})
	}
}

// writesIn is how long a writer is to wait.
func (m *Machine) writesIn(w *logWriter, now time.Time) time.Duration {
	return max(m.logPause()-now.Sub(w.last), w.rests.Sub(now))
}

func (m *Machine) logPause() time.Duration {
	return time.Duration(max(m.peers.Highest(), 1)) * perItem
}

// numberAnswered stores a batch under the number that it got. A log that is not there begins at the clock.
func (m *Machine) numberAnswered(f flight, r *wire.Result, now time.Time) {
	switch {
	case r.Status == wire.Done && r.Op == wire.Incr && m.plausible(r.Number, now):
		m.storeBatch(r.Node, r.Number, f)
		return
	case r.Status == wire.Done && r.Op == wire.Add:
		m.storeBatch(r.Node, f.number, f)
		return
	case r.Status == wire.NotThere && f.tries < maxTries:
		f.tries++
		c := wire.Command{Node: r.Node, Op: wire.Incr, Report: true, Key: r.Key, Delta: 1}
		if r.Op == wire.Incr {
			f.number = uint64(m.wall(now).UnixMicro()) / log.Behind * log.Behind
			c.Op, c.Value, c.Expire = wire.Add, m.arena.Number(f.number), seconds(30*24*time.Hour)
		}
		m.send(c, f)
		return
	case r.Status == wire.Done || errors.Is(r.Err, wire.ErrNotNumber): // somebody else wrote it
		m.stats.forged.Add(1)
		m.send(wire.Command{Node: r.Node, Op: wire.Delete, Report: true, Key: r.Key}, flight{what: aDelete})
	}
	m.batchReturned(r, f, now)
}

// plausible reports whether a number can be that of a log's item. One below log.Behind is none: incr goes on from 0 when an intruder's
// number has no successor, and 0 says that nothing is known of a log.
func (m *Machine) plausible(number uint64, now time.Time) bool {
	return number >= log.Behind && number < uint64(m.wall(now).Add(headAhead).UnixMicro())
}

func (m *Machine) storeBatch(node int, number uint64, f flight) {
	m.send(wire.Command{Node: node, Op: wire.Set, Report: true, Key: m.secret.LogItemKey(number), Value: f.batch, Expire: seconds(logKept)},
		flight{what: aBatch, batch: f.batch, paid: f.paid})
}

func (m *Machine) batchAnswered(f flight, r *wire.Result, now time.Time) {
	if r.Status != wire.Done {
		m.batchReturned(r, f, now)
		return
	}
	m.nodes[r.Node].writer.underWay = false
}

// batchReturned writes a batch again, under another number: what a record says may be said twice. It does so after a while, because a
// node that does not take it now is not likely to at once. Records for a node that is down are lost, and their sources found at first
// sight.
func (m *Machine) batchReturned(r *wire.Result, f flight, now time.Time) {
	n, batch := &m.nodes[r.Node], f.batch
	n.writer.underWay = false
	switch {
	case errors.Is(r.Err, wire.ErrFull):
		n.writer.rests = now.Add(logFull)
	case r.Status == wire.Unsent && !errors.Is(r.Err, wire.ErrNotNumber):
		n.writer.rests = now.Add(logAgain)
	}
	if n.up && len(n.writer.records)+len(batch) < 32*logItem {
		n.writer.records = append(n.writer.records, batch...)
		n.writer.paid = n.writer.paid || f.paid
		return
	}
	m.stats.logLost.Add(uint64(record.Count(batch)))
}

// logHeadRead takes in the last number given out, as a probe has brought it.
func (m *Machine) logHeadRead(n *node, value []byte, now time.Time) {
	if value == nil {
		n.log.NotThere()
		return
	}
	head, ok := wire.ParseNumber(value)
	switch {
	case !ok || !m.plausible(head, now):
		m.stats.forged.Add(1)
	case n.log.Head(head):
		m.counters.Missed(now)
	}
}

// readLog asks for the next numbers of a node's log if it is time to.
func (m *Machine) readLog(i int, now time.Time) {
	n := &m.nodes[i]
	if !n.up {
		return
	}
	numbers := n.log.Next(now, m.pollEvery(n, now))
	if numbers == nil {
		return
	}
	if !slices.Equal(numbers, n.asked) { // mostly nothing has come, and the same are asked for
		keys := make([]string, len(numbers))
		for k, number := range numbers {
			keys[k] = m.secret.LogItemKey(number)
		}
		n.asked, n.askedKeys = append(n.asked[:0], numbers...), strings.Join(keys, " ")
	}
	m.send(wire.Command{Node: i, Op: wire.Get, Way: wire.Log, Key: n.askedKeys}, flight{what: aLogRead})
}

// logAnswered learns what the items have that were there.
func (m *Machine) logAnswered(r *wire.Result, now time.Time) {
	l := &m.nodes[r.Node].log
	if r.Status != wire.Done {
		l.Failed()
		return
	}
	for _, item := range r.Values {
		m.learnAll(item, now)
	}
	if l.Read(r.Values, now) {
		m.counters.Missed(now)
	}
}

// learnAll takes in the records of an item.
func (m *Machine) learnAll(item []byte, now time.Time) {
	sealed, rest := record.Cut(item)
	for ; sealed != nil; sealed, rest = record.Cut(rest) {
		if rec, ok := record.Open(m.secret, sealed); !ok {
			m.stats.forged.Add(1)
		} else if m.learn(rec, now) && rec.By != mitigation.ByPeer { // whose verdict fell in another PoP
			m.stats.propagation.Observe(m.wall(now).Sub(rec.Start))
		}
	}
	if len(rest) > 0 {
		m.stats.forged.Add(1) // cut off
	}
}
