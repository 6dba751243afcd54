package pop

import (
	"errors"
	"time"

	"sluice/counter"
	"sluice/pop/operators"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// node is what the machine knows of a memcached node, but for its placement and what other packages
// know.
type node struct {
	flying       int              // commands under way
	full         bool             // so many were that no more went, and more than half as many are
	waiting      queue            // to be reported when fewer are
	operatorList []operators.Node // a copy of the operators' list under each secret
}

// maxFlying is how many commands may be under way to a node before further reports wait for
// answers: so many that a round trip of a millisecond carries two million a second, and so few that
// their bytes stay in a processor's cache. A pipeline takes eight times as many.
const maxFlying = 2048

// maxTries ends a race between edges that add, and a node that forgets, for a counter. Hits that
// lose it wait for the next report.
const maxTries = 4

// report sends what counters have gathered to their nodes, as much of it as may be under way. The
// rest gathers on in the table.
func (m *Machine) report(now time.Time) {
	if m.Nodes.Moved() { // a node died or came back, and what waits may belong to another node
		m.dirty = m.dirty[:0]
		for i := range m.nodes {
			m.dirty = m.nodes[i].waiting.drain(m.dirty)
		}
		m.direct(m.unplaced.drain(m.dirty))
	}
	for {
		room := 0
		for i := range m.nodes {
			room = max(room, m.reportWaiting(i, now))
		}
		if !m.Nodes.Up() {
			room = maxFlying
		}
		if m.dirty = m.counters.Dirty(m.dirty[:0], room); len(m.dirty) == 0 {
			break
		}
		m.direct(m.dirty)
	}
	m.Exchanges.SendReads()
}

// direct lets counters wait for their nodes.
func (m *Machine) direct(list []counter.Counter) {
	for _, c := range list {
		if node := m.Nodes.NodeOf(c.Source); node >= 0 {
			m.nodes[node].waiting.push(c)
		} else {
			m.unplaced.push(c) // it counts here, and is reported when a node is back
		}
	}
}

// reportWaiting reports what waits for a node, and returns how much more there is room for.
func (m *Machine) reportWaiting(node int, now time.Time) int {
	n, up := &m.nodes[node], m.Nodes.IsUp(node)
	if n.full = n.full && n.flying > maxFlying/2; n.full { // large bursts cost less than small ones
		return 0
	}
	for n.flying < maxFlying {
		c, ok := n.waiting.pop()
		switch {
		case !ok && up:
			return maxFlying - n.flying
		case !ok:
			return 0
		}
		m.reportTo(node, c, now)
	}
	n.full = true
	return 0
}

func (m *Machine) reportTo(node int, c counter.Counter, now time.Time) {
	epoch := m.Operators.Epoch(c.Rule, c.Source)
	rep, ok := m.counters.Take(c, now)
	if !ok {
		return
	}
	m.Announcer.Budget.Earn(c.Rule)
	if m.presence.Wake(now) {
		m.keepSlot(now)
	}
	name := m.config.Secret.CounterName(c, epoch)
	reported := uint64(0)
	for _, p := range rep.Parts[:rep.N] {
		reported += p.Sum(c.Rule)
		op := wire.Add
		if p.There {
			op = wire.Incr
		}
		var room [secret.CounterKeySize]byte
		key := m.arena.Write(name.Append(room[:0], p.Group))
		m.sendPart(node, op, key, c, p, epoch, 0)
	}
	// Else nothing uses what a read would bring, or reports take all.
	if rep.Past && !m.ending && m.Announcer.Budget.Left() {
		m.Exchanges.Read(node, c, epoch, &name, rep.Oldest, rep.Newest-1, reported)
	}
}

// sendPart reports a group: incr where the tier is thought to have a number, else add of all that
// is known, in 20 digits so that later increments do not lengthen it.
func (m *Machine) sendPart(node int, op wire.Op, key string, c counter.Counter, p counter.Part,
	epoch uint64, tries uint8) {
	f := flight{what: aReport, counter: c, part: p, epoch: epoch, tries: tries}
	m.send(m.partCommand(node, op, key, c, p), f)
}

func (m *Machine) partCommand(node int, op wire.Op, key string, c counter.Counter,
	p counter.Part) wire.Command {
	cmd := wire.Command{Node: node, Op: op, Report: true, Key: key}
	if op == wire.Incr {
		cmd.Delta = p.Hits
	} else {
		cmd.Value = m.arena.Number(p.Known)
		cmd.Expire = wire.Seconds(c.Rule.Lifetime()) + 2
	}
	return cmd
}

// echo adds hits that have been reported to the number at the new node of their source as well,
// while the list of nodes changes: when it is certain that they will not be reported again, and
// only those, because other edges add theirs themselves.
func (m *Machine) echo(f flight, r *wire.Result) {
	if second := m.Nodes.Second(f.counter.Source, r.Node); second >= 0 {
		f.part.Known = f.part.Hits
		m.sendEcho(second, wire.Incr, r.Key, f, 0)
	}
}

func (m *Machine) sendEcho(node int, op wire.Op, key string, f flight, tries uint8) {
	c := m.partCommand(node, op, key, f.counter, f.part)
	m.send(c, flight{what: anEcho, counter: f.counter, part: f.part, epoch: f.epoch, tries: tries})
}

// echoed learns what the new node has.
func (m *Machine) echoed(f flight, r *wire.Result, now time.Time) {
	switch {
	case f.epoch < m.Operators.Epoch(f.counter.Rule, f.counter.Source):
		// It is from before an operator lifted the source.
	case r.Status == wire.Done && r.Op == wire.Incr:
		m.Announcer.ActOn(f.counter, m.counters.Read(f.counter, f.part.Group, r.Number, now), now)
	case r.Status == wire.NotThere && f.tries < maxTries && r.Op == wire.Incr:
		m.sendEcho(r.Node, wire.Add, r.Key, f, f.tries+1)
	case r.Status == wire.NotThere && f.tries < maxTries:
		m.sendEcho(r.Node, wire.Incr, r.Key, f, f.tries+1)
	}
}

// reported takes in the answer to a report.
func (m *Machine) reported(f flight, r *wire.Result, now time.Time) {
	c, p := f.counter, f.part
	if f.epoch < m.Operators.Epoch(c.Rule, c.Source) {
		return // the source was lifted since, and its counter forgotten with all that was under way
	}
	if f.late { // already given up; a total is welcome all the same
		if r.Status == wire.Done && r.Op == wire.Incr {
			m.Announcer.ActOn(c, m.counters.Read(c, p.Group, r.Number, now), now)
		}
		return
	}
	switch r.Status {
	case wire.Done:
		total := p.Known
		if r.Op == wire.Incr {
			total = r.Number
		}
		if counter.Forged(c.Rule, total) { // the next report makes it anew
			m.deleteForged(r)
		}
		state := m.counters.Counted(c, p, total, now)
		m.Announcer.ActOn(c, state, now)
		// At the end nothing uses what a read would bring.
		if state.Past && !m.ending && (r.Op == wire.Incr || m.Announcer.Budget.Affords(c.Rule, 0)) {
			oldest, newest := m.counters.Groups(c.Rule, now, m.config.Secret.Phase(c.Source))
			name := m.config.Secret.CounterName(c, f.epoch)
			m.Exchanges.Read(r.Node, c, f.epoch, &name, oldest, newest-1, p.Sum(c.Rule))
		}
		m.echo(f, r)
	case wire.NotThere:
		if f.tries >= maxTries {
			m.counters.Returned(c, p, now)
			return
		}
		op := wire.Add
		if r.Op == wire.Add {
			op = wire.Incr
		}
		p.There = false
		m.sendPart(r.Node, op, r.Key, c, p, f.epoch, f.tries+1)
	case wire.Unsent:
		if errors.Is(r.Err, wire.ErrFull) {
			m.counters.Full(c, p, now)
			return
		}
		if errors.Is(r.Err, wire.ErrNotNumber) {
			m.deleteForged(r) // no edge wrote it; the next report makes it anew
		}
		m.counters.Returned(c, p, now)
	case wire.Unknown:
		m.counters.Lost(c, p, now)
		m.echo(f, r)
	}
}

// deleteForged deletes what no edge can have written.
func (m *Machine) deleteForged(r *wire.Result) {
	m.forged.Add(1)
	m.send(wire.Command{Node: r.Node, Op: wire.Delete, Report: true, Key: r.Key}, flight{})
}

// queue is counters that wait, first in, first out.
type queue struct {
	list []counter.Counter
	next int
}

func (q *queue) push(c counter.Counter) {
	if q.next > len(q.list)/2 && len(q.list) == cap(q.list) {
		q.list, q.next = append(q.list[:0], q.list[q.next:]...), 0
	}
	q.list = append(q.list, c)
}

func (q *queue) pop() (c counter.Counter, ok bool) {
	if q.next == len(q.list) {
		q.list, q.next = q.list[:0], 0
		return c, false
	}
	q.next++
	return q.list[q.next-1], true
}

// drain appends all to buf and returns it.
func (q *queue) drain(buf []counter.Counter) []counter.Counter {
	buf = append(buf, q.list[q.next:]...)
	q.list, q.next = q.list[:0], 0
	return buf
}
