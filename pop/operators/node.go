package operators

import (
	"time"

	"sluice/pop/operatorlog"
	"sluice/pop/wire"
)

// How the operators' list travels. Every node has a copy, and a head with its version. An edge
// reads the head of each node twice a second; if it is of a list that it has not merged, it reads
// that; if the node lacks something, it writes what it has: the list, then the head. Merging is a
// join, so the order of writes does not matter:
//
//	two edges write at once        the later list stands, and the head is of one of the two. The other edge finds a head that is not
//	                               its own; and whoever finds that head and list do not belong together writes both
//	a node came back empty         it has no head, and gets the list from whoever asks first
//	a list is lost, or was forged  its head is deleted by whoever finds out; then the node is as good as empty
// While the secret replaces another, a node has a copy under each, and an edge that has both keeps
// both. So an order given at an edge that has only the old one, or only the new one, reaches all.
//
// Commands of the list go to their node one at a time, by a connection of their own.

const (
	headEvery = 500 * time.Millisecond
	// While the node lacks something, or an operator waits for the outcome
	headHasty  = 50 * time.Millisecond
	listExpire = 30 * 24 * 3600 // seconds, as long as memcached takes for a span of time
)

// Node is what an edge knows of a node's copy of the list, under one secret. The zero Node is
// empty, and is for the secret in use.
type Node struct {
	line   int // of the secret
	doing  doing
	looked time.Time          // when its head was last read
	next   time.Time          // when to look again
	head   operatorlog.Digest // what was read last
	merged operatorlog.Digest // the list that was
	has    uint64             // the version of ours of which it lacked nothing
	writes operatorlog.Digest // what is being written, which was
	wrote  uint64             // this version of ours
}

// doing is the command to a node's copy that is under way.
type doing uint8

const (
	nothing doing = iota
	readingHead
	readingList
	writingList
	writingHead
)

// Looking reports whether the command under way to a node's copy reads its head.
func (w *Node) Looking() bool { return w.doing == readingHead }

// Nodes are for the copies of a node: one under each secret.
func (l *List) Nodes() []Node {
	list := make([]Node, len(l.sealed))
	for i := range list {
		list[i].line = i
	}
	return list
}

// Look is the command that reads the head of a node's ith copy, if it is time to.
func (l *List) Look(w *Node, i int, now time.Time) (c wire.Command, due bool) {
	if w.doing != nothing {
		return c, false
	}
	l.mu.Lock()
	hasty := l.latest.After(w.looked) && w.has != l.version // something was said here since
	l.mu.Unlock()
	if now.Before(w.next) && !hasty {
		return c, false
	}
	every := headEvery
	if l.Awaited(now) {
		every = headHasty
	}
	w.next, w.looked = now.Add(l.config.Jitter(every)), now
	w.doing = readingHead
	return wire.Command{Node: i, Op: wire.Get, Way: wire.List, Key: l.sealed[w.line].headKey}, true
}

// Answered takes in the answer to a command of a node's copy, and returns the command that follows,
// if one does. The answer to a Delete is not used; that to any other command comes here. One that
// failed is followed by another look soon.
func (l *List) Answered(w *Node, r *wire.Result, now time.Time) (c wire.Command, follows bool) {
	was := w.doing
	w.doing = nothing
	if r.Status != wire.Done || was >= writingList {
		w.next = now.Add(l.config.Jitter(headHasty))
	}
	switch {
	case r.Status != wire.Done:
		return c, false
	case was == readingHead:
		return l.headRead(w, r, now)
	case was == readingList:
		return l.listRead(w, r, now)
	case was == writingList:
		w.doing = writingHead
		return wire.Command{Node: r.Node, Op: wire.Set, Way: wire.List,
			Key: l.sealed[w.line].headKey, Value: operatorlog.SealHead(l.sealed[w.line].secret,
				w.writes), Expire: listExpire}, true
	}
	w.merged, w.has = w.writes, w.wrote
	return c, false
}

// headRead compares a node's list with ours.
func (l *List) headRead(w *Node, r *wire.Result, now time.Time) (c wire.Command, follows bool) {
	l.mu.Lock()
	version, entries := l.version, l.list.Len()
	_, ours := l.encode(w.line, now)
	l.mu.Unlock()
	var id operatorlog.Digest
	ok := false
	if v := r.Values[0]; v != nil {
		if id, ok = operatorlog.OpenHead(l.sealed[w.line].secret, v); !ok {
			l.forged.Add(1)
		}
	}
	switch {
	case !ok && entries == 0:
	case !ok:
		return l.writeList(w, r.Node, now), true
	case id != ours && id != w.merged:
		w.head, w.doing = id, readingList
		return wire.Command{Node: r.Node, Op: wire.Get, Way: wire.List,
			Key: l.sealed[w.line].listKey}, true
	case id == ours:
		w.has, w.merged = version, id
	case w.has != version:
		return l.writeList(w, r.Node, now), true
	}
	return c, false
}

// listRead merges a node's list into ours.
func (l *List) listRead(w *Node, r *wire.Result, now time.Time) (c wire.Command, follows bool) {
	var entries []operatorlog.Entry
	var id operatorlog.Digest
	ok := r.Values[0] != nil
	if ok {
		var err error
		if entries, id, err = operatorlog.Decode(l.sealed[w.line].secret, r.Values[0]); err != nil {
			l.forged.Add(1)
			ok = false
		}
	}
	if !ok {
		w.next = now.Add(l.config.Jitter(headHasty))
		return wire.Command{Node: r.Node, Op: wire.Delete, Way: wire.List,
			Key: l.sealed[w.line].headKey}, true
	}
	l.mu.Lock()
	names, lacks := l.list.Merge(l.travelling(entries), now)
	if len(names) > 0 {
		l.change(names...)
	}
	version := l.version
	l.mu.Unlock()
	w.merged = id
	if id != w.head || lacks {
		return l.writeList(w, r.Node, now), true
	}
	w.has = version
	return c, false
}

// writeList gives a node our list; the head follows.
func (l *List) writeList(w *Node, node int, now time.Time) wire.Command {
	l.mu.Lock()
	text, id := l.encode(w.line, now)
	w.writes, w.wrote = id, l.version
	l.mu.Unlock()
	w.doing = writingList
	return wire.Command{Node: node, Op: wire.Set, Way: wire.List, Key: l.sealed[w.line].listKey,
		Value: text, Expire: listExpire}
}

// Forged is how many values were read that were no list or head under the PoP's secret.
func (l *List) Forged() uint64 { return l.forged.Load() }
