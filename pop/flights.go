package pop

import (
	"time"

	"sluice/counter"
	"sluice/pop/announcement"
	"sluice/pop/exchange"
	"sluice/pop/log"
	"sluice/pop/wire"
)

// flight is a command that has not been answered, and what for.
type flight struct {
	what    purpose
	late    bool // its node was given up meanwhile, and its hits with it
	tries   uint8
	paid    bool  // its cost has been set aside (announcement.Budget), or reports do not pay for it
	of      uint8 // aPresence: the slot, which was free, from 1; anOperatorList: the line of the secret
	node    int32
	counter counter.Counter // aReport, anEcho
	part    counter.Part
	epoch   uint64            // of the counter when it was sent
	bit     *announcement.Bit // aBit
	batch   *log.Batch        // aBatch
	request exchange.Request  // anExchange
}

type purpose uint8

const (
	unheeded purpose = iota // the answer is not used, or there is no flight
	aReport
	anEcho // of a report, to the new node of a source
	anExchange
	aBit
	aBatch // of the log
	aLogRead
	aProbe
	aPresence
	anOperatorList // of the operators' list
	aMarksRead
)

// flights are by tag.
type flights struct {
	list []flight
	free []uint64
}

func (l *flights) begin(f flight) (tag uint64) {
	if n := len(l.free); n > 0 {
		tag, l.free = l.free[n-1], l.free[:n-1]
		l.list[tag] = f
		return tag
	}
	l.list = append(l.list, f)
	return uint64(len(l.list) - 1)
}

func (l *flights) end(tag uint64) flight {
	f := l.list[tag]
	l.list[tag] = flight{}
	l.free = append(l.free, tag)
	return f
}

func (m *Machine) send(c wire.Command, f flight) {
	f.node = int32(c.Node)
	m.nodes[c.Node].flying++
	if c.Report && !f.paid {
		m.Announcer.Budget.Spend()
	}
	c.Tag = m.flights.begin(f)
	m.out = append(m.out, c)
}

// sendOperatorList sends a command of a node's copy of the operators' list.
func (m *Machine) sendOperatorList(c wire.Command, line int) {
	f := flight{what: anOperatorList, of: uint8(line)}
	if c.Op == wire.Delete {
		f = flight{}
	}
	m.send(c, f)
}

// sendBatch sends a command of a batch of the log.
func (m *Machine) sendBatch(c wire.Command, b *log.Batch) {
	f := flight{what: aBatch, batch: b, paid: b.Paid}
	if c.Op == wire.Delete {
		f = flight{}
	}
	m.send(c, f)
}

// answered hands an answer to the package that sent the command.
func (m *Machine) answered(r *wire.Result, now time.Time) {
	f := m.flights.end(r.Tag)
	n := &m.nodes[f.node]
	n.flying--
	if r.Status == wire.Done || r.Status == wire.NotThere {
		m.Nodes.Carried(int(f.node))
	}
	if m.ending && r.Report && !r.Op.Reads() && r.Status == wire.Done {
		m.confirmed = true
	}
	switch f.what {
	case aReport:
		m.reported(f, r, now)
	case anEcho:
		m.echoed(f, r, now)
	case anExchange:
		m.Exchanges.Answered(f.request, r, now)
	case aBit:
		m.Announcer.Answered(f.bit, r, now)
	case aBatch:
		if c, follows := m.logs.Written(f.batch, r, m.Nodes.IsUp(r.Node), now, m.wall(now)); follows {
			m.sendBatch(c, f.batch)
		}
	case aLogRead:
		m.logRead(r, now)
	case aProbe:
		m.probed(r, now)
	case aPresence:
		m.slotsAnswered(f, r, now)
	case anOperatorList:
		if c, follows := m.Operators.Answered(&n.operatorList[f.of], r, now); follows {
			m.sendOperatorList(c, int(f.of))
		}
	case aMarksRead:
		m.marksRead(r, now)
	}
}

// logRead learns what the items of a log have.
func (m *Machine) logRead(r *wire.Result, now time.Time) {
	records, missed := m.logs.Looked(r, now)
	m.Announcer.LearnAll(records, now)
	if missed {
		m.counters.Missed(now)
	}
}

// probed takes in what a probe brought: that its node is well, and how far its log goes.
func (m *Machine) probed(r *wire.Result, now time.Time) {
	done := r.Status == wire.Done
	if m.Nodes.Probed(r.Node, done, now) {
		m.giveUp(r.Node, now)
	}
	if done && m.logs.HeadRead(r.Node, r.Values[0], m.wall(now)) {
		m.counters.Missed(now)
	}
}

// giveUp takes in that a node is lost: what was under way to it is, and its sources move to other nodes with the next report.
func (m *Machine) giveUp(i int, now time.Time) {
	for tag := range m.flights.list {
		f := &m.flights.list[tag]
		if int(f.node) == i && f.what == aReport && !f.late && f.epoch >= m.Operators.Epoch(f.counter.Rule, f.counter.Source) {
			m.counters.Lost(f.counter, f.part, now)
			f.late = true
		}
	}
}

// slotsAnswered takes in which edges share the tier, or that this edge has a slot.
func (m *Machine) slotsAnswered(f flight, r *wire.Result, now time.Time) {
	done := r.Status == wire.Done
	switch {
	case r.Op == wire.Get && done && !m.ending:
		c, slot, takes, forged := m.presence.Answered(r, m.self(), m.chance(), now, m.wall(now))
		if takes {
			m.send(c, flight{what: aPresence, of: uint8(slot + 1)})
		}
		m.forged.Add(uint64(forged))
		m.setEdges(m.presence.Highest())
		m.followClock(now)
		m.Operators.SetOthers(&m.presence, now)
		if m.config.Viewed != nil {
			m.config.Viewed(r.Node, m.presence.View)
		}
	case f.of > 0:
		m.presence.Taken(int(f.of-1), done, now)
	}
	m.Nodes.SetFull(m.presence.Full())
}

// marksRead takes in the marks of a node, and leaves this edge's own.
func (m *Machine) marksRead(r *wire.Result, now time.Time) {
	if m.ending {
		return
	}
	self := m.Operators.Self()
	if c, follows := m.Marks.Looked(r, self.Name, self.Address, now, m.wall(now)); follows {
		m.send(c, flight{})
		m.noteSecrets(now)
	}
}

// Quiet reports whether an answer that comes at now brings nothing: a node that is up is up, its log is as far as was known, and no edge
// has a word of operators. One Step that is given several such answers leaves the machine as a Step for each would, and sends the
// same; so a simulation of months may take the answers to a poll together. It belongs to Step's goroutine.
func (m *Machine) Quiet(r *wire.Result, now time.Time) bool {
	n := &m.nodes[r.Node]
	if r.Status != wire.Done || n.flying > maxFlying/2 { // else reports wait for each answer
		return false
	}
	switch f := &m.flights.list[r.Tag]; f.what {
	case aProbe: // else the next follows at once, or it is late
		return m.Nodes.Steady(r.Node, now) && m.logs.HeadIsCurrent(r.Node, r.Values[0], m.wall(now))
	case aLogRead:
		return m.logs.FindsNothing(r)
	case anOperatorList:
		return n.operatorList[f.of].Looking() && r.Values[0] == nil && m.Operators.Len() == 0
	case aPresence:
		return r.Op != wire.Get && f.of == 0
	}
	return false
}
