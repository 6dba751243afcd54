package edge

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"

	"sluice/counter"
	"sluice/edge/audit"
	"sluice/edge/config"
	"sluice/edge/rules"
	"sluice/edge/top"
	"sluice/mitigation"
)

// What operators see and do, for the API. Times are as the clock has them; a source is named as counter.Source writes it.

// Mitigation is a bit in force.
type Mitigation struct {
	Rule    string    `json:"rule"`   // AllRules: all of them
	Source  string    `json:"source"` // of an operator's block perhaps a wider prefix than rules count
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Learned time.Time `json:"learned"` // when it came into force on this edge
	By      string    `json:"by"`      // edge, pop or admin
	Reason  string    `json:"reason,omitempty"`
	Edges   *Spread   `json:"edges,omitempty"` // of a block that was just said: where it is in force

	Mode    rules.Mode `json:"mode"`              // of the rule, or rules.Tried: under a shadow and for a candidate nobody is refused
	Warning string     `json:"warning,omitempty"` // of a block that was just said: why it can have no effect
}

// Lifted is what became of a lift.
type Lifted struct {
	Lifted bool    `json:"lifted"`          // there was a mitigation here
	Edges  *Spread `json:"edges,omitempty"` // where it is in force; nil: this edge counts alone

	Warning string `json:"warning,omitempty"` // of a lift under AllRules: what still refuses the source
}

// ErrOff says that a rule is off.
var ErrOff = errors.New("edge: that rule is off, so a block under it refuses nobody: turn it on, or block under * (all rules)")

// single is the prefix of one address.
func single(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	return netip.PrefixFrom(addr, addr.BitLen())
}

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

// Rules returns the rules as they are configured, those that are off as well.
func (s *Server) Rules() []rules.Config {
	return s.snap.Load().rules.Configs()
}

// Counted returns what the rules in force count by.
func (s *Server) Counted() []*counter.Rule {
	var list []*counter.Rule
	for _, r := range s.snap.Load().rules.Rules {
		list = append(list, r.Counter)
	}
	return list
}

// Config returns the configuration in force. It must not be changed.
func (s *Server) Config() *config.Config { return s.snap.Load().config }

// RulesHash stands for the rules in force, the same number on edges with the same rules, and says since when they are these.
func (s *Server) RulesHash() (hash uint64, since time.Time) {
	snap := s.snap.Load()
	return snap.hash, snap.since
}

// Mitigations returns those in force at now, in no order.
func (s *Server) Mitigations(now time.Time) []Mitigation {
	return slices.Collect(s.EachMitigation(now))
}

// EachMitigation ranges over Mitigations, which may be a million.
func (s *Server) EachMitigation(now time.Time) iter.Seq[Mitigation] {
	return func(yield func(Mitigation) bool) {
		for m := range s.InForce(now) {
			if m.Rule != Allow && m.Rule != Deny && !yield(m) {
				return
			}
		}
	}
}

// InForce is Mitigations with what operators Allow and Deny, as another process on this edge's place may Adopt them.
func (s *Server) InForce(now time.Time) iter.Seq[Mitigation] {
	names, modes := make(map[uint32]string), make(map[uint32]rules.Mode)
	for _, r := range s.snap.Load().rules.Rules {
		names[r.Counter.ID], modes[r.Counter.ID] = r.Config.Name, r.Config.Mode
		if tried := r.Candidate; tried != nil {
			names[tried.Bits.ID], modes[tried.Bits.ID] = r.Config.Name, rules.Tried
		}
	}
	for _, scope := range scopes {
		names[scope.Counter.ID], modes[scope.Counter.ID] = scope.Name, rules.Enforce
	}
	return func(yield func(Mitigation) bool) {
		for key, bit := range s.limiter.Bits.All(now) {
			name, known := names[key.Rule]
			if !known {
				continue
			}
			m := shown(name, key.Source, bit)
			if m.Mode = modes[key.Rule]; !yield(m) {
				return
			}
		}
	}
}

// shown is a bit as operators see it.
func shown(rule string, source counter.Source, bit mitigation.Bit) Mitigation {
	return Mitigation{Rule: rule, Source: source.String(), Start: bit.Start, End: bit.End, Learned: bit.Learned, By: bit.By.String(), Reason: bit.Reason}
}

// Block refuses a source, or all sources of a prefix, under a rule or AllRules for a while, on every edge of the PoP, in place of what was
// in force. Errors are ErrNoRule, ErrOff, ErrFull, and what is wrong with the source or the time.
func (s *Server) Block(rule, source string, d time.Duration, reason string, by Operator, now time.Time) (Mitigation, error) {
	r, key, err := s.keyOf(rule, source)
	if err != nil {
		return Mitigation{}, err
	}
	m, err := s.put(rule, key, d, reason, by, now)
	m.Mode, m.Warning = rules.Enforce, s.effect(r, key.Source, now)
	if r != nil {
		m.Mode = r.Config.Mode
	}
	return m, err
}

