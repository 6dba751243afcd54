package pop

import (
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/record"
)

// actOn acts on what a counter says after an answer. If it has come near its limit, or to it, the log tells all edges how it
// stands: they report what they have held back, and even one that has never seen the source knows when to refuse it. They may
// also be asked when hits came. If the PoP's total is over the limit, a mitigation starts: the requests that made it so went
// through several edges at once, and none of them saw it.
//
// Whose report brought a counter to where it is says so at once; an edge that finds it there leaves that to others for a while.
func (m *Machine) actOn(c counter.Counter, standing counter.Standing, now time.Time) {
	rule := m.rules.Load().byID[c.Rule.ID]
	switch {
	case standing.Over && rule != nil && rule.Timeout > 0:
		m.block(c, standing.Crossed, now)
	case standing.Filled:
		m.announce(c, algorithm.Full, now)
	case standing.Crossed && !standing.Over:
		m.announce(c, standing.Stage, now)
	case standing.Stage >= algorithm.Half:
		m.leave(task{what: announceStage, stage: standing.Stage, counter: c}, now)
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
	c.Rule = rule.Counter // what was reported may have been counted under another limit than is in force now
	key := mitigation.Key{Rule: c.Rule.ID, Source: c.Source}
	if !m.bits.Until(key, now).IsZero() {
		return
	}
	v, _ := m.counters.Peek(c.Rule, c.Source, now)
	end := mitigation.End(v, m.bits.Timeout(key, rule.Timeout, rule.Repeat, now), now)
	if end.IsZero() {
		return
	}
	if bit := rule.bit(now, end); m.bits.Start(key, bit, now) {
		m.counters.Blocked(c, now, end, now)
		if crossed {
			m.setBit(key, bit, now)
		} else {
			m.leave(task{what: announceBlock, counter: c, bit: bit}, now)
		}
	}
}

// setAside reports whether the announcement that a counter has come to a stage is paid for (perRequest).
func setAside(c counter.Counter, stage algorithm.Stage) bool {
	return stage == algorithm.Full && c.Rule.HoldsBack()
}

// announce tells all edges how a counter stands that has come to a stage.
func (m *Machine) announce(c counter.Counter, stage algorithm.Stage, now time.Time) {
	paid := setAside(c, stage)
	if paid || m.affords(c.Rule, itemCost) {
		m.appendLogOf(c.Source, m.standing(record.Standing, c, now), paid)
	}
}

// appendLogOf adds a record to the log of a source's node, or of both its nodes while the list changes.
func (m *Machine) appendLogOf(s counter.Source, r record.Record, paid bool) {
	for _, node := range m.Nodes.Places(s) {
		m.appendLog(node, r, paid)
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
	if !m.affords(c.Rule, itemCost) {
		return
	}
	r := m.standing(record.AskTimes, c, now)
	r.Times = m.counters.ExportTimes(c, now, nil)
	m.appendLogOf(c.Source, r, false)
}

// exportTimes answers a question.
func (m *Machine) exportTimes(c counter.Counter, now time.Time) {
	if !m.affords(c.Rule, itemCost) {
		return
	}
	if times := m.counters.ExportTimes(c, now, nil); len(times) > 0 {
		r := m.standing(record.Times, c, now)
		r.Times = times
		m.appendLogOf(c.Source, r, false)
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
