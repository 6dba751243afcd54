package edge

import (
	"fmt"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// learned tells operators of a block that came into force here and is not this edge's own verdict. It is called with a part of the
// table locked.
func (s *Server) learned(k mitigation.Key, b mitigation.Bit) {
	by := "the PoP"
	if b.By == mitigation.ByPeer {
		by = "another PoP"
	}
	if b.By != mitigation.ByPoP && b.By != mitigation.ByPeer || !s.events.Wants(events.Block, b.Learned) {
		return // blocks tells of verdicts: it knows the estimate; Word.Event of what operators said
	}
	snap := s.snap.Load()
	if snap == nil {
		return
	}
	for r, l := range snap.rules.EachLimit() {
		tried := l.Candidate != nil && l.Candidate.Bits.ID == k.Rule
		if tried || l.Counter.ID == k.Rule {
			limit, note := l.Counter.Limit, shadows(&r.Rule)
			if tried {
				limit, note = l.Candidate.Counter.Limit, isTried
			}
			s.events.Add(events.Event{Time: b.Learned, Kind: events.Block, Text: "blocked by " + by + control.Reason(b.Reason) + note,
				Rule: r.Config.Name, Policy: r.PolicyOf(l), Source: k.Source.String(), Limit: limit, Until: b.End})
		}
	}
}

// blocks tells operators which blocks this request has started: of several requests at once that are over a limit, the one whose
// verdict is in force.
func (x *exchange) blocks() {
	s, d := x.server, &x.decision
	if s.events == nil {
		return
	}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if c.Verdict == limiter.Limited && !c.Until.IsZero() {
			r := &d.Results[c.Index]
			x.blocked(r, r.Rule.Candidate.Bits, c.Estimate, isTried)
		}
	}
	if d.Verdict != limiter.Limited && d.Verdict != limiter.Shadowed && d.Verdict != limiter.Tagged {
		return
	}
	for i := range d.Results {
		r := &d.Results[i]
		if r.Ask != nil && !r.Until.IsZero() {
			x.blocked(r, r.Rule.Counter, r.Ask.Estimate, shadows(r.Rule))
		}
	}
}

// blocked tells operators of a block under a rule, or its candidate, if this request has started it. by is what the block goes by.
func (x *exchange) blocked(r *limiter.RuleResult, by *algorithm.Rule, estimate float64, note string) {
	s, rule := x.server, x.decision.RuleOf(r)
	bit, in := s.limiter.Bits.Get(mitigation.Key{Rule: by.ID, Source: r.Source}, x.now)
	if !in || bit.By != mitigation.ByEdge || !bit.Start.Equal(x.now) || !s.events.Wants(events.Block, x.now) {
		return
	}
	s.events.Add(events.Event{Time: x.now, Kind: events.Block, Text: fmt.Sprintf("blocked by this edge: %.4g requests in %v, %d are allowed%s",
		estimate, rules.Duration(by.Window), by.Limit, note),
		Rule: rule.Config.Name, Policy: rule.PolicyOf(x.decision.LimitOf(r)), Source: r.Source.String(), Estimate: estimate, Limit: by.Limit, Until: bit.End})
}

// lifted tells operators of a block that ended because its rule did, or allows more.
func (s *Server) lifted(rule string, source counter.Source, now time.Time) {
	if s.events.Wants(events.Lift, now) {
		s.events.Add(events.Event{Time: now, Kind: events.Lift, Text: "lifted: the rule is gone, or allows more", Rule: rule, Source: source.String()})
	}
}

const isTried = " (candidate: nobody is refused)"

func shadows(r *limiter.Rule) string {
	if r.Shadow {
		return " (shadow: nobody is refused)"
	}
	if r.Tag {
		return " (tag: nobody is refused)"
	}
	return ""
}
