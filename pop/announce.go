package pop

import (
	"time"

	"sluice/counter"
	"sluice/mitigation"
)

// judge acts on what a counter says after an answer. If it has come near its limit, or to it, the log tells all edges how it
// stands: they report what they have held back, and even one that has never seen the source knows when to refuse it. They may
// also be asked when hits came. If the PoP's total is over the limit, a mitigation starts: the requests that made it so went
// through several edges at once, and none of them saw it.
//
// Hits are those that the answer is about. Whose hits brought a counter to where it is says so at once; who finds it there by others'
// leaves it to them for a while.
func (m *Machine) judge(c counter.Counter, standing counter.Standing, hits uint32, now time.Time) {
	first := standing.FirstBy(hits)
	switch {
	case standing.Over:
		m.block(c, first, now)
	case first && (standing.Full || standing.Near):
		m.announce(c, now)
	case standing.Full:
		m.leave(task{what: claimFull, counter: c}, now)
	case standing.Near:
		m.leave(task{what: claimNear, counter: c}, now)
	}
	switch {
	case !standing.WantTimes:
	case standing.TimesFirstBy(hits):
		m.askTimes(c, now)
	default:
		m.leave(task{what: askTimes, counter: c}, now)
	}
}

// block starts a mitigation of a source that the PoP has counted over its limit, and tells the tier if this edge was the first to know.
func (m *Machine) block(c counter.Counter, first bool, now time.Time) {
	rule := m.rules.Load().byID[c.Rule.ID]
	if rule == nil || rule.Timeout == 0 {
		return
	}
	key := mitigation.Key{Rule: c.Rule.ID, Source: c.Source}
	if !m.bits.Until(key, now).IsZero() {
		return
	}
	v, _ := m.counters.Peek(c.Rule, c.Source, now)
	end := mitigation.End(v, rule.Timeout, now)
	if end.IsZero() {
		return
	}
	if bit := (mitigation.Bit{Start: now, End: end, By: mitigation.ByPoP}); m.bits.Start(key, bit, now) {
		if first {
			m.setBit(key, bit, now)
		} else {
			m.leave(task{what: tellBlock, counter: c, bit: bit}, now)
		}
	}
}

// claim asks the tier whether anybody has announced the counter yet. Edges that find it near its limit at the same time all ask, and
// one of them is the first.
func (m *Machine) claim(c counter.Counter, what byte, now time.Time) {
	node := m.place(c.Source)
	if node < 0 {
		return
	}
	_, newest := m.counters.Groups(c.Rule, now, m.secret.Phase(c.Source))
	m.send(Command{Node: node, Op: Add, Report: true, Key: m.claimKey(c, what, newest), Value: []byte{'1'}, Expire: seconds(c.Rule.Lifetime())},
		flight{what: aClaim, counter: c})
}

// claimAnswered announces a counter that nobody has announced. By now older groups have been read, too: Take asked for them.
func (m *Machine) claimAnswered(f flight, r *Result, now time.Time) {
	if r.Status == Done {
		m.announce(f.counter, now)
	}
}

// announce tells all edges how a counter stands.
func (m *Machine) announce(c counter.Counter, now time.Time) {
	if node := m.place(c.Source); node >= 0 {
		m.appendLog(node, m.standing(aCount, c, now))
	}
}

// standing is a record of how a counter stands.
func (m *Machine) standing(k kind, c counter.Counter, now time.Time) record {
	r := record{kind: k, rule: m.secret.ruleDigest(c.Rule), source: c.Source, epoch: m.epoch(c), start: m.wall(now), edge: m.id}
	if k != aTimes {
		r.newest, r.groups = m.counters.Snapshot(c, now)
	}
	return r
}

// Near a source's limit it matters when, within a sub-window, others' hits came (counter.Times). An edge that lacks that asks
// in the mitigation log, and tells its own; all edges answer there, so whichever decides next knows.

// takenTimes is what an edge has told of a sub-window's hits. It must be taken in once, though whoever reaches the tier may
// write an edge's record a second time.
type takenTimes struct {
	counter   mitigation.Key
	edge      uint64
	subWindow uint32
}

// askTimes asks the others when their hits came.
func (m *Machine) askTimes(c counter.Counter, now time.Time) {
	node := m.place(c.Source)
	if node < 0 {
		return
	}
	r := m.standing(aQuestion, c, now)
	r.cut = m.counters.Cut(c.Rule, now, m.secret.Phase(c.Source))
	r.times = m.counters.ExportTimes(c, r.cut, now, nil)
	m.appendLog(node, r)
}

// exportTimes answers a question.
func (m *Machine) exportTimes(c counter.Counter, cut uint32, now time.Time) {
	node := m.place(c.Source)
	if node < 0 {
		return
	}
	if times := m.counters.ExportTimes(c, cut, now, nil); len(times) > 0 {
		r := m.standing(aTimes, c, now)
		r.times = times
		m.appendLog(node, r)
	}
}

// mergeTimes takes in what another edge told.
func (m *Machine) mergeTimes(c counter.Counter, r record, now time.Time) {
	if r.edge == m.id {
		return
	}
	for _, times := range r.times {
		taken := takenTimes{mitigation.Key{Rule: c.Rule.ID, Source: c.Source}, r.edge, times.SubWindow}
		if _, again := m.times[taken]; again {
			continue
		}
		m.times[taken] = now.Add(c.Rule.Lifetime()) // by then the sub-window has left every window
		m.counters.MergeTimes(c, times, now)
	}
}
