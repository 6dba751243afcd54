package pop

import (
	"fmt"
	"slices"
	"time"

	"sluice/counter"
	"sluice/pop/nodename"
	"sluice/pop/wire"
)

// The list of nodes can change while edges run, on one edge after the other. While edges with the old list and edges with the new one
// share sources, those whose place differs must not be counted apart, or each would have its limit twice. So for Transition an edge
// with the new list goes by the old one, and tells the new place of a source as well: what it reports is added there too (an echo), and
// so are bits and announcements. The larger total counts. After that the new list is all. If every edge gets the new list within Transition,
// a source loses nothing but, for windows longer than that, what was counted of it before the change.
// An edge that is started with the new list while others have the old one only (a restart in place of a reload) counts moved sources apart:
// they may be admitted their limit once more.
const Transition = 5 * time.Minute

// role is what a node is to placement.
type role uint8

const (
	current role = 1 << iota // sources are placed there
	joining                  // of the new list, while a transition lasts
)

// SetNodes changes the list of nodes; the next Step begins with it. It may be called from anywhere. Errors are those of nodename.All.
func (m *Machine) SetNodes(nodes []string) error {
	names, err := nodename.All(nodes)
	switch {
	case err != nil:
		return fmt.Errorf("pop: %w", err)
	case len(names) == 0:
		return fmt.Errorf("pop: no memcached node")
	}
	m.wanted.Store(&wantedNodes{names: names, spelled: slices.Clone(nodes)})
	return nil
}

type wantedNodes struct{ names, spelled []string }

// moveNodes begins and ends transitions.
func (m *Machine) moveNodes(now time.Time) {
	if want := m.wanted.Swap(nil); want != nil {
		m.beginTransition(want, now)
	}
	if !m.moving.IsZero() && !now.Before(m.moving) {
		m.moving = time.Time{}
		for i := range m.nodes {
			if n := &m.nodes[i]; n.role&joining != 0 {
				n.role = current
			} else if n.role != 0 {
				n.role = 0
				m.down(i, now) // what is under way to it comes to nothing here
			}
		}
		m.publish()
	}
}

func (m *Machine) beginTransition(want *wantedNodes, now time.Time) {
	for i := range m.nodes {
		m.nodes[i].role &^= joining
	}
	same := true
	for i, name := range want.names {
		at := slices.IndexFunc(m.nodes, func(n node) bool { return n.name == name })
		if at < 0 {
			m.nodes = append(m.nodes, m.newNode(name, want.spelled[i], now))
			at = len(m.nodes) - 1
			m.nodes[at].role = 0
		}
		n := &m.nodes[at]
		if n.role == 0 { // it is back, or new: up until it proves otherwise
			n.up, n.answered, n.good = true, now, now
		}
		n.role |= joining
	}
	for i := range m.nodes {
		same = same && (m.nodes[i].role == 0 || m.nodes[i].role == current|joining)
	}
	if m.moving = now.Add(Transition); same {
		m.moving = now // nothing moves
	}
	m.publish()
}

// second is the new place of a source that has another one still, while a transition lasts; else -1.
func (m *Machine) second(s counter.Source, place int) int {
	if m.moving.IsZero() {
		return -1
	}
	if i := m.placeAmong(s, joining); i != place {
		return i
	}
	return -1
}

// places are the node of a source, and its new one while a transition lasts; none if no node is up.
func (m *Machine) places(s counter.Source) []int {
	first := m.place(s)
	if first < 0 {
		return nil
	}
	if second := m.second(s, first); second >= 0 {
		return []int{first, second}
	}
	return []int{first}
}

// echo adds hits that have been reported to the number at the new place of their source as well: when it is certain that they will not be
// reported again, and only those, because other edges add theirs themselves.
func (m *Machine) echo(f flight, r *wire.Result) {
	if second := m.second(f.counter.Source, r.Node); second >= 0 {
		f.part.Known = f.part.Hits
		m.sendEcho(second, wire.Incr, r.Key, f, 0)
	}
}

func (m *Machine) sendEcho(node int, op wire.Op, key string, f flight, tries uint8) {
	m.send(m.partCommand(node, op, key, f.counter, f.part), flight{what: anEcho, counter: f.counter, part: f.part, epoch: f.epoch, tries: tries})
}

// echoed learns what the new place has.
func (m *Machine) echoed(f flight, r *wire.Result, now time.Time) {
	switch {
	case f.epoch < m.epoch(f.counter.Rule, f.counter.Source): // from before an operator lifted the source
	case r.Status == wire.Done && r.Op == wire.Incr:
		m.actOn(f.counter, m.counters.Read(f.counter, f.part.Group, r.Number, now), now)
	case r.Status == wire.NotThere && f.tries < maxTries && r.Op == wire.Incr:
		m.sendEcho(r.Node, wire.Add, r.Key, f, f.tries+1)
	case r.Status == wire.NotThere && f.tries < maxTries:
		m.sendEcho(r.Node, wire.Incr, r.Key, f, f.tries+1)
	}
}

// Member is a node of the tier as an edge sees it.
type Member struct {
	Name string // as it was configured
	Up   bool
	// Joining and Leaving say that it is of the new or the old list only, while a transition lasts.
	Joining, Leaving bool
}

// Members describes the nodes, those in use. It may be called from anywhere; do not change the result.
func (m *Machine) Members() []Member { return *m.members.Load() }

// Nodes are all nodes that commands may name, by their index: more are added as lists change. It may be called from anywhere; do not
// change the result.
func (m *Machine) Nodes() []string { return *m.names.Load() }
