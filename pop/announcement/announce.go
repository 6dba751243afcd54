package announcement

import (
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/record"
)

// ActOn acts on a counter's state after an answer. If it has come near its limit, or to it, the log
// brings its state to all edges: they report what they have held back, and an edge that has never
// seen the source learns when to refuse it. They may also be requested to send when hits came. If
// the PoP's total is over the limit, a mitigation starts: the requests that made it so went through
// several edges at once, and none of them saw it.
//
// The edge whose report brought a counter there announces it at once; an edge that finds it there
// leaves that to others for a while.
func (a *Announcer) ActOn(c counter.Counter, reply counter.Reply, now time.Time) {
	rule := a.rules.Load().byID[c.Rule.ID]
	// A block goes to other PoPs as well
	if reply.Near && !(reply.Over && rule != nil && rule.Timeout > 0) {
		a.countToPeers(c, now)
	}
	requested := false
	switch {
	case reply.Over && rule != nil && rule.Timeout > 0:
		a.block(c, reply.Crossed, now)
	case reply.Filled:
		requested = a.announce(c, algorithm.Full, reply.Leaving, now)
	case reply.Crossed && !reply.Over:
		requested = a.announce(c, reply.Stage, reply.Leaving, now)
	case reply.Stage >= algorithm.Half:
		a.leave(task{what: announceStage, stage: reply.Stage, counter: c}, now)
	}
	switch {
	case requested:
	case reply.CrossedTimes:
		a.requestTimes(c, now)
	case reply.WantTimes:
		a.leave(task{what: requestTimes, counter: c}, now)
	}
}

// block starts a mitigation of a source that the PoP has counted over its limit, and announces it
// if this edge's report made it so.
func (a *Announcer) block(c counter.Counter, crossed bool, now time.Time) {
	rule := a.rules.Load().byID[c.Rule.ID]
	if rule == nil || rule.Timeout == 0 {
		return
	}
	// What was reported may have been counted under another limit than is in force now
	c.Rule = rule.Counter
	key := mitigation.Key{Rule: c.Rule.ID, Source: c.Source}
	if !a.config.Blocks.Until(key, now).IsZero() {
		return
	}
	v, _ := a.config.Counters.Peek(c.Rule, c.Source, now)
	end := mitigation.End(v, a.config.Blocks.Timeout(key, rule.Timeout, rule.Repeat, now), now)
	if end.IsZero() {
		return
	}
	if bit := rule.bit(now, end); a.config.Blocks.Start(key, bit, now) {
		a.config.Counters.Blocked(c, now, end, now)
		if crossed {
			a.setBit(key, bit, now)
		} else {
			a.leave(task{what: announceBlock, counter: c, bit: bit}, now)
		}
	}
}

// setAside reports whether the announcement that a counter has come to a stage is paid for
// (perRequest).
func setAside(c counter.Counter, stage algorithm.Stage) bool {
	return stage == algorithm.Full && c.Rule.HoldsBack()
}

// announce sends all edges the state of a counter that has come to a stage, and reports whether it
// requested times as well. It does where nothing is left and hits are about to leave the window, so
// that an edge that has never met the source is sure that the next one is too many. Times are
// exchanged once in a window, so that is for rules whose blocks last as long: under others they
// will be needed later.
func (a *Announcer) announce(c counter.Counter, stage algorithm.Stage, leaving bool,
	now time.Time) (requested bool) {
	paid, affords := setAside(c, stage), a.Budget.Affords(c.Rule, itemCost)
	if !paid && !affords {
		return false
	}
	r := a.state(record.State, c, now)
	rule := a.rules.Load().byID[c.Rule.ID]
	if requested = leaving && paid && affords && rule != nil &&
		rule.Timeout >= c.Rule.Window; requested {
		r.Kind, r.Times = record.RequestTimes, a.config.Counters.ExportTimes(c, now, nil)
	}
	a.append(c.Source, r, paid)
	return requested
}

// append adds a record to the log of a source's node, or of both its nodes while the list changes.
func (a *Announcer) append(s counter.Source, r record.Record, paid bool) {
	for _, node := range a.config.Nodes.NodesOf(s) {
		a.config.Logs.Append(node, &r, paid)
	}
}

// state is a record of how a counter stands.
func (a *Announcer) state(k record.Kind, c counter.Counter, now time.Time) record.Record {
	r := record.Record{Kind: k, Rule: a.config.Secret.RuleDigest(c.Rule), Source: c.Source,
		Epoch: a.config.Operators.Epoch(c.Rule, c.Source), Start: a.wall(now), Edge: a.config.ID}
	if k != record.Times {
		r.Newest, r.Groups = a.config.Counters.Snapshot(c, now)
	}
	return r
}

// Near a source's limit it matters when, within a sub-window, others' hits came (counter.Times). An
// edge that lacks that writes a request to the mitigation log, with its own times; all edges answer
// there, so whichever decides next knows.

// takenFrom is the edges whose times of a counter have been taken in.
type takenFrom struct {
	counter mitigation.Key
	edge    uint64
}

// maxTaken bounds what is remembered; beyond it times are not taken in, and those hits are thought
// to be spread evenly.
const maxTaken = 1 << 15

// requestTimes requests from the others when their hits came.
func (a *Announcer) requestTimes(c counter.Counter, now time.Time) {
	if !a.Budget.Affords(c.Rule, itemCost) {
		return
	}
	r := a.state(record.RequestTimes, c, now)
	r.Times = a.config.Counters.ExportTimes(c, now, nil)
	a.append(c.Source, r, false)
}

// exportTimes answers a question.
func (a *Announcer) exportTimes(c counter.Counter, now time.Time) {
	if !a.Budget.Affords(c.Rule, itemCost) {
		return
	}
	if times := a.config.Counters.ExportTimes(c, now, nil); len(times) > 0 {
		r := a.state(record.Times, c, now)
		r.Times = times
		a.append(c.Source, r, false)
	}
}

// mergeTimes takes in another edge's times.
func (a *Announcer) mergeTimes(c counter.Counter, r record.Record, now time.Time) {
	if r.Edge == a.config.ID {
		return
	}
	if len(r.Times) == 0 {
		return
	}
	from := takenFrom{mitigation.Key{Rule: c.Rule.ID, Source: c.Source}, r.Edge}
	taken, there := a.times[from]
	if !there && len(a.times) >= maxTaken {
		return
	}
	for _, times := range r.Times {
		if taken.Take(times.SubWindow) {
			a.config.Counters.MergeTimes(c, times, now)
		}
	}
	taken.Until = now.Add(c.Rule.Lifetime())
	a.times[from] = taken
}
