// Package poptest is a memcached node in memory: for the Machine in virtual time, by Node.Do, and for the real clients over
// real or in-memory connections, by Node.Listen and Node.Dial. It knows what Sluice asks of memcached and behaves there as
// memcached 1.6 does, its oddities included:
//
//   - incr keeps an item's expiry and its length (a shorter number is followed by spaces), wraps at 2^64, and does not
//     save the item from eviction: only get and a new value do
//   - expiry is in whole seconds, so that an item with an expiry of 1 lives anything up to that
//   - append to an item that would get too long and append to no item answer the same
//
// A Node can be killed, restarted empty and hung, and can give wrong answers over its connections.
package poptest

import (
	"container/list"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/pop/wire"
)

// ErrDown is in the Result of a command to a node that is killed, ErrHung of one to a node that is hung.
var (
	ErrDown = errors.New("poptest: node is down")
	ErrHung = errors.New("poptest: node does not answer")
)

const maxItem = 1 << 20

// Node is a memcached node in memory. It is safe for concurrent use.
type Node struct {
	capacity int

	mu    sync.Mutex
	items map[string]*list.Element // of *item
	lru   *list.List               // the next to go is at the back
	evict uint64
	state state
	wake  chan struct{} // closed when a hung node goes on
	net   network

	answers arena
}

// arena is where answers are made, because a thousand small pieces of memory cost more than a large one.
type arena struct {
	values [][]byte
	bytes  []byte
}

const arenaSize = 1024

func (a *arena) slots(n int) [][]byte {
	if len(a.values) < n {
		a.values = make([][]byte, max(n, arenaSize))
	}
	values := a.values[:n:n]
	a.values = a.values[n:]
	return values
}

func (a *arena) copy(value []byte) []byte {
	n := len(value)
	if a.bytes == nil || len(a.bytes) < n {
		a.bytes = make([]byte, max(n, arenaSize))
	}
	text := a.bytes[:n:n]
	a.bytes = a.bytes[n:]
	copy(text, value)
	return text
}

type state uint8

const (
	up state = iota
	down
	hung
)

type item struct {
	key    string
	value  []byte
	expire int64 // Unix seconds from which on it is gone; 0: never
}

// New makes a node with room for so many items, beyond which it evicts; 0 is no limit.
func New(capacity int) *Node {
	n := &Node{capacity: capacity}
	n.empty()
	return n
}

func (n *Node) empty() {
	n.items = make(map[string]*list.Element)
	n.lru = list.New()
}

// Do carries out a command at now. Node and Report of the command are of no concern to it. Values in a Result are copies.
func (n *Node) Do(now time.Time, c wire.Command) wire.Result {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch n.state {
	case down:
		return wire.Result{Command: c, Status: wire.Unsent, Err: ErrDown}
	case hung:
		return wire.Result{Command: c, Status: wire.Unknown, Err: ErrHung}
	}
	return n.do(now, c)
}

func (n *Node) do(now time.Time, c wire.Command) wire.Result {
	r := wire.Result{Command: c}
	if c.Op == wire.Get {
		r.Values = n.answers.slots(1 + strings.Count(c.Key, " "))
		keys := c.Key
		for i := range r.Values {
			var k string
			k, keys, _ = strings.Cut(keys, " ")
			if e := n.find(now, k); e != nil {
				n.lru.MoveToFront(e)
				r.Values[i] = n.answers.copy(e.Value.(*item).value)
			}
		}
		return r
	}
	e := n.find(now, c.Key)
	switch c.Op {
	case wire.Incr:
		if e == nil {
			r.Status = wire.NotThere
			return r
		}
		it := e.Value.(*item)
		v, ok := number(it.value)
		if !ok {
			r.Status, r.Err = wire.Unsent, wire.ErrNotNumber
			return r
		}
		r.Number = v + c.Delta
		it.setNumber(r.Number)
	case wire.Add:
		if e != nil {
			n.lru.MoveToFront(e)
			r.Status = wire.NotThere
			return r
		}
		n.store(now, c)
	case wire.Set:
		n.store(now, c)
	case wire.Delete:
		if e == nil {
			r.Status = wire.NotThere
			return r
		}
		n.remove(e)
	}
	return r
}

func (n *Node) find(now time.Time, key string) *list.Element {
	e := n.items[key]
	if e == nil {
		return nil
	}
	if x := e.Value.(*item).expire; x != 0 && now.Unix() >= x {
		n.remove(e)
		return nil
	}
	return e
}

func (n *Node) store(now time.Time, c wire.Command) {
	if e := n.items[c.Key]; e != nil {
		n.remove(e)
	}
	it := &item{key: c.Key, value: append([]byte(nil), c.Value...)}
	switch {
	case c.Expire > 30*24*3600: // seconds since 1970, not from now
		it.expire = int64(c.Expire)
	case c.Expire > 0:
		it.expire = now.Unix() + int64(c.Expire)
	case c.Expire < 0:
		it.expire = now.Unix()
	}
	n.items[c.Key] = n.lru.PushFront(it)
	for n.capacity > 0 && n.lru.Len() > n.capacity {
		n.remove(n.lru.Back())
		n.evict++
	}
}

func (n *Node) remove(e *list.Element) {
	delete(n.items, e.Value.(*item).key)
	n.lru.Remove(e)
}

// number reads what incr accepts: digits, and whatever follows a space.
func number(value []byte) (uint64, bool) {
	s, _, _ := strings.Cut(string(value), " ")
	v, err := strconv.ParseUint(s, 10, 64)
	return v, err == nil
}

// setNumber writes v over the old number, in place when it fits.
func (it *item) setNumber(v uint64) {
	length := len(it.value)
	it.value = strconv.AppendUint(it.value[:0], v, 10)
	for len(it.value) < length {
		it.value = append(it.value, ' ')
	}
}

// Items is how many items the node holds, expired ones that nobody asked for since included; Evicted how many had to make room.
func (n *Node) Items() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lru.Len()
}

// Evicted is how many items had to make room for others.
func (n *Node) Evicted() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.evict
}

// Kill ends the node as SIGKILL ends a process: what it holds is gone, its connections are cut, new ones refused.
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

// Hang stops the node as SIGSTOP stops a process: connections stay open and new ones are accepted, but nothing is answered.
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
