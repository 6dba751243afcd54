// Package poptest is a memcached node in memory: for the Machine in virtual time, by Node.Do, and
// for the real clients over real or in-memory connections, by Node.Listen and Node.Dial. It knows
// what Sluice asks of memcached and behaves there as memcached 1.6 does, its oddities included:
//
//   - incr keeps an item's expiry and its length (a shorter number is followed by spaces), wraps at
//     2^64, and does not save the item from eviction: only get and a new value do; decr is the
//     same, and stops at 0
//   - expiry is in whole seconds, so that an item with an expiry of 1 lives anything up to that
//   - append to an item that would get too long and append to no item answer the same
//
// A Node can be killed, restarted empty and hung, and can give wrong answers over its connections.
package poptest

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/pop/wire"
)

// ErrDown is in the Result of a command to a node that is killed, ErrHung of one to a node that is
// hung.
var (
	ErrDown = errors.New("poptest: node is down")
	ErrHung = errors.New("poptest: node does not answer")
)

const maxItem = 1 << 20

// Node is a memcached node in memory. It is safe for concurrent use.
type Node struct {
	capacity int

	mu    sync.Mutex
	items map[string]*item
	// The ring of those that are there: behind it the last used, before it the next to go
	lru      item
	there    int
	evict    uint64
	commands int // that it has carried out
	keys     int // of those
	versions uint64
	state    state
	wake     chan struct{} // closed when a hung node goes on
	net      network

	spare [][]byte // see values
	often long     // a Get of many keys that came twice in a row
	last  string
}

// long is a Get of many keys, and where they are, for who asks the same again and again. What is
// not there has an item all the same.
type long struct {
	keys  string
	items []*item
}

type state uint8

const (
	up state = iota
	down
	hung
)

type item struct {
	key        string
	value      []byte
	version    uint64
	lent       bool  // value is in a Result, so that it must not change
	expire     int64 // Unix seconds from which on it is gone; 0: never
	next, prev *item // nil: it is not there
	kept       bool  // in Node.often
}

// New makes a node with room for so many items, beyond which it evicts; 0 is no limit.
func New(capacity int) *Node {
	n := &Node{capacity: capacity}
	n.empty()
	return n
}

func (n *Node) empty() {
	n.items = make(map[string]*item)
	n.lru.next, n.lru.prev, n.there = &n.lru, &n.lru, 0
	n.often, n.last = long{}, ""
	n.versions = 0
}

// Do carries out a command at now. Node and Report of the command are of no concern to it. Values
// in a Result are read alone: others may have been given the same.
func (n *Node) Do(now time.Time, c wire.Command) wire.Result {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch n.state {
	case down:
		return wire.Result{Command: c, Status: wire.Unsent, Err: ErrDown}
	case hung:
		return wire.Result{Command: c, Status: wire.Unknown, Err: ErrHung}
	}
	n.commands, n.keys = n.commands+1, n.keys+1+strings.Count(c.Key, " ")
	return n.do(now, c)
}

func (n *Node) do(now time.Time, c wire.Command) wire.Result {
	r := wire.Result{Command: c}
	if c.Op == wire.Get {
		r.Values = n.get(now, c.Key)
		return r
	}
	it := n.find(now, c.Key)
	switch c.Op {
	case wire.Gets:
		if r.Values = n.get(now, c.Key); it != nil {
			r.Number = it.version
		}
	case wire.Cas:
		if it == nil || it.version != c.Delta {
			if r.Status = wire.NotThere; it != nil {
				r.Number = it.version // it is another
			}
			return r
		}
		n.store(now, c)
	case wire.Incr, wire.Decr:
		if it == nil {
			r.Status = wire.NotThere
			return r
		}
		v, ok := number(it.value)
		if !ok {
			r.Status, r.Err = wire.Unsent, wire.ErrNotNumber
			return r
		}
		if r.Number = v + c.Delta; c.Op == wire.Decr {
			r.Number = v - min(v, c.Delta)
		}
		it.setNumber(r.Number)
		it.version = n.version()
	case wire.Add:
		if it != nil {
			n.use(it)
			r.Status = wire.NotThere
			return r
		}
		n.store(now, c)
	case wire.Set:
		n.store(now, c)
	case wire.Delete:
		if it == nil {
			r.Status = wire.NotThere
			return r
		}
		n.remove(it)
	}
	return r
}

// longFrom is how many keys a Get has that is looked at for being asked again.
const longFrom = 32

func (n *Node) get(now time.Time, keys string) [][]byte {
	count := 1 + strings.Count(keys, " ")
	values := n.values(count)
	if count >= longFrom {
		if n.often.keys != keys && n.last == keys {
			n.keep(keys)
		}
		n.last = keys
	}
	known := n.often.items
	if count < longFrom || n.often.keys != keys {
		known = nil
	}
	for i := range values {
		var it *item
		if known != nil {
			it = n.fresh(now, known[i])
		} else {
			var k string
			k, keys, _ = strings.Cut(keys, " ")
			it = n.find(now, k)
		}
		if it != nil {
			n.use(it)
			values[i], it.lent = it.value, true
		}
	}
	return values
}

