package announcement

import (
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/log"
	"sluice/pop/operatorlog"
	"sluice/pop/record"
	"sluice/pop/wire"
)

// Bit is a mitigation on its way to its own key.
type Bit struct {
	counter counter.Counter
	record  *record.Record
}

// setBit writes a mitigation that this edge has started to the tier: its own key first, so that
// readers of the key find it, then the log. Several edges may find a source over its limit at once;
// the first at the key writes to the log.
//
// It names the limit of the verdict, not the one in force by now. A verdict that waited here while
// its rule was loosened is void.
func (a *Announcer) setBit(key mitigation.Key, bit mitigation.Bit, now time.Time) {
	rule := a.rules.Load().byID[key.Rule]
	if rule == nil || rule.Version().Invalidates(bit.Version) {
		return
	}
	c := counter.Counter{Rule: rule.Counter, Source: key.Source}
	wall := a.wall(now)
	r := &record.Record{
		Kind: record.Block, Rule: rule.digest, Source: c.Source,
		Epoch: a.config.Operators.Epoch(c.Rule, c.Source),
		Start: wall.Add(bit.Start.Sub(now)), End: wall.Add(bit.End.Sub(now)),
		Limit: bit.Version.Limit, By: bit.By,
	}
	// Where the budget is used up, an edge that sees the source for the first time finds that the
	// counter is over its limit.
	if !a.Budget.Affords(rule.Counter, 1) {
		a.append(c.Source, *r, true)
		return
	}
	b := &Bit{c, r}
	for _, node := range a.config.Nodes.NodesOf(c.Source) {
		a.config.Send(a.bitCommand(node, wire.Add, *r, c, now), b)
	}
}

func (a *Announcer) bitCommand(node int, op wire.Op, r record.Record, c counter.Counter,
	now time.Time) wire.Command {
	left := r.End.Sub(a.wall(now))
	if rule := a.rules.Load().byID[c.Rule.ID]; rule != nil {
		left += rule.Repeat.Memory()
	}
	// A second after the end, because memcached's seconds are coarse; what counts is the end in the
	// value.
	return wire.Command{Node: node, Op: op, Report: true, Key: a.config.Secret.BitKey(c, r.Epoch),
		Value: r.Seal(a.config.Secret), Expire: wire.Seconds(left) + 1}
}

// Answered takes in the answer to a command of a bit. If it was stored, or that is unknown, the log
// follows: it is worth a try in any case. If there is one already, this edge reads it.
func (a *Announcer) Answered(b *Bit, r *wire.Result, now time.Time) {
	switch {
	case r.Op == wire.Get:
		a.bitRead(b, r, now)
	case r.Status == wire.NotThere && r.Op == wire.Add:
		a.config.Send(wire.Command{Node: r.Node, Op: wire.Get, Report: true, Key: r.Key}, b)
	default:
		a.config.Logs.Append(r.Node, b.record, true)
		a.announceToPeers(b)
	}
}

// bitRead decides between our bit and the one that was there. One in force has been announced by
// its edge; one that has ended stands there because memcached is slow to forget, or because it is
// remembered, and one of a stricter limit is none.
//
// Under a rule that mitigates repeated offenders for longer, ours may be too short, because this
// edge did not know of the one that has ended.
func (a *Announcer) bitRead(b *Bit, r *wire.Result, now time.Time) {
	if r.Status == wire.Done && r.Values[0] != nil {
		there, ok := record.Open(a.config.Secret, r.Values[0])
		if ok && !a.disregards(&there) && there.Kind == record.Block &&
			there.Rule == b.record.Rule && there.Source == b.record.Source &&
			there.Limit >= b.record.Limit {
			rule := a.rules.Load().byID[b.counter.Rule.ID]
			repeats := rule != nil && rule.Repeat.Memory() > 0
			switch inForce := there.End.After(a.wall(now)); {
			case inForce:
				a.Apply(there, now)
				return
			case repeats:
				a.prolong(b.record, rule, there, now)
			}
		}
	}
	a.config.Send(a.bitCommand(r.Node, wire.Set, *b.record, b.counter, now), b)
}

// prolong makes our bit as long as it is for a source that comes back: the one before has ended,
// and is still at its key.
func (a *Announcer) prolong(r *record.Record, rule *knownRule, before record.Record,
	now time.Time) {
	end := r.Start.Add(rule.Repeat.After(before.Start, before.End, rule.Timeout, r.Start))
	if !end.After(r.End) {
		return
	}
	r.End = end
	wall := a.wall(now)
	bit := rule.bit(now.Add(r.Start.Sub(wall)), now.Add(end.Sub(wall)))
	bit.Version.Limit = r.Limit
	a.config.Blocks.Start(mitigation.Key{Rule: rule.Counter.ID, Source: r.Source}, bit, now)
}

// Renew learns a bit that was under the secret that this one replaces, and sets it under this one,
// so that edges that have this one alone find it.
func (a *Announcer) Renew(r record.Record, now time.Time) {
	if !a.Apply(r, now) {
		return
	}
	key := mitigation.Key{Rule: a.rules.Load().byDigest[r.Rule].Counter.ID, Source: r.Source}
	if bit, inForce := a.config.Blocks.Get(key, now); inForce {
		a.setBit(key, bit, now)
	}
}

// skew is how far clocks may be apart, and a bit's end behind what is possible.
const skew = 2 * time.Second

// Apply puts a record from the tier into force here, and reports whether it is a mitigation that
// was not known here.
func (a *Announcer) Apply(r record.Record, now time.Time) (started bool) {
	rule := a.rules.Load().byDigest[r.Rule]
	if rule == nil || a.disregards(&r) {
		return false
	}
	c, wall := counter.Counter{Rule: rule.Counter, Source: r.Source}, a.wall(now)
	switch epoch := a.config.Operators.Epoch(rule.Counter, r.Source); {
	case r.Epoch < epoch:
		return false // from before an operator lifted the source
	case r.Epoch > epoch && wall.Sub(r.Start) >= log.Kept:
		return false // recorded long ago, and the lift is forgotten
	case r.Epoch > epoch: // its edge knows of a lift that is on its way to this one
		a.config.Operators.Invalidate(operatorlog.Name{Rule: rule.Name, Source: r.Source}, r.Epoch, now)
	}
	if r.Kind == record.OtherPoPs {
		a.learnElsewhere(rule, &r, now)
		return false
	}
	a.learnState(c, &r, now)
	if r.Kind == record.RequestTimes && r.Edge != a.config.ID {
		a.exportTimes(c, now) // before others' times are added to its own
	}
	a.mergeTimes(c, r, now)
	if r.Kind != record.Block || rule.Timeout == 0 || rule.Counter.Limit > r.Limit {
		// A source that was blocked under a lower limit may be within this one, and a rule that
		// throttles blocks no source
		return false
	}
	longest := max(rule.Repeat.Longest(rule.Timeout),
		rule.Counter.Window+rule.Counter.SubWindow()) + skew
	start := r.Start.Sub(wall)
	// As long as the rule's is by now: it may have been longer
	end := min(r.End.Sub(wall), min(start, 0)+longest)
	// now carries the monotonic clock, and ends are held against that.
	bit := rule.bit(now.Add(start), now.Add(end))
	bit.Version.Limit = r.Limit
	if r.By == mitigation.ByPeer {
		bit.By = r.By
	}
	a.config.Counters.Blocked(c, bit.Start, bit.End, now)
	return a.config.Blocks.Start(mitigation.Key{Rule: rule.Counter.ID, Source: r.Source}, bit, now)
}
