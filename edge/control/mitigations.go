package control

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"sluice/counter"
	"sluice/edge/config"
	"sluice/edge/rules"
	"sluice/mitigation"
)

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

	Warning string `json:"warning,omitempty"` // of a lift under AllRules: what still refuses the source; of a prefix off a list: that it is on it all the same
}

// ErrOff says that a rule is off.
var ErrOff = errors.New("edge: that rule is off, so a block under it refuses nobody: turn it on, or block under * (all rules)")

// Mitigations returns those in force at now, in no order.
func (c *Plane) Mitigations(now time.Time) []Mitigation {
	return slices.Collect(c.EachMitigation(now))
}

// EachMitigation ranges over Mitigations, which may be a million.
func (c *Plane) EachMitigation(now time.Time) iter.Seq[Mitigation] {
	return func(yield func(Mitigation) bool) {
		for m := range c.InForce(now) {
			if m.End.After(now) && m.Rule != Allow && m.Rule != Deny && !yield(m) {
				return
			}
		}
	}
}

// InForce is Mitigations with what operators Allow and Deny, and with those that have ended and are remembered, as another process on this
// edge's place may Adopt them.
func (c *Plane) InForce(now time.Time) iter.Seq[Mitigation] {
	names, modes := make(map[uint32]string), make(map[uint32]rules.Mode)
	for _, r := range c.view().Rules.Rules {
		names[r.Counter.ID], modes[r.Counter.ID] = r.Config.Name, r.Config.Mode
		if tried := r.Candidate; tried != nil {
			names[tried.Bits.ID], modes[tried.Bits.ID] = r.Config.Name, rules.Tried
		}
	}
	for _, scope := range Scopes {
		names[scope.Counter.ID], modes[scope.Counter.ID] = scope.Name, rules.Enforce
	}
	return func(yield func(Mitigation) bool) {
		for key, bit := range c.limiter.Bits.Remembered(now) {
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
func (c *Plane) Block(rule, source string, d time.Duration, reason string, by Operator, now time.Time) (Mitigation, error) {
	r, key, err := c.keyOf(rule, source)
	if err != nil {
		return Mitigation{}, err
	}
	m, err := c.put(rule, key, d, reason, by, now)
	m.Mode, m.Warning = rules.Enforce, c.effect(r, key.Source, now)
	if r != nil {
		m.Mode = r.Config.Mode
	}
	return m, err
}

// put has an operator's word in force for a while.
func (c *Plane) put(rule string, key mitigation.Key, d time.Duration, reason string, by Operator, now time.Time) (m Mitigation, err error) {
	if d <= 0 || d > mitigation.MaxBlock {
		return m, fmt.Errorf("edge: for %v: want more than 0 and at most %v", rules.Duration(d), rules.Duration(mitigation.MaxBlock))
	}
	m = Mitigation{Rule: rule, Source: key.Source.String(), Start: now, End: now.Add(d), Learned: now,
		By: mitigation.ByAdmin.String(), Reason: reason}
	m.Edges, err = c.say(Word{Rule: rule, Source: key.Source, Start: now, End: m.End, Reason: reason, Operator: by}, key, func() {
		c.limiter.Bits.Start(key, mitigation.Bit{Start: now, End: m.End, By: mitigation.ByAdmin, Reason: reason}, now)
	})
	return m, err
}

// say has the PoP put a word in force, here as well, and waits for that: what several operators say of one source at once comes
// in the same order everywhere. On an edge that counts alone it does so itself, as alone says. Then it is told.
func (c *Plane) say(w Word, key mitigation.Key, alone func()) (*Spread, error) {
	event := w.Event(w.Start)
	if bit, in := c.limiter.Bits.Get(key, w.Start); in {
		event.Old = blockText(&bit)
	}
	if c.pop.Say == nil {
		alone()
		c.events.Add(event)
		return nil, nil
	}
	spread, err := c.pop.Say(w)
	if err != nil {
		return nil, err
	}
	if spread.Missing == nil {
		spread.Missing = []string{}
	}
	c.events.Add(event)
	return &spread, nil
}

// Adopt takes over a mitigation that another process on this edge's place knows of. One of a rule that there is not, or longer
// than the rule allows, is cut or left out.
func (c *Plane) Adopt(m Mitigation, now time.Time) {
	r, key, err := c.keyOf(m.Rule, m.Source)
	if m.Rule == Allow || m.Rule == Deny {
		key, err = scopeKey(m.Rule, m.Source)
	}
	if err != nil {
		return
	}
	bit := mitigation.Bit{Start: m.Start, End: m.End, By: mitigation.ByPoP, Shadow: m.Mode == rules.Shadow || m.Mode == rules.Tried, Reason: m.Reason}
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
		most = r.Candidate.Repeat.Longest(r.Candidate.Timeout) + time.Duration(r.Config.Window)
		bit.Memory = r.Candidate.Repeat.Memory()
	default:
		// A bit may end later than the timeout: when the source would be admitted again.
		most = r.Repeat.Longest(r.Timeout) + time.Duration(r.Config.Window)
		bit.Memory = r.Repeat.Memory()
	}
	bit.End = now.Add(min(most, m.End.Sub(now))) // on the monotonic clock of this process
	c.limiter.Bits.Start(key, bit, now)
}

// Lift ends the mitigation of a source under a rule and forgets what was counted of it, on every edge of the PoP, so that it starts
// afresh. AllRules ends what operators said of all rules, and every mitigation of the source that is in force here.
func (c *Plane) Lift(rule, source string, by Operator, now time.Time) (Lifted, error) {
	if rule == AllRules {
		return c.liftAll(source, by, now)
	}
	return c.liftUnder(rule, source, by, now)
}

// liftUnder is Lift under one rule, or of what was said of AllRules.
func (c *Plane) liftUnder(rule, source string, by Operator, now time.Time) (Lifted, error) {
	r, key, err := c.keyOf(rule, source)
	if err != nil {
		return Lifted{}, err
	}
	defer c.audit.Forget(key)
	return c.lift(rule, key, r, by, now)
}

// liftAll is Lift under AllRules.
func (c *Plane) liftAll(source string, by Operator, now time.Time) (all Lifted, err error) {
	src, err := parseSource(source)
	if err != nil {
		return all, err
	}
	known := func(k mitigation.Key) bool {
		_, known := c.limiter.Bits.Last(k, now)
		return known
	}
	var names []string
	var enforced []*rules.Rule
	for _, r := range c.view().Rules.Rules {
		if _, key, err := c.keyOf(r.Config.Name, source); err == nil && known(key) {
			names = append(names, r.Config.Name)
		}
		if !r.Shadow {
			enforced = append(enforced, r)
		}
	}
	prefix, is := src.Prefix()
	if is {
		names = append(names, AllRules)
	}
	lifts, errs := make([]Lifted, len(names)), make([]error, len(names))
	var said sync.WaitGroup // at once: each waits for all edges
	for i, name := range names {
		said.Go(func() { lifts[i], errs[i] = c.liftUnder(name, source, by, now) })
	}
	said.Wait()
	for _, l := range lifts {
		all.Lifted = all.Lifted || l.Lifted
		if all.Edges == nil || l.Edges != nil && l.Edges.Have < all.Edges.Have {
			all.Edges = l.Edges
		}
	}
	if now = time.Now(); is && c.holds(mitigation.Denied, prefix, now) {
		all.Warning = "this source is denied, which goes before: it is refused all the same"
	} else if m := c.over(src, c.limiter.Bits.Covering(prefix, nil), now, enforced...); m != nil {
		all.Warning = "a block of " + m.Source + " under " + m.Rule + " still refuses it"
	}
	return all, errors.Join(errs...)
}

// lift ends an operator's word, or a mitigation. r is nil for a scope.
func (c *Plane) lift(rule string, key mitigation.Key, r *rules.Rule, by Operator, now time.Time) (lifted Lifted, err error) {
	lifted.Lifted = !c.limiter.Bits.Until(key, now).IsZero()
	lifted.Edges, err = c.say(Word{Rule: rule, Source: key.Source, Start: now, Operator: by}, key, func() {
		if r != nil {
			c.limiter.Counters.Forget(r.Counter, key.Source)
			for _, asked := range r.Asked {
				c.limiter.Counters.Forget(asked, key.Source)
			}
		}
		if r != nil && r.Candidate != nil {
			c.limiter.Bits.Lift(mitigation.Key{Rule: r.Candidate.Bits.ID, Source: key.Source}, time.Now())
		}
		// After Forget: who was judged before it may not have started a mitigation yet.
		lifted.Lifted = c.limiter.Bits.Lift(key, time.Now())
	})
	return lifted, err
}

// parseSource reads a source as operators name it.
func parseSource(text string) (counter.Source, error) {
	src, err := counter.ParseSource(text)
	if err != nil {
		return src, fmt.Errorf("edge: source %q: want an address, a prefix, or # and 32 hexadecimal digits", text)
	}
	return src, nil
}

// keyOf finds a rule by name and a source in the form that the rule counts, or a wider prefix. The rule is nil for AllRules.
func (c *Plane) keyOf(rule, source string) (*rules.Rule, mitigation.Key, error) {
	if rule == AllRules {
		key, err := scopeKey(rule, source)
		return nil, key, err
	}
	in := c.view()
	r := in.Rules.ByName(rule)
	if r == nil {
		if slices.ContainsFunc(in.Rules.All, func(r *rules.Rule) bool { return r.Config.Name == rule }) {
			return nil, mitigation.Key{}, fmt.Errorf("%w: %s", ErrOff, rule)
		}
		return nil, mitigation.Key{}, fmt.Errorf("%w: %s", config.ErrNoRule, rule)
	}
	src, err := parseSource(source)
	if err != nil {
		return nil, mitigation.Key{}, err
	}
	if p, ok := src.Prefix(); ok {
		if r.Parts != nil {
			return nil, mitigation.Key{}, fmt.Errorf("edge: rule %s does not count by address: name the source as GET /v1/mitigations does", rule)
		}
		want := in.Sources.V6
		if p.Addr().Is4() {
			want = in.Sources.V4
		}
		if p.Bits() >= want {
			src = in.Sources.Of(p.Addr())
		} else if err := checkWidth(p); err != nil {
			return nil, mitigation.Key{}, err
		}
	}
	return r, mitigation.Key{Rule: r.Counter.ID, Source: src}, nil
}
