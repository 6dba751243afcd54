package pop

import (
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// actOn acts on what a counter says after an answer. If it has come near its limit, or to it, the log tells all edges how it
// stands: they report what they have held back, and even one that has never seen the source knows when to refuse it. They may
// also be asked when hits came. If the PoP's total is over the limit, a mitigation starts: the requests that made it so went
// through several edges at once, and none of them saw it.
//
// Whose report brought a counter to where it is says so at once; who finds it there asks whether anybody has, and
// leaves a block and a question to others for a while.
func (m *Machine) actOn(c counter.Counter, standing counter.Standing, now time.Time) {
	switch {
	case standing.Over:
		m.block(c, standing.Crossed, now)
	case standing.Crossed:
		m.announce(c, now)
		m.leaveReread(c, now)
	case standing.Full:
		m.claim(c, secret.Full, now)
	case standing.Near:
		m.claim(c, secret.Near, now)
	}
	switch {
	case standing.CrossedTimes:
		m.askTimes(c, now)
	case standing.WantTimes:
		m.leave(task{what: askTimes, counter: c}, now)
	}
}

// block starts a mitigation of a source that the PoP has counted over its limit, and tells the tier if this edge made it so.
func (m *Machine) block(c counter.Counter, crossed bool, now time.Time) {
	rule := m.rules.Load().byID[c.Rule.ID]
	if rule == nil || rule.Timeout == 0 {
		return
	}
	key := mitigation.Key{Rule: c.Rule.ID, Source: c.Source}
	if !m.bits.Until(key, now).IsZero() {
		if crossed { // it was found over the limit by what others said, before the answer came that this edge has made it so
			m.hasten(announceBlock, c, now)
		}
		return
	}
	v, _ := m.counters.Peek(c.Rule, c.Source, now)
	end := mitigation.End(v, m.bits.Timeout(key, rule.Timeout, rule.Repeat, now), now)
	if end.IsZero() {
		return
	}
	if bit := rule.bit(now, end); m.bits.Start(key, bit, now) {
		if crossed {
			m.setBit(key, bit, now)
		} else {
			m.leave(task{what: announceBlock, counter: c, bit: bit}, now)
		}
	}
}

// claim asks the tier whether anybody else has found by chance that the counter is near its limit. Edges that do so at the same time all
// ask, and one of them is the first.
func (m *Machine) claim(c counter.Counter, what secret.Claim, now time.Time) {
	node := m.place(c.Source)
	if node < 0 {
		return
	}
	_, newest := m.counters.Groups(c.Rule, now, m.secret.Phase(c.Source))
	m.send(wire.Command{Node: node, Op: wire.Add, Report: true, Key: m.secret.ClaimKey(c, what, m.epoch(c.Rule, c.Source), newest), Value: []byte{'1'}, Expire: seconds(c.Rule.Lifetime())},
		flight{what: aClaim, counter: c})
}

// claimAnswered announces a counter that nobody has announced. By now older groups have been read, too, by whoever knew of none where it
// mattered (counter.Standing.Past).
func (m *Machine) claimAnswered(f flight, r *wire.Result, now time.Time) {
	if r.Status == wire.Done {
		m.announce(f.counter, now)
		m.leaveReread(f.counter, now)
	}
}

// announce tells all edges how a counter stands.
func (m *Machine) announce(c counter.Counter, now time.Time) {
	m.appendLogOf(c.Source, m.standing(record.Standing, c, now))
}

// appendLogOf adds a record to the log of a source's node, or of both its nodes while the list changes.
func (m *Machine) appendLogOf(s counter.Source, r record.Record) {
	for _, node := range m.places(s) {
		m.appendLog(node, r)
	}
}

// standing is a record of how a counter stands.
func (m *Machine) standing(k record.Kind, c counter.Counter, now time.Time) record.Record {
	r := record.Record{Kind: k, Rule: m.secret.RuleDigest(c.Rule), Source: c.Source, Epoch: m.epoch(c.Rule, c.Source), Start: m.wall(now), Edge: m.id}
	if k != record.Times {
		r.Newest, r.Groups = m.counters.Snapshot(c, now)
	}
	return r
}

// Near a source's limit it matters when, within a sub-window, others' hits came (counter.Times). An edge that lacks that asks
// in the mitigation log, and tells its own; all edges answer there, so whichever decides next knows.

// takenFrom is whose times of a counter have been taken in.
type takenFrom struct {
	counter mitigation.Key
	edge    uint64
}

// maxTaken bounds what is remembered; beyond it times are not taken in, and those hits are thought to be spread evenly.
const maxTaken = 1 << 15

// askTimes asks the others when their hits came.
func (m *Machine) askTimes(c counter.Counter, now time.Time) {
	r := m.standing(record.AskTimes, c, now)
	r.Times = m.counters.ExportTimes(c, now, nil)
	m.appendLogOf(c.Source, r)
}

// exportTimes answers a question.
func (m *Machine) exportTimes(c counter.Counter, now time.Time) {
	if times := m.counters.ExportTimes(c, now, nil); len(times) > 0 {
		r := m.standing(record.Times, c, now)
		r.Times = times
		m.appendLogOf(c.Source, r)
	}
}

// mergeTimes takes in what another edge told.
func (m *Machine) mergeTimes(c counter.Counter, r record.Record, now time.Time) {
	if r.Edge == m.id {
		return
	}
	if len(r.Times) == 0 {
		return
	}
	from := takenFrom{mitigation.Key{Rule: c.Rule.ID, Source: c.Source}, r.Edge}
	taken, there := m.times[from]
	if !there && len(m.times) >= maxTaken {
		return
	}
	for _, times := range r.Times {
		if taken.Take(times.SubWindow) {
			m.counters.MergeTimes(c, times, now)
		}
	}
	taken.Until = now.Add(c.Rule.Lifetime())
	m.times[from] = taken
}
