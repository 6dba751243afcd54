package announcement

import (
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/across"
	"sluice/pop/record"
)

// announceToPeers sends other PoPs a block that this edge has announced to its own. Of several
// edges that find a source over its limit at once one announces it, so it is sent once, or twice
// while the list of nodes changes. What came from a peer goes to no other, so nothing goes round.
func (a *Announcer) announceToPeers(b *Bit) {
	rule := a.rules.Load().byID[b.counter.Rule.ID]
	if a.config.Decided == nil || a.peersOff.Load() || b.record.By == mitigation.ByPeer ||
		rule == nil || rule.Shadow || !across.Travels(b.record.Source) {
		return
	}
	r := b.record
	a.config.Decided(across.Block{Rule: rule.Name, Counts: rule.Counter.Name, Source: r.Source,
		Start: r.Start, End: r.End, Limit: r.Limit, Window: rule.Counter.Window})
}

// AddPeerBlock puts a block into force that the PoP from has sent, announced at a time on its
// clock, and sends it to all edges of this PoP: one add, and a line of the log. It is no longer,
// from its start, than the longest that the rule here has, and none where the rule allows more or
// counts by other prefixes. It may be called from anywhere.
func (a *Announcer) AddPeerBlock(from string, b across.Block,
	announced, now time.Time) across.Outcome {
	var rule *knownRule
	for _, r := range a.rules.Load().byName[b.Rule] {
		if r.Counter.Name == b.Counts && r.Timeout > 0 && !r.Shadow &&
			(rule == nil || r.Counter.Window == b.Window) {
			rule = r // of a rule's several windows the one that was passed
		}
	}
	switch {
	case rule == nil || a.peersOff.Load():
		return across.NoRule
	case !rule.counts(b.Source):
		return across.OtherWidth
	case rule.Counter.Limit > b.Limit ||
		float64(rule.Counter.Limit)*float64(b.Window) > float64(b.Limit)*float64(rule.Counter.Window):
		return across.Looser
	}
	// Spans, because the clocks of PoPs are not one clock. The longest counts from the start, also
	// where the block arrives late: learn, on the other edges, cuts there.
	since := max(announced.Sub(b.Start), 0)
	start, end := now.Add(-since), now.Add(min(b.End.Sub(announced),
		rule.Repeat.Longest(rule.Timeout)-since))
	bit := rule.bit(start, end)
	bit.Reason = "PoP " + from
	key := mitigation.Key{Rule: rule.Counter.ID, Source: b.Source}
	if !a.config.Blocks.AddPeerBlock(key, bit, now) {
		return across.Known
	}
	return across.Imposed
}

// counts reports whether a source is of a width that the rule counts by. No request looks up a
// block of another width, except one that an operator has given an order about; a peer that sends
// such a block could block far more than one source.
func (r *knownRule) counts(s counter.Source) bool {
	p, _ := s.Prefix()
	width := r.V6
	if p.Addr().Is4() {
		width = r.V4
	}
	return width == 0 || width == p.Bits()
}

// Peers sets whether blocks of other PoPs count and this one's are sent to others. At first both is
// so. Where they do not any more, those in force are lifted; what the tier has of them is
// disregarded.
func (a *Announcer) Peers(on bool) {
	a.peersOff.Store(!on)
	if !on {
		a.config.Blocks.LiftPeers()
		a.config.Counters.ForgetOtherPoPs()
	}
}

// disregards reports whether a record is another PoP's that counts no more.
func (a *Announcer) disregards(r *record.Record) bool {
	return r.By == mitigation.ByPeer && a.peersOff.Load()
}

// fromPeers are counts of other PoPs that wait until they are written to the log.
type fromPeers struct {
	mu      sync.Mutex
	waiting []said
}

// said is what another PoP has counted of a counter.
type said struct {
	counter counter.Counter
	record  record.Record
}

// countToPeers sends other PoPs what this one has counted of a source that is near its limit
// (counter.Reply.Near). The requests that were counted here pay for what it costs there.
func (a *Announcer) countToPeers(c counter.Counter, now time.Time) {
	rule := a.rules.Load().byID[c.Rule.ID]
	if a.config.Counted == nil || a.peersOff.Load() || rule == nil || rule.Shadow ||
		!counter.Carries(rule.Counter) || !across.Travels(c.Source) {
		return
	}
	if !a.Budget.Affords(c.Rule, itemCost) {
		return
	}
	if here := a.config.Counters.CountedHere(c, now); len(here.Hits) > 0 {
		for range itemCost {
			a.Budget.Spend()
		}
		a.config.Counted(across.Count{Rule: rule.Name, Counts: rule.Counter.Name, Source: c.Source,
			Window: rule.Counter.Window, Began: here.Began, Sub: here.Sub, Hits: here.Hits})
	}
}

// farthest is how long a count is under way at most where the clocks of PoPs differ. Where they do
// not it may take longer: hits are as old as either clock says, so that none stays in a window that
// has left it.
const farthest = 250 * time.Millisecond

// AddCount adds what the PoP from has counted of a source, and sent at a time on its clock, to what
// is counted here, and sends it to all edges of this PoP: a line of the log. It may be called from
// anywhere.
func (a *Announcer) AddCount(from string, b across.Count, sent, now time.Time) across.Outcome {
	var rule *knownRule
	for _, r := range a.rules.Load().byName[b.Rule] {
		if r.Counter.Name == b.Counts && r.Counter.Window == b.Window && !r.Shadow &&
			counter.Carries(r.Counter) {
			rule = r
		}
	}
	switch {
	case rule == nil || a.peersOff.Load():
		return across.NoRule
	case !rule.counts(b.Source):
		return across.OtherWidth
	}
	c, pop := counter.Counter{Rule: rule.Counter, Source: b.Source}, xxhash.Sum64String(from)
	wall := a.wall(now)
	// A span, because the clocks of PoPs are not one clock
	began := wall.Add(b.Began.Sub(sent) - farthest)
	if b.Began.Before(began) {
		began = b.Began
	}
	slice := counter.Slice{Began: began, Sub: b.Sub, Hits: b.Hits}
	newest, groups := a.config.Counters.Fit(c, slice, now)
	if !a.config.Counters.CountedByOtherPoP(c, pop, newest, groups, wall, now) {
		return across.NoRoom
	}
	a.fromPeers.mu.Lock()
	defer a.fromPeers.mu.Unlock()
	if len(a.fromPeers.waiting) < across.Burst {
		a.fromPeers.waiting = append(a.fromPeers.waiting,
			said{c, record.Record{Kind: record.OtherPoPs, Rule: rule.digest, Source: b.Source,
				Start: wall, Edge: pop, Newest: newest, Groups: groups}})
	}
	return across.Counted
}

// AnnounceCounts writes what other PoPs have counted to the logs.
func (a *Announcer) AnnounceCounts() {
	a.fromPeers.mu.Lock()
	waiting := a.fromPeers.waiting
	a.fromPeers.waiting = nil
	a.fromPeers.mu.Unlock()
	for _, w := range waiting {
		w.record.Epoch = a.config.Operators.Epoch(w.counter.Rule, w.counter.Source)
		a.append(w.counter.Source, w.record, true)
	}
}

// learnElsewhere takes in such a record.
func (a *Announcer) learnElsewhere(rule *knownRule, r *record.Record, now time.Time) {
	if !a.peersOff.Load() && counter.Carries(rule.Counter) {
		a.config.Counters.CountedByOtherPoP(counter.Counter{Rule: rule.Counter, Source: r.Source},
			r.Edge, r.Newest, r.Groups, r.Start, now)
	}
}