// put has an operator's word in force for a while.
func (s *Server) put(rule string, key mitigation.Key, d time.Duration, reason string, by Operator, now time.Time) (m Mitigation, err error) {
	if d <= 0 || d > mitigation.MaxBlock {
		return m, fmt.Errorf("edge: for %v: want more than 0 and at most %v", rules.Duration(d), rules.Duration(mitigation.MaxBlock))
	}
	m = Mitigation{Rule: rule, Source: key.Source.String(), Start: now, End: now.Add(d), Learned: now,
		By: mitigation.ByAdmin.String(), Reason: reason}
	m.Edges, err = s.say(Word{Rule: rule, Source: key.Source, Start: now, End: m.End, Reason: reason, Operator: by}, key, func() {
		s.limiter.Bits.Start(key, mitigation.Bit{Start: now, End: m.End, By: mitigation.ByAdmin, Reason: reason}, now)
	})
	return m, err
}

// say has the PoP put a word in force, here as well, and waits for that: what several operators say of one source at once comes
// in the same order everywhere. On an edge that counts alone it does so itself, as alone says. Then it is told.
func (s *Server) say(w Word, key mitigation.Key, alone func()) (*Spread, error) {
	event := w.Event(w.Start)
	if bit, in := s.limiter.Bits.Get(key, w.Start); in {
		event.Old = blockText(&bit)
	}
	if s.tier.Say == nil {
		alone()
		s.events.Add(event)
		return nil, nil
	}
	spread, err := s.tier.Say(w)
	if err != nil {
		return nil, err
	}
	if spread.Missing == nil {
		spread.Missing = []string{}
	}
	s.events.Add(event)
	return &spread, nil
}

// Adopt takes over a mitigation that another process on this edge's place knows of. One of a rule that there is not, or longer
// than the rule allows, is cut or left out.
func (s *Server) Adopt(m Mitigation, now time.Time) {
	r, key, err := s.keyOf(m.Rule, m.Source)
	if m.Rule == Allow || m.Rule == Deny {
		key, err = scopeKey(m.Rule, m.Source)
	}
	if err != nil || !m.End.After(now) {
		return
	}
	bit := mitigation.Bit{Start: m.Start, End: m.End, By: mitigation.ByPoP, Reason: m.Reason}
	most := mitigation.MaxBlock
	switch {
	case m.By == mitigation.ByAdmin.String():
		bit.By = mitigation.ByAdmin
	case r == nil:
		return // only operators speak of all rules
	case m.Mode == rules.Tried && r.Candidate == nil:
		return // it is tried no more
	case m.Mode == rules.Tried:
		key.Rule = r.Candidate.Bits.ID
		most = r.Candidate.Timeout + time.Duration(r.Config.Window)
	default:
		// A bit may end later than the timeout: when the source would be admitted again.
		most = r.Timeout + time.Duration(r.Config.Window)
	}
	if end := now.Add(min(most, m.End.Sub(now))); end.After(now) {
		bit.End = end // on the monotonic clock of this process
		s.limiter.Bits.Start(key, bit, now)
	}
}

// Lift ends the mitigation of a source under a rule and forgets what was counted of it, on every edge of the PoP, so that it starts
// afresh. AllRules ends what operators said of all rules, and every mitigation of the source that is in force here.
func (s *Server) Lift(rule, source string, by Operator, now time.Time) (Lifted, error) {
	if rule == AllRules {
		return s.liftAll(source, by, now)
	}
	return s.liftUnder(rule, source, by, now)
}

// liftUnder is Lift under one rule, or of what was said of AllRules.
func (s *Server) liftUnder(rule, source string, by Operator, now time.Time) (Lifted, error) {
	r, key, err := s.keyOf(rule, source)
	if err != nil {
		return Lifted{}, err
	}
	defer s.audit.Forget(key)
	return s.lift(rule, key, r, by, now)
}

// lift ends an operator's word, or a mitigation. r is nil for a scope.
func (s *Server) lift(rule string, key mitigation.Key, r *rules.Rule, by Operator, now time.Time) (lifted Lifted, err error) {
	lifted.Lifted = !s.limiter.Bits.Until(key, now).IsZero()
	lifted.Edges, err = s.say(Word{Rule: rule, Source: key.Source, Start: now, Operator: by}, key, func() {
		if r != nil {
			s.limiter.Counters.Forget(r.Counter, key.Source)
		}
		if r != nil && r.Candidate != nil {
			s.limiter.Bits.Lift(mitigation.Key{Rule: r.Candidate.Bits.ID, Source: key.Source}, time.Now())
		}
		// After Forget: who was judged before it may not have started a mitigation yet.
		lifted.Lifted = s.limiter.Bits.Lift(key, time.Now())
	})
	return lifted, err
}