// values makes room for an answer, of many at once: a thousand small pieces of memory cost more
// than a large one.
func (n *Node) values(count int) [][]byte {
	if len(n.spare) < count {
		n.spare = make([][]byte, max(count, 1024))
	}
	values := n.spare[:count:count]
	n.spare = n.spare[count:]
	return values
}

// keep remembers where the keys of a Get are.
func (n *Node) keep(keys string) {
	for _, it := range n.often.items {
		if it.kept = false; it.next == nil {
			delete(n.items, it.key)
		}
	}
	n.often = long{keys: keys}
	for k := range strings.SplitSeq(keys, " ") {
		it := n.items[k]
		if it == nil {
			it = &item{key: k}
			n.items[k] = it
		}
		it.kept = true
		n.often.items = append(n.often.items, it)
	}
}

func (n *Node) find(now time.Time, key string) *item { return n.fresh(now, n.items[key]) }

// fresh is an item if it is there, and has not expired.
func (n *Node) fresh(now time.Time, it *item) *item {
	if it == nil || it.next == nil {
		return nil
	}
	if it.expire != 0 && now.Unix() >= it.expire {
		n.remove(it)
		return nil
	}
	return it
}

// version is what an item is that has just been stored: of a node no two are alike until it
// restarts, when they begin anew.
func (n *Node) version() uint64 {
	n.versions++
	return n.versions
}

// use makes an item the last to go.
func (n *Node) use(it *item) {
	if it.next != nil {
		it.next.prev, it.prev.next = it.prev, it.next
	}
	it.next, it.prev = n.lru.next, &n.lru
	it.next.prev, n.lru.next = it, it
}

func (n *Node) store(now time.Time, c wire.Command) {
	it := n.items[c.Key]
	if it == nil {
		it = &item{key: c.Key}
		n.items[c.Key] = it
	}
	if it.next == nil {
		n.there++
	}
	n.use(it)
	it.value, it.expire, it.version = append(it.room(), c.Value...), 0, n.version()
	switch {
	case c.Expire > 30*24*3600: // seconds since 1970, not from now
		it.expire = int64(c.Expire)
	case c.Expire > 0:
		it.expire = now.Unix() + int64(c.Expire)
	case c.Expire < 0:
		it.expire = now.Unix()
	}
	for n.capacity > 0 && n.there > n.capacity {
		n.remove(n.lru.prev)
		n.evict++
	}
}

func (n *Node) remove(it *item) {
	it.next.prev, it.prev.next = it.prev, it.next
	it.next, it.prev = nil, nil
	n.there--
	if !it.kept {
		delete(n.items, it.key)
	}
}

// number reads what incr accepts: digits, and whatever follows a space.
func number(value []byte) (uint64, bool) {
	s, _, _ := strings.Cut(string(value), " ")
	v, err := strconv.ParseUint(s, 10, 64)
	return v, err == nil
}

// room is where a new value is written: over the old one, unless that is lent. It is not nil, which
// would be no value.
func (it *item) room() []byte {
	if it.lent || it.value == nil {
		it.lent = false
		return []byte{}
	}
	return it.value[:0]
}

// setNumber writes v over the old number, in place when it fits.
func (it *item) setNumber(v uint64) {
	length := len(it.value)
	it.value = strconv.AppendUint(it.room(), v, 10)
	for len(it.value) < length {
		it.value = append(it.value, ' ')
	}
}

// Asked is how many commands the node has carried out, and of how many keys.
func (n *Node) Asked() (commands, keys int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.commands, n.keys
}

// Items is how many items the node holds, expired ones that nobody asked for since included;
// Evicted how many had to make room.
func (n *Node) Items() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.there
}

// Evicted is how many items had to make room for others.
func (n *Node) Evicted() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.evict
}

// Kill ends the node as SIGKILL ends a process: what it holds is gone, its connections are cut, new
// ones refused.
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resume(down)
	n.empty()
	n.net.cut()
}

// Restart brings a killed or living node up empty, at the same address.
func (n *Node) Restart() error {
	n.Kill()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = up
	return n.net.listenAgain(n)
}

// Hang stops the node as SIGSTOP stops a process: connections stay open and new ones are accepted,
// but nothing is answered.
func (n *Node) Hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == up {
		n.state = hung
		n.wake = make(chan struct{})
	}
}

// Resume lets a hung node go on. What it was sent meanwhile it carries out now.
func (n *Node) Resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == hung {
		n.resume(up)
	}
}

func (n *Node) resume(s state) {
	if n.state == hung {
		close(n.wake)
	}
	n.state = s
}
