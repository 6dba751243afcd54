package pop

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"sluice/counter"
)

// Edges learn how many of them share the tier from slots: each edge keeps one filled, for as long as it lives.
const (
	slots         = counter.MaxEdges
	presenceEvery = time.Second
	presenceKept  = 4 * time.Second
	edgesHold     = 10 * time.Second // a number once seen is believed so long: a lost node must not halve it
)

type presence struct {
	slot     int // ours, or -1
	keys     []string
	all      string // keys, for a Get
	next     time.Time
	edges    int
	highest  int
	highTime time.Time
}

func newPresence(s Secret) presence {
	p := presence{slot: -1, keys: make([]string, slots)}
	for i := range p.keys {
		p.keys[i] = s.edgeKey(i)
	}
	p.all = strings.Join(p.keys, " ")
	return p
}

// meet says that this edge is there and asks who else is. All edges do so on the same node.
func (m *Machine) meet(now time.Time) {
	p := &m.presence
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(presenceEvery)
	node := m.placeFixed()
	if node < 0 {
		return
	}
	if p.slot >= 0 {
		m.send(Command{Node: node, Op: Set, Key: p.keys[p.slot], Value: m.self(), Expire: seconds(presenceKept)}, flight{what: aPresence})
	}
	m.send(Command{Node: node, Op: Get, Key: p.all}, flight{what: aRollCall})
}

func (m *Machine) self() []byte { return fmt.Appendf(nil, "%016x", m.id) }

// placeFixed is the node that everybody agrees on for what belongs to no source.
func (m *Machine) placeFixed() int {
	best := -1
	for i := range m.nodes {
		if n := &m.nodes[i]; n.up && n.role&current != 0 && (best < 0 || n.hash > m.nodes[best].hash) {
			best = i
		}
	}
	return best
}

// rollCalled counts the edges and takes a free slot if this one has none, or lost it to another.
func (m *Machine) rollCalled(r *Result, now time.Time) {
	if r.Status != Done {
		return
	}
	p := &m.presence
	self, free, seen := m.self(), -1, 0
	if p.slot >= 0 && r.Values[p.slot] != nil && !bytes.Equal(r.Values[p.slot], self) {
		p.slot = -1
	}
	for i := range r.Values {
		switch v := r.Values[i]; {
		case len(v) == len(self) && !bytes.Equal(v, self):
			seen++
		case v == nil && free < 0:
			free = i
		}
	}
	if p.slot < 0 && free >= 0 {
		m.send(Command{Node: r.Node, Op: Add, Key: p.keys[free], Value: self, Expire: seconds(presenceKept)}, flight{what: aPresence, slot: uint8(free)})
	}
	p.edges = seen + 1
	if p.edges >= p.highest || now.Sub(p.highTime) > edgesHold {
		p.highest, p.highTime = p.edges, now
	}
	m.stats.edges.Store(int64(p.highest))
	if m.config.Edges == 0 {
		m.counters.SetEdges(p.highest)
	}
}

// slotAnswered keeps a slot that was free.
func (m *Machine) slotAnswered(f flight, r *Result) {
	if r.Op == Add && r.Status == Done {
		m.presence.slot = int(f.slot)
	}
}
