package control

import (
	"context"
	"net/netip"
	"time"

	"sluice/counter"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// Standing is how a source stands under a rule.
type Standing struct {
	Rule      string      `json:"rule"`
	Source    string      `json:"source"`
	Mode      rules.Mode  `json:"mode"`
	Estimate  float64     `json:"estimate"` // hits in the window
	Limit     uint32      `json:"limit"`
	Remaining uint32      `json:"remaining"`
	Until     *time.Time  `json:"mitigated_until"` // null: not mitigated
	Block     *Mitigation `json:"block,omitempty"` // why not

	OutsideShare bool `json:"outside_share,omitempty"` // the rule is not about this source
}

// Looked is what is known of a source.
type Looked struct {
	Source  string     `json:"source"`
	Allowed bool       `json:"allowed"` // by the list allow: never limited
	Denied  bool       `json:"denied"`  // by the list deny: always refused
	Asked   bool       `json:"asked"`   // the tier has answered; else this is what this edge alone knows
	Rules   []Standing `json:"rules"`
}

// Look tells what is known of an address: what lists say of it, and how it stands under every rule that counts by source. The tier is
// asked what it has of it, and waited for until ctx is done; what this edge knows is told all the same.
func (c *Plane) Look(ctx context.Context, addr netip.Addr) Looked {
	in := c.view()
	source := in.Sources.Of(addr)
	l := Looked{Source: source.String(), Asked: c.askTier(ctx, in, source), Rules: []Standing{}}
	now, covering := time.Now(), c.limiter.Bits.Covering(rules.Single(addr), nil)
	l.Denied = rules.IsIn(in.Deny, addr) || c.limiter.Bits.Says(mitigation.Denied, covering, now)
	l.Allowed = !l.Denied && (rules.IsIn(in.Allow, addr) || c.limiter.Bits.Says(mitigation.Allowed, covering, now))
	for _, r := range in.Rules.Rules {
		if r.Parts != nil || r.Config.Limit == 0 {
			continue // counted by something that an address does not tell, or not at all
		}
		v, known := c.limiter.Counters.Peek(r.Counter, source, now)
		st := Standing{Rule: r.Config.Name, Source: source.String(), Mode: r.Config.Mode, Limit: r.Config.Limit, Remaining: r.Config.Limit,
			OutsideShare: !r.IsAbout(c.secret, source)}
		if known {
			st.Estimate, st.Remaining = v.Estimate, v.Remaining
		}
		if until := c.limiter.Bits.UntilOf(mitigation.Key{Rule: r.Counter.ID, Source: source}, covering, now); !until.IsZero() {
			st.Until = &until
		}
		st.Block = c.over(source, covering, now, r)
		l.Rules = append(l.Rules, st)
	}
	return l
}

// askTier asks the tier what it has of a source under all rules that count by source, and reports whether it has answered by the time
// that ctx is done.
func (c *Plane) askTier(ctx context.Context, in View, source counter.Source) bool {
	if c.limiter.Ask == nil || c.limiter.Up != nil && !c.limiter.Up(source) {
		return false
	}
	var replies []<-chan struct{}
	for _, r := range in.Rules.Rules {
		if r.Parts != nil || r.Config.Limit == 0 {
			continue
		}
		reply, first := c.limiter.Counters.Await(r.Counter, source)
		if first {
			c.limiter.Ask(r.Counter, source)
		}
		replies = append(replies, reply)
	}
	for _, reply := range replies {
		select {
		case <-reply:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Nearest returns, for every rule that counts by address, the source that has used most of its limit and is not mitigated, of the n
// with the most requests of late: how much room a rule leaves to whom it does not refuse.
func (c *Plane) Nearest(n int, now time.Time) map[string]Standing {
	var heavy []counter.Source
	for _, h := range c.requests.Heaviest(n) {
		if src, err := counter.ParseSource(h.Source); err == nil {
			heavy = append(heavy, src)
		}
	}
	nearest := make(map[string]Standing)
	for _, r := range c.view().Rules.Rules {
		if r.Parts != nil {
			continue // counted by something that an address does not tell
		}
		for _, src := range heavy {
			v, known := c.limiter.Counters.Peek(r.Counter, src, now)
			if !known || v.Estimate <= nearest[r.Config.Name].Estimate ||
				!c.limiter.Bits.Until(mitigation.Key{Rule: r.Counter.ID, Source: src}, now).IsZero() {
				continue
			}
			nearest[r.Config.Name] = Standing{Rule: r.Config.Name, Source: src.String(), Mode: r.Config.Mode,
				Estimate: v.Estimate, Limit: r.Config.Limit, Remaining: v.Remaining}
		}
	}
	return nearest
}

// over is what is in force at now over a source under some rules or under AllRules, said of it or of a prefix that covers it: what ends
// last; nil if nothing is.
func (c *Plane) over(source counter.Source, covering []counter.Source, now time.Time, under ...*rules.Rule) (last *Mitigation) {
	look := func(rule string, id uint32, mode rules.Mode, source counter.Source) {
		if bit, in := c.limiter.Bits.Get(mitigation.Key{Rule: id, Source: source}, now); in && (last == nil || bit.End.After(last.End)) {
			m := shown(rule, source, bit)
			m.Mode, last = mode, &m
		}
	}
	for _, r := range under {
		look(r.Config.Name, r.Counter.ID, r.Config.Mode, source)
	}
	for _, wider := range covering {
		look(AllRules, mitigation.AllRules, rules.Enforce, wider)
		for _, r := range under {
			look(r.Config.Name, r.Counter.ID, r.Config.Mode, wider)
		}
	}
	return last
}