// Look tells what is known of an address: what lists say of it, and how it stands under every rule that counts by source. The tier is
// asked what it has of it, and waited for until ctx is done; what this edge knows is told all the same.
func (s *Server) Look(ctx context.Context, addr netip.Addr) Looked {
	snap := s.snap.Load()
	source := snap.sources.Of(addr)
	l := Looked{Source: source.String(), Asked: s.askTier(ctx, snap, source), Rules: []Standing{}}
	now, covering := time.Now(), s.limiter.Bits.Covering(single(addr), nil)
	l.Denied = rules.IsIn(snap.deny, addr) || s.limiter.Bits.Says(mitigation.Denied, covering, now)
	l.Allowed = !l.Denied && (rules.IsIn(snap.allow, addr) || s.limiter.Bits.Says(mitigation.Allowed, covering, now))
	for _, r := range snap.rules.Rules {
		if r.Parts != nil {
			continue // counted by something that an address does not tell
		}
		v, known := s.limiter.Counters.Peek(r.Counter, source, now)
		st := Standing{Rule: r.Config.Name, Source: source.String(), Mode: r.Config.Mode, Limit: r.Config.Limit, Remaining: r.Config.Limit,
			OutsideShare: !r.IsAbout(s.secret, source)}
		if known {
			st.Estimate, st.Remaining = v.Estimate, v.Remaining
		}
		if until := s.limiter.Bits.UntilOf(mitigation.Key{Rule: r.Counter.ID, Source: source}, covering, now); !until.IsZero() {
			st.Until = &until
		}
		st.Block = s.over(source, covering, now, r)
		l.Rules = append(l.Rules, st)
	}
	return l
}

// askTier asks the tier what it has of a source under all rules that count by source, and reports whether it has answered by the time
// that ctx is done.
func (s *Server) askTier(ctx context.Context, snap *snapshot, source counter.Source) bool {
	if s.tier.Ask == nil || s.tier.Up != nil && !s.tier.Up(source) {
		return false
	}
	var replies []<-chan struct{}
	for _, r := range snap.rules.Rules {
		if r.Parts != nil {
			continue
		}
		reply, first := s.limiter.Counters.Await(r.Counter, source)
		if first {
			s.tier.Ask(r.Counter, source)
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

// Nodes describes the tier; none on an edge that counts alone.
func (s *Server) Nodes() []NodeStatus {
	if s.tier.Nodes == nil {
		return nil
	}
	return s.tier.Nodes()
}

// Edges describes the PoP, this edge first; nothing on an edge that counts alone.
func (s *Server) Edges() []EdgeStatus {
	if s.tier.Edges == nil {
		return nil
	}
	return s.tier.Edges()
}

// Failed counts a reload that never came to Apply.
func (s *Server) Failed() { s.stats.reloads[0].Add(1) }

// keyOf finds a rule by name and a source in the form that the rule counts, or a wider prefix. The rule is nil for AllRules.
func (s *Server) keyOf(rule, source string) (*rules.Rule, mitigation.Key, error) {
	if rule == AllRules {
		key, err := scopeKey(rule, source)
		return nil, key, err
	}
	snap := s.snap.Load()
	r := snap.rules.ByName(rule)
	if r == nil {
		if slices.ContainsFunc(snap.rules.All, func(r *rules.Rule) bool { return r.Config.Name == rule }) {
			return nil, mitigation.Key{}, fmt.Errorf("%w: %s", ErrOff, rule)
		}
		return nil, mitigation.Key{}, fmt.Errorf("%w: %s", config.ErrNoRule, rule)
	}
	src, err := counter.ParseSource(source)
	if err != nil {
		return nil, mitigation.Key{}, fmt.Errorf("edge: source %q: want an address, a prefix, or # and 32 hexadecimal digits", source)
	}
	if p, ok := src.Prefix(); ok {
		if r.Parts != nil {
			return nil, mitigation.Key{}, fmt.Errorf("edge: rule %s does not count by address: name the source as GET /v1/mitigations does", rule)
		}
		want := snap.sources.V6
		if p.Addr().Is4() {
			want = snap.sources.V4
		}
		if p.Bits() >= want {
			src = snap.sources.Of(p.Addr())
		} else if err := checkWidth(p); err != nil {
			return nil, mitigation.Key{}, err
		}
	}
	return r, mitigation.Key{Rule: r.Counter.ID, Source: src}, nil
}

// Audit is what watches some sources; nil if nobody does.
func (s *Server) Audit() *audit.Audit { return s.audit }

// TopRequests returns at most n of the sources with the most requests, the heaviest first. Counts are halved every ten
// minutes; a thousand sources are counted at most.
func (s *Server) TopRequests(n int) []top.Heavy { return s.requests.Heaviest(n) }

// TopRefused is TopRequests for requests that were refused.
func (s *Server) TopRefused(n int) []top.Heavy { return s.refusals.Heaviest(n) }

// TopShadow is TopRequests for requests that were admitted, and that a shadow or a candidate would have refused.
func (s *Server) TopShadow(n int) []top.Heavy { return s.spared.Heaviest(n) }
