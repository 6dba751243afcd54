package pop

import (
	"sync/atomic"
	"time"

	"sluice/pop/marks"
	"sluice/pop/presence"
	"sluice/pop/wire"
)

// board is the marks on the nodes, and what they say.
type board struct {
	*marks.Board // nil: this edge leaves none
	trial        marks.Trial
	secrets      atomic.Pointer[Secrets]
}

// Secrets is under which secret an edge counts, and who of its PoP counts under another, as marks say, which anybody could have written.
type Secrets struct {
	Digests []string     // of the lines of this edge's secret: it counts under the first
	Apart   []marks.Edge // those that are alive; strangers first
	Held    bool         // this edge should get no requests: marks.Trial
}

func (m *Machine) newBoard(now time.Time) {
	if m.config.PoP != "" {
		m.marks.Board = marks.New(m.config.PoP, m.secret, m.id)
	}
	m.marks.trial.Began = now
	m.marks.secrets.Store(&Secrets{Digests: m.secret.Digests()})
}

// readMarks asks a node who else is there if it is time to. None of this counts as caused by requests.
func (m *Machine) readMarks(i int, now time.Time) {
	n := &m.nodes[i]
	if m.marks.Board == nil || m.ending || now.Before(n.marks) {
		return
	}
	n.marks = now.Add(m.jitter(marks.Every))
	m.send(wire.Command{Node: i, Op: wire.Get, Key: m.marks.Keys}, flight{what: aMarksRead})
}

// marksRead takes in the marks of a node, and leaves this edge's own.
func (m *Machine) marksRead(r *wire.Result, now time.Time) {
	if r.Status != wire.Done || m.ending {
		return
	}
	wall, self := m.wall(now), m.Operators.Self()
	key := m.marks.Read(r.Values, now, wall)
	m.nodes[r.Node].mark = key
	m.send(wire.Command{Node: r.Node, Op: wire.Set, Key: key, Value: m.marks.Say(wall, self.Name, self.Address), Expire: seconds(marks.Kept)}, flight{what: aMark})
	m.noteSecrets(now)
}

// takeMarks takes this edge's marks off the nodes, because it ends.
func (m *Machine) takeMarks() {
	for i := range m.nodes {
		if n := &m.nodes[i]; m.Nodes.IsUp(i) && n.mark != "" {
			m.send(wire.Command{Node: i, Op: wire.Delete, Key: n.mark}, flight{what: aDelete})
			n.mark = ""
		}
	}
}

// noteSecrets takes in who is there, under this secret and others.
func (m *Machine) noteSecrets(now time.Time) {
	if m.marks.Board == nil {
		return
	}
	s := &Secrets{Digests: m.secret.Digests(), Apart: m.marks.Apart(now)}
	met, name := 0, m.Operators.Self().Name
	m.peers.Others(func(e presence.Edge) {
		if e.Name != name { // else it is this edge's own process before
			met++
		}
	})
	s.Held = m.marks.trial.Held(met, s.Apart, now)
	m.marks.secrets.Store(s)
}

// Secrets may be called from anywhere.
func (m *Machine) Secrets() *Secrets { return m.marks.secrets.Load() }
