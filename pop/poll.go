package pop

import (
	"time"

	"sluice/pop/placement"
	"sluice/pop/presence"
	"sluice/pop/wire"
)

// depart removes this edge's marks from the nodes, and writes into its slot that it ends, so that no edge waits for it.
func (m *Machine) depart(now time.Time) {
	for i := range m.nodes {
		if !m.Nodes.IsUp(i) {
			continue
		}
		if c, due := m.Marks.Withdraw(i); due {
			m.send(c, flight{})
		}
	}
	if node := m.Nodes.Fixed(); node >= 0 && m.presence.Key() != "" {
		m.send(m.presence.Fill(node, m.self(), now), flight{what: aPresence})
	}
}

// self is what this edge publishes about itself.
func (m *Machine) self() presence.Edge {
	self := m.Operators.Self()
	self.Ends = m.ending
	return self
}

// poll reads from nodes what changes without this edge: whether they are healthy, what is in their log and their copy
// of the operators' list, and which other edges there are.
func (m *Machine) poll(now time.Time) {
	for i := range m.nodes {
		if !m.Nodes.InUse(i) {
			continue
		}
		m.probe(i, now)
		if m.Nodes.IsUp(i) {
			m.pollNode(i, now)
		}
	}
	m.keepSlot(now)
}

// probe checks a node's health by a read of the last number of its log, if it is time to.
func (m *Machine) probe(i int, now time.Time) {
	due, lost := m.Nodes.Probe(i, now)
	if lost {
		m.giveUp(i, now)
	}
	if due {
		m.send(m.logs.Head(i), flight{what: aProbe})
	}
}

func (m *Machine) pollNode(i int, now time.Time) {
	for line := range m.nodes[i].operatorList {
		if c, due := m.Operators.Look(&m.nodes[i].operatorList[line], i, now); due {
			m.sendOperatorList(c, line)
		}
	}
	if !m.ending {
		if c, due := m.Marks.Look(i, m.jitter, now); due {
			m.send(c, flight{what: aMarksRead})
		}
	}
	if c, due := m.logs.Look(i, now); due {
		m.send(c, flight{what: aLogRead})
	}
}

// keepSlot renews this edge's slot and reads the others', if it is time to.
func (m *Machine) keepSlot(now time.Time) {
	if m.ending || !m.presence.Due(now) {
		return
	}
	for _, c := range m.presence.Keep(m.Nodes.Fixed(), m.self(), m.Operators.Awaited(now), now) {
		m.send(c, flight{what: aPresence})
	}
}

// Presence is the command that fills this edge's slot once more, if no Step has done so in time; its answer is not
// used. An owner that does not step an idle Machine must carry it out, or the other edges take a living one for gone.
// The Machine reads which others are there when it next reports something. Presence belongs to Step's goroutine.
func (m *Machine) Presence(now time.Time) (c wire.Command, overdue bool) {
	node := m.Nodes.Fixed()
	if m.ending || node < 0 || !m.presence.Overdue(placement.StepLate, now) {
		return c, false
	}
	return m.presence.Fill(node, m.self(), now), true
}

// writeLogs writes to the logs what has gathered for them.
func (m *Machine) writeLogs(now time.Time) {
	for i := range m.nodes {
		if c, b, due := m.logs.Write(i, now); due {
			m.sendBatch(c, b)
		}
	}
}
