package pop

import (
	"time"

	"sluice/counter"
	"sluice/pop/presence"
	"sluice/pop/wire"
)

const (
	presenceEvery = time.Second
	presenceHasty = 100 * time.Millisecond // while this edge waits for a slot, or for others to have a word of its operators
)

// peers is who shares the tier.
type peers struct {
	presence.Slots
	next time.Time // when they are read again
	told time.Time // when our slot was last filled
	news bool      // what is in force here of the operators' list has changed since that was told
	idle bool      // by Presence, and until it reports something this edge need not know who is there
}

// keepSlot says that this edge is there and asks who else is. All edges do so on the same node.
func (m *Machine) keepSlot(now time.Time) {
	p := &m.peers
	if m.ending || now.Before(p.next) {
		return
	}
	p.next, p.idle = now.Add(presenceEvery), false
	if p.Key() == "" && !p.Full() || m.Operators.Awaited(now) {
		p.next = now.Add(presenceHasty)
	}
	node := m.placeFixed()
	if node < 0 {
		return
	}
	if p.Key() != "" && (now.Sub(p.told) >= presenceEvery/2 || p.news) {
		p.told, p.news = now, false
		m.sendPresence(node, wire.Set, p.Key(), flight{what: aPresence}, now)
	}
	m.send(wire.Command{Node: node, Op: wire.Get, Key: p.Keys}, flight{what: aSlotsRead})
}

// Presence is the command that fills this edge's slot once more, if no Step has done so in time; its answer is nobody's. Who does not
// step a Machine while nothing happens carries it out, else the other edges hold a living one for gone. The Machine reads who else is
// there when it next reports something. Presence belongs to Step's goroutine.
func (m *Machine) Presence(now time.Time) (c wire.Command, overdue bool) {
	p := &m.peers
	if m.ending || p.Key() == "" || now.Sub(p.told) < presenceEvery+stepLate {
		return c, false
	}
	node := m.placeFixed()
	if node < 0 {
		return c, false
	}
	p.told, p.next, p.idle = now, now.Add(presenceEvery), true
	return m.presence(node, wire.Set, p.Key(), now), true
}

func (m *Machine) sendPresence(node int, op wire.Op, key string, f flight, now time.Time) {
	m.send(m.presence(node, op, key, now), f)
}

func (m *Machine) presence(node int, op wire.Op, key string, now time.Time) wire.Command {
	self := m.Operators.Self()
	self.Ends = m.ending
	return wire.Command{Node: node, Op: op, Key: key, Value: m.peers.Say(now, self), Expire: seconds(presence.Kept)}
}

// depart says in this edge's slot that it ends, so that nobody waits for it.
func (m *Machine) depart(now time.Time) {
	if node := m.placeFixed(); node >= 0 && m.peers.Key() != "" {
		m.sendPresence(node, wire.Set, m.peers.Key(), flight{what: aPresence}, now)
	}
}

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

// slotsRead counts the edges and takes a free slot if this one has none, or lost it to another.
func (m *Machine) slotsRead(r *wire.Result, now time.Time) {
	if r.Status != wire.Done || m.ending {
		return
	}
	p := &m.peers
	m.stats.forged.Add(uint64(p.Read(r.Values, now, m.wall(now))))
	m.random++
	slot, key, empty, ok := p.Choose(mix(m.id^m.random), now)
	if ok {
		op := wire.Add
		if !empty {
			op = wire.Set // whoever takes it at the same time finds out by the next read
		}
		m.sendPresence(r.Node, op, key, flight{what: aPresence, slot: uint8(slot), takes: true}, now)
	}
	m.noteFull()
	m.stats.edges.Store(int64(min(p.Highest(), counter.MaxEdges)))
	if m.config.Edges == 0 {
		m.counters.SetEdges(p.Highest())
	}
	m.Operators.SetOthers(&p.Slots, now)
}

// slotAnswered keeps a slot that was free.
func (m *Machine) slotAnswered(f flight, r *wire.Result, now time.Time) {
	p := &m.peers
	switch {
	case !f.takes || p.Key() != "":
	case r.Status != wire.Done:
		p.next = now
	default:
		p.Take(int(f.slot))
		p.told = now
		m.noteFull()
	}
}

// noteFull begins or ends counting alone.
func (m *Machine) noteFull() {
	if full := m.peers.Full(); m.stats.full.Swap(full) != full {
		m.moved = true // what waits has another place now
	}
}
