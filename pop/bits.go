package pop

import (
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/record"
	"sluice/pop/wire"
	"sluice/pop/words"
)

// setBit tells the tier of a mitigation that this edge has started: its own key first, so that it is there for whoever looks, then the
// log. Several edges may find a source over its limit at once; who is the first at the key writes to the log.
//
// It says under which limit the verdict fell, not which is in force by now. A verdict that waited here while its rule was loosened is void.
func (m *Machine) setBit(key mitigation.Key, b mitigation.Bit, now time.Time) {
	rule := m.rules.Load().byID[key.Rule]
	if rule == nil || rule.Terms().Void(b.Terms) {
		return
	}
	c := counter.Counter{Rule: rule.Counter, Source: key.Source}
	wall := m.wall(now)
	r := &record.Record{
		Kind: record.Block, Rule: rule.digest, Source: c.Source, Epoch: m.epoch(c.Rule, c.Source),
		Start: wall.Add(b.Start.Sub(now)), End: wall.Add(b.End.Sub(now)), Limit: b.Terms.Limit, By: b.By,
	}
	// Nobody looks for a candidate's at first sight. Where the budget is used up, an edge that does finds that the counter is over its limit.
	if rule.Tried || !m.affords(rule.Counter, 1) {
		m.appendLogOf(c.Source, *r, true)
		return
	}
	for _, node := range m.Nodes.Places(c.Source) {
		m.send(m.bitCommand(node, wire.Add, *r, c, now), flight{what: aBit, counter: c, record: r})
	}
}

func (m *Machine) bitCommand(node int, op wire.Op, r record.Record, c counter.Counter, now time.Time) wire.Command {
	left := r.End.Sub(m.wall(now))
	if rule := m.rules.Load().byID[c.Rule.ID]; rule != nil {
		left += rule.Repeat.Memory()
	}
	// A second after the end, because memcached's seconds are coarse; what counts is the end in the value.
	return wire.Command{Node: node, Op: op, Report: true, Key: m.secret.BitKey(c, r.Epoch), Value: r.Seal(m.secret), Expire: seconds(left) + 1}
}

// bitAnswered goes on to the log, or looks who was there first.
func (m *Machine) bitAnswered(f flight, r *wire.Result, now time.Time) {
	switch {
	case r.Status == wire.NotThere && r.Op == wire.Add:
		f.what = aBitRead
		m.send(wire.Command{Node: r.Node, Op: wire.Get, Report: true, Key: r.Key}, f)
	default: // stored, or unknown: the log is worth a try in any case
		m.appendLog(r.Node, *f.record, true)
		m.tellPeers(f, now)
	}
}

// bitRead decides between our bit and the one that was there. One in force has been announced by its edge; one that has
// ended stands there because memcached is slow to forget, or because it is remembered, and one of a stricter limit is none.
//
// Where who comes back is mitigated for longer, ours may be too short, because this edge did not know of the one that has ended.
func (m *Machine) bitRead(f flight, r *wire.Result, now time.Time) {
	if r.Status == wire.Done && r.Values[0] != nil {
		there, ok := record.Open(m.secret, r.Values[0])
		if ok && !m.disregards(&there) && there.Kind == record.Block && there.Rule == f.record.Rule && there.Source == f.record.Source && there.Limit >= f.record.Limit {
			rule := m.rules.Load().byID[f.counter.Rule.ID]
			repeats := rule != nil && rule.Repeat.Memory() > 0
			switch inForce := there.End.After(m.wall(now)); {
			case inForce:
				m.learn(there, now)
				return
			case repeats:
				m.prolong(f, rule, there, now)
			}
		}
	}
	f.what = aBit
	m.send(m.bitCommand(r.Node, wire.Set, *f.record, f.counter, now), f)
}

// prolong makes a bit of ours as long as it is for who comes back: the one before has ended, and stands at its key.
func (m *Machine) prolong(f flight, rule *knownRule, before record.Record, now time.Time) {
	r := f.record
	end := r.Start.Add(rule.Repeat.After(before.Start, before.End, rule.Timeout, r.Start))
	if !end.After(r.End) {
		return
	}
	r.End = end
	wall := m.wall(now)
	bit := rule.bit(now.Add(r.Start.Sub(wall)), now.Add(end.Sub(wall)))
	bit.Terms.Limit = r.Limit
	m.bits.Start(mitigation.Key{Rule: rule.Counter.ID, Source: r.Source}, bit, now)
}

// skew is how far clocks may be apart, and a bit's end behind what is possible.
const skew = 2 * time.Second

// learn puts a record from the tier into force here and reports whether it is a mitigation that was news.
func (m *Machine) learn(r record.Record, now time.Time) (news bool) {
	rule := m.rules.Load().byDigest[r.Rule]
	if rule == nil || m.disregards(&r) {
		return false
	}
	c, wall := counter.Counter{Rule: rule.Counter, Source: r.Source}, m.wall(now)
	switch epoch := m.epoch(rule.Counter, r.Source); {
	case r.Epoch < epoch:
		return false // from before an operator lifted the source
	case r.Epoch > epoch && wall.Sub(r.Start) >= logKept:
		return false // recorded long ago, and the lift is forgotten
	case r.Epoch > epoch: // its edge knows of a lift that is on its way to this one
		m.Operators.Void(words.Name{Rule: rule.Name, Source: r.Source}, r.Epoch, now)
	}
	m.learnStanding(c, &r, now)
	if r.Kind == record.AskTimes && r.Edge != m.id {
		m.exportTimes(c, now) // before others' times are added to its own
	}
	m.mergeTimes(c, r, now)
	if r.Kind != record.Block || rule.Timeout == 0 || rule.Counter.Limit > r.Limit {
		return false // who was blocked under a lower limit may be within this one, and a rule that throttles blocks nobody
	}
	longest := max(rule.Repeat.Longest(rule.Timeout), rule.Counter.Window+rule.Counter.SubWindow()) + skew
	start := r.Start.Sub(wall)
	end := min(r.End.Sub(wall), min(start, 0)+longest) // as long as the rule says by now: it may have been longer
	// now carries the monotonic clock, and ends are held against that.
	bit := rule.bit(now.Add(start), now.Add(end))
	bit.Terms.Limit = r.Limit
	if r.By == mitigation.ByPeer {
		bit.By = r.By
	}
	m.counters.Blocked(c, bit.Start, bit.End, now)
	return m.bits.Start(mitigation.Key{Rule: rule.Counter.ID, Source: r.Source}, bit, now)
}

func seconds(d time.Duration) int32 {
	return int32(min(max((d+time.Second-1)/time.Second, 1), 30*24*3600))
}
