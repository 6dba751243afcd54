package edge

import (
	"fmt"
	"time"

	"sluice/counter"
	"sluice/edge/events"
	"sluice/edge/limiter"
	"sluice/mitigation"
)

// learned tells operators of a block that came into force here and is not this edge's own verdict. It is called with a part of the
// table locked.
func (s *Server) learned(k mitigation.Key, b mitigation.Bit) {
	if b.By != mitigation.ByPoP || !s.events.Wants(events.Block, b.Learned) {
		return // blocks tells of verdicts: it knows the estimate; Word.Event of what operators said
	}
	snap := s.snap.Load()
	if snap == nil {
		return
	}
	for _, r := range snap.rules.Rules {
		if r.Counter.ID == k.Rule {
			s.events.Add(events.Event{Time: b.Learned, Kind: events.Block, Text: "blocked by the PoP" + reason(b.Reason) + shadows(&r.Rule),
				Rule: r.Config.Name, Source: k.Source.String(), Limit: r.Config.Limit, Until: b.End})
		}
	}
}

// blocks tells operators which blocks this request has started: of several requests at once that are over a limit, the one whose
// verdict is in force.
func (x *exchange) blocks() {
	s, d := x.server, &x.decision
	if s.events == nil || d.Verdict != limiter.Limited && d.Verdict != limiter.Shadowed {
		return
	}
	for i := range d.Results {
		r := &d.Results[i]
		if r.Ask == nil || r.Until.IsZero() {
			continue
		}
		bit, in := s.limiter.Bits.Get(mitigation.Key{Rule: r.Rule.Counter.ID, Source: r.Source}, x.now)
		if !in || bit.By != mitigation.ByEdge || !bit.Start.Equal(x.now) || !s.events.Wants(events.Block, x.now) {
			continue
		}
		s.events.Add(events.Event{Time: x.now, Kind: events.Block, Text: fmt.Sprintf("blocked by this edge: %.4g requests in %v, %d are allowed%s",
			r.Ask.Estimate, d.RuleOf(r).Config.Window, r.Rule.Counter.Limit, shadows(r.Rule)),
			Rule: d.RuleOf(r).Config.Name, Source: r.Source.String(), Estimate: r.Ask.Estimate, Limit: r.Rule.Counter.Limit, Until: bit.End})
	}
}

// lifted tells operators of a block that ended because its rule did, or allows more.
func (s *Server) lifted(rule string, source counter.Source, now time.Time) {
	if s.events.Wants(events.Lift, now) {
		s.events.Add(events.Event{Time: now, Kind: events.Lift, Text: "lifted: the rule is gone, or allows more", Rule: rule, Source: source.String()})
	}
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

func shadows(r *limiter.Rule) string {
	if r.Shadow {
		return " (shadow: nobody is refused)"
	}
	return ""
}
