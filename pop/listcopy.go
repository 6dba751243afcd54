package pop

import (
	"time"

	"sluice/pop/wire"
	"sluice/pop/words"
)

// How the operators' list travels. Every node has a copy, and a head that says which it is. An edge reads the head of each node twice a
// second; if it is of a list that it has not merged, it reads that; if the node lacks something, it writes what it has: the
// list, then the head. Merging is a join, so it does not matter who writes when:
//
//	two edges write at once        the later list stands, and the head is of one of the two. The other edge finds a head that is not
//	                               its own; and whoever finds that head and list do not belong together writes both
//	a node came back empty         it has no head, and gets the list from whoever asks first
//	a list is lost, or was forged  its head is deleted by whoever finds out; then the node is as good as empty
//
// Commands of the list go to their node one at a time, by a connection of their own.

const (
	headEvery  = 500 * time.Millisecond
	headHasty  = 50 * time.Millisecond // while the node lacks something
	listExpire = 30 * 24 * 3600        // seconds, as long as memcached takes for a span of time
)

// listCopy is what an edge knows of a node's copy of the operators' list.
type listCopy struct {
	looked time.Time    // when its head was asked for last
	next   time.Time    // when to look again
	busy   bool         // a command is under way
	head   words.Digest // what was read last
	merged words.Digest // the list that was
	has    uint64       // the version of ours of which it lacked nothing
	writes words.Digest // what is being written, which was
	wrote  uint64       // this version of ours
}

// syncList goes on with a node's copy.
func (m *Machine) syncList(i int, now time.Time) {
	w := &m.nodes[i].words
	if !m.nodes[i].up || w.busy {
		return
	}
	o := &m.operators
	o.mu.Lock()
	hasty := o.latest.After(w.looked) && w.has != o.version // something was said here since
	o.mu.Unlock()
	if now.Before(w.next) && !hasty {
		return
	}
	w.next, w.looked = now.Add(m.jitter(headEvery)), now
	w.busy = true
	m.send(wire.Command{Node: i, Op: wire.Get, Way: wire.List, Key: o.headKey}, flight{what: aHead})
}

// jitter is a time a little below d that differs between edges and from time to time.
func (m *Machine) jitter(d time.Duration) time.Duration {
	m.random++
	return d*3/4 + time.Duration(mix(m.id^m.random)%uint64(d/4))
}

// listAnswered ends a command of a node's copy. One that failed is followed by another look soon.
func (m *Machine) listAnswered(r *wire.Result, now time.Time) (w *listCopy, ok bool) {
	w = &m.nodes[r.Node].words
	w.busy = false
	if ok = r.Status == wire.Done; !ok {
		w.next = now.Add(m.jitter(headHasty))
	}
	return w, ok
}

// headRead compares a node's list with ours.
func (m *Machine) headRead(r *wire.Result, now time.Time) {
	w, ok := m.listAnswered(r, now)
	if !ok {
		return
	}
	o := &m.operators
	o.mu.Lock()
	version, entries := o.version, o.list.Len()
	_, ours := o.encode(m.secret, now)
	o.mu.Unlock()
	var id words.Digest
	ok = false
	if v := r.Values[0]; v != nil {
		if id, ok = words.OpenHead(m.secret, v); !ok {
			m.stats.forged.Add(1)
		}
	}
	switch {
	case !ok && entries == 0:
	case !ok:
		m.writeList(r.Node, now)
	case id != ours && id != w.merged:
		w.head, w.busy = id, true
		m.send(wire.Command{Node: r.Node, Op: wire.Get, Way: wire.List, Key: o.listKey}, flight{what: aList})
	case id == ours:
		w.has, w.merged = version, id
	case w.has != version:
		m.writeList(r.Node, now)
	}
}

// listRead merges a node's list into ours.
func (m *Machine) listRead(r *wire.Result, now time.Time) {
	w, ok := m.listAnswered(r, now)
	if !ok {
		return
	}
	o := &m.operators
	var entries []words.Entry
	var id words.Digest
	ok = r.Values[0] != nil
	if ok {
		var err error
		if entries, id, err = words.Decode(m.secret, r.Values[0]); err != nil {
			m.stats.forged.Add(1)
			ok = false
		}
	}
	if !ok {
		w.next = now.Add(m.jitter(headHasty))
		m.send(wire.Command{Node: r.Node, Op: wire.Delete, Way: wire.List, Key: o.headKey}, flight{what: aDelete})
		return
	}
	o.mu.Lock()
	names, lacks := o.list.Merge(m.travelling(entries), now)
	if len(names) > 0 {
		o.change(names...)
	}
	version := o.version
	o.mu.Unlock()
	w.merged = id
	if id != w.head || lacks {
		m.writeList(r.Node, now)
		return
	}
	w.has = version
}

// writeList gives a node our list.
func (m *Machine) writeList(node int, now time.Time) {
	o, w := &m.operators, &m.nodes[node].words
	o.mu.Lock()
	text, id := o.encode(m.secret, now)
	w.writes, w.wrote = id, o.version
	o.mu.Unlock()
	w.busy = true
	m.send(wire.Command{Node: node, Op: wire.Set, Way: wire.List, Key: o.listKey, Value: text, Expire: listExpire}, flight{what: aListWrite})
}

// listWritten goes on to the head.
func (m *Machine) listWritten(f flight, r *wire.Result, now time.Time) {
	w := &m.nodes[r.Node].words
	w.busy = false
	w.next = now.Add(m.jitter(headHasty))
	switch {
	case r.Status != wire.Done:
	case f.what == aListWrite:
		w.busy = true
		m.send(wire.Command{Node: r.Node, Op: wire.Set, Way: wire.List, Key: m.operators.headKey, Value: words.SealHead(m.secret, w.writes), Expire: listExpire}, flight{what: aHeadWrite})
	default:
		w.merged, w.has = w.writes, w.wrote
	}
}
