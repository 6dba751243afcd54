package operators

import (
	"cmp"
	"slices"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/operatorlog"
)

// lift is an epoch that is in force.
type lift struct {
	epoch  uint64
	since  time.Time
	listed bool // by an entry of the list, which says how long it is kept
}

// Epoch is the generation of the last lift of a source under a rule that this edge knows of, and 0
// if there is none. What was counted or started before it is void. All variants of a rule have the
// epoch of their rule.
func (l *List) Epoch(rule *algorithm.Spec, source counter.Source) uint64 {
	if len(l.epochs) == 0 {
		return 0
	}
	id := rule.ID
	if of, variant := l.rules.Load().of[id]; variant {
		id = of
	}
	return l.epochs[mitigation.Key{Rule: id, Source: source}]
}

// Settling reports whether a source was lifted since the last Apply, or in it: a mitigation of a
// verdict that fell before is no fresh.
func (l *List) Settling(key mitigation.Key) bool {
	_, lifted := l.settling[key]
	return lifted
}

// Apply puts in force what operators have said since the last Apply, and all of it for rules that
// are new. It reports whether this edge should publish what is in force here now (Self).
//
// A lift races with requests that were judged before it and have not started their mitigation yet.
// So the counts are forgotten in one Apply, and in a later one the verdicts are voided that fell
// before its now, which is after that.
func (l *List) Apply(now time.Time) (changed bool) {
	for key, since := range l.settling {
		if now.After(since) {
			l.config.Blocks.Invalidate(key, now)
			delete(l.settling, key)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report()
	if rules := l.rules.Load(); rules != l.under {
		l.changes.unannounced = true
		l.under = rules
		l.renameLifts(rules.Rules)
		for name := range l.list.All() {
			l.apply(name, now)
		}
		l.fresh = l.fresh[:0]
	}
	for _, name := range l.fresh {
		l.apply(name, now)
		l.changes.unannounced = true
	}
	l.fresh = l.fresh[:0]
	if l.changes.unannounced && l.changes.done == l.changes.version {
		l.applied, l.changes.unannounced = l.list.Marks(), false
		return true
	}
	return false
}

// report passes on operators' orders about sources at other edges since this one began, each entry
// once, those of an edge in their order. An edge that has an entry has all earlier entries of its
// edge, or what replaced them. mu is locked.
func (l *List) report() {
	if l.config.Received == nil {
		return
	}
	var fresh []*operatorlog.Entry
	for _, name := range l.fresh {
		e := l.list.At(name)
		if e == nil || e.Kind == operatorlog.Change || e.Mark().Edge == l.config.ID ||
			e.Mark().Generation <= l.reported[e.Mark().Edge] || e.Start.Before(l.began) {
			continue
		}
		fresh = append(fresh, e)
	}
	slices.SortFunc(fresh, func(a, b *operatorlog.Entry) int {
		return cmp.Or(cmp.Compare(a.Mark().Generation, b.Mark().Generation),
			cmp.Compare(a.Mark().Edge, b.Mark().Edge))
	})
	for _, e := range slices.CompactFunc(fresh,
		func(a, b *operatorlog.Entry) bool { return a.Mark() == b.Mark() }) {
		l.reported[e.Mark().Edge] = e.Mark().Generation
		l.config.Received(e.Order)
	}
}

// renameLifts makes the epochs of the rules in force.
func (l *List) renameLifts(rules Rules) {
	before := l.epochs
	l.epochs = make(map[mitigation.Key]uint64, len(l.lifts))
	for name, lift := range l.lifts {
		for _, rule := range rules[name.Rule] {
			if rule.VariantOf != 0 {
				continue
			}
			key := mitigation.Key{Rule: rule.Counter.ID, Source: name.Source}
			l.epochs[key] = lift.epoch
			// If it has counts, they are from before the rule was last gone
			if _, there := before[key]; !there {
				l.config.Counters.Forget(rule.Counter, name.Source)
			}
		}
	}
}

// apply puts the word of a name in force.
func (l *List) apply(name operatorlog.Name, now time.Time) {
	e := l.list.At(name)
	if e == nil || e.Kind == operatorlog.Change {
		return
	}
	if e.Epoch > l.lifts[name].epoch {
		l.Invalidate(name, e.Epoch, now)
	}
	if lift, there := l.lifts[name]; there && lift.epoch == e.Epoch {
		lift.listed = true
		l.lifts[name] = lift
	}
	for _, rule := range l.under.Rules[name.Rule] {
		if rule.ExtraLimit || rule.VariantOf != 0 {
			continue // a block is under the rule's own first limit
		}
		key := mitigation.Key{Rule: rule.Counter.ID, Source: name.Source}
		bit, there := l.config.Blocks.Get(key, now)
		switch {
		case e.Kind == operatorlog.Block && now.Before(e.End):
			// now carries the monotonic clock, and ends are held against that.
			end := now.Add(min(e.End.Sub(now), mitigation.MaxBlock))
			if !there || bit.By != mitigation.ByAdmin || !bit.Start.Equal(e.Start) ||
				bit.Reason != e.Reason || bit.End.Sub(end).Abs() > time.Second {
				l.config.Blocks.Start(key, mitigation.Bit{Start: e.Start, End: end,
					By: mitigation.ByAdmin, Reason: e.Reason, Who: e.Who}, now)
			}
		case there && bit.By == mitigation.ByAdmin: // lifted, or ended by a shorter one
			l.config.Blocks.Lift(key, now)
		}
	}
}

// Invalidate begins an epoch: what was counted or started before is not in force any more. Apply does so
// as well; another edge may know of a lift before its entry is here.
func (l *List) Invalidate(name operatorlog.Name, epoch uint64, now time.Time) {
	if l.lifts == nil {
		l.lifts = make(map[operatorlog.Name]lift)
	}
	if l.settling == nil {
		l.settling = make(map[mitigation.Key]time.Time)
	}
	l.lifts[name] = lift{epoch: epoch, since: now}
	for _, rule := range l.rules.Load().Rules[name.Rule] {
		key := mitigation.Key{Rule: rule.Counter.ID, Source: name.Source}
		if l.epochs == nil {
			l.epochs = make(map[mitigation.Key]uint64)
		}
		if rule.VariantOf == 0 {
			l.epochs[key] = epoch
		}
		l.config.Counters.Forget(rule.Counter, name.Source)
		if bit, there := l.config.Blocks.Last(key, now); there && bit.By != mitigation.ByAdmin {
			l.config.Blocks.Lift(key, now)
		}
		l.settling[key] = now
	}
}

// Sweep drops epochs whose entries are over: nothing is left that they void.
func (l *List) Sweep(now time.Time) {
	if len(l.lifts) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	some := false
	for name, lift := range l.lifts {
		// One learned from another edge's line has no word here yet.
		if e := l.list.At(name); (e == nil || e.Over(now)) &&
			(lift.listed || now.Sub(lift.since) > mitigation.MaxTimeout+mitigation.MaxMemory) {
			delete(l.lifts, name)
			some = true
		}
	}
	if some {
		l.renameLifts(l.rules.Load().Rules)
	}
}
