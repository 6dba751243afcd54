package control

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
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
	Rule string `json:"rule"` // AllRules: all of them
	// Of an operator's block perhaps a wider prefix than rules count
	Source  string    `json:"source"`
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Learned time.Time `json:"learned"` // when it came into force on this edge
	By      string    `json:"by"`      // edge, pop, admin or peer
	Reason  string    `json:"reason,omitempty"`
	// Of an operator's block: who it was, as he calls himself
	Who string `json:"who,omitempty"`
	// Of a block that was just said: where it is in force
	Edges *Spread `json:"edges,omitempty"`

	Mode rules.Mode `json:"mode"` // of the rule: under a shadow nobody is refused
	// What becomes of the source's requests: under rules.Tag nobody is refused
	Action rules.Action `json:"action"`
	// Of a block that was just said: why it can have no effect, or how wide it is
	Warning string `json:"warning,omitempty"`

	// Under which of the rule's limits, where it has several; none: the first
	Policy string `json:"policy,omitempty"`
	// That the source went over, where that is not the rule's: of its plan, or its own
	Limit uint32 `json:"limit,omitempty"`

	// Nil: no connection of the source is refused in the kernel
	Kernel *Kernel `json:"kernel,omitempty"`

	// Of a block by a key that was just said: under which rules
	Rules []string `json:"rules,omitempty"`

	// Of a block of a key: its first characters, where the rule shows them and this edge has
	// counted it of late
	KeyStart string `json:"key_start,omitempty"`
	Plan     string `json:"plan,omitempty"` // of the client, as HeavyKey has it

	// Of one that an Overview shows: what is known of the address, as Looked has it
	Known string `json:"known,omitempty"`
}

// Kernel is how the kernel refuses new connections of a source.
type Kernel struct {
	Since time.Time `json:"since"`
	// That it refused, as of the last report of sluice-wall, which is as old as a lease at most
	Attempts uint64 `json:"attempts"`
}

// inKernel adds to a mitigation whether the kernel refuses the source, which it does to nobody who
// is refused nothing.
func (c *Admin) inKernel(m *Mitigation, source counter.Source) {
	if p, is := source.Prefix(); is && c.with.Kernel != nil && m.Mode == rules.Enforce &&
		m.Action != rules.Tag {
		m.Kernel = c.with.Kernel(p)
	}
}

// Handed is a bit as one process hands it to another. What its verdict was reached under decides
// whether the other takes it.
type Handed struct {
	Mitigation
	// algorithm.Spec.Identity; "": an older version does not say
	Counts  string                 `json:"counts,omitempty"`
	Version mitigation.RuleVersion `json:"terms"`
}

// Lifted is what became of a lift.
type Lifted struct {
	Lifted bool    `json:"lifted"`          // there was a mitigation here
	Edges  *Spread `json:"edges,omitempty"` // where it is in force; nil: this edge counts alone

	// What still refuses the source, or how many within the prefix; of a prefix off a list: that it
	// is on it all the same
	Warning string `json:"warning,omitempty"`

	// Of a lift by a key:
	Source string   `json:"source,omitempty"`
	Rules  []string `json:"rules,omitempty"`
}

// ErrOff says that a rule is off.
var ErrOff = errors.New("edge: that rule is off, so a block under it refuses nobody: turn it on, or block under * (all rules)")

// Mitigations returns those in force at now, in no order.
func (c *Admin) Mitigations(now time.Time) []Mitigation {
	return slices.Collect(c.EachMitigation(now))
}

// EachMitigation ranges over Mitigations, which may be a million.
func (c *Admin) EachMitigation(now time.Time) iter.Seq[Mitigation] {
	in := c.with.View()
	return func(yield func(Mitigation) bool) {
		for m := range c.InForce(now) {
			if !m.End.After(now) || m.Rule == Allow || m.Rule == Deny || m.Rule == Site {
				continue
			}
			if m.Source == Everybody && in.ended(m.Rule) {
				continue
			}
			if src, err := counter.ParseSource(m.Source); err == nil {
				c.inKernel(&m.Mitigation, src)
				c.describe(&in, &m.Mitigation, src)
			}
			if !yield(m.Mitigation) {
				return
			}
		}
	}
}

// ended reports whether an order against everybody is of before its rule had another action.
func (v *View) ended(rule string) bool {
	r := v.Rules.ByName(rule)
	return r != nil && !r.ForEverybody()
}

// InForce is Mitigations with what operators Allow and Deny, and with those that have ended and are
// remembered, as another process on this edge's place may Adopt them.
func (c *Admin) InForce(now time.Time) iter.Seq[Handed] {
	names := c.names()
	return func(yield func(Handed) bool) {
		for key, bit := range c.with.Limiter.Blocks.Remembered(now) {
			if named, known := names[key.Rule]; known &&
				!yield(Handed{named.shown(key.Source, bit), named.counts, bit.Version}) {
				return
			}
		}
	}
}

// named is what bits are under, as operators name it.
type named struct {
	rule, policy string
	limit        uint32 // of a variant of the rule; 0: it is none
	mode         rules.Mode
	action       rules.Action
	counts       string // algorithm.Spec.Identity
}

// blocksBy is what becomes of requests of a source that is mitigated under a rule. No block lets
// them wait for their turn.
func blocksBy(r *rules.Rule) rules.Action {
	if r.Config.Action == rules.Delay {
		return rules.Refuse
	}
	return r.Config.Action
}

func namedBy(r *rules.Rule, l *rules.Limit) named {
	n := named{rule: r.Config.Name, policy: l.OwnPolicy(), mode: r.Config.Mode, action: blocksBy(r),
		counts: l.Counter.Identity()}
	if r.IsVariant() {
		n.limit = l.Counter.Limit
	}
	return n
}

// names are what bits can be under, by the ID in their keys.
func (c *Admin) names() map[uint32]named {
	names := make(map[uint32]named)
	for r, l := range c.with.View().Rules.EachLimit() {
		names[l.Counter.ID] = namedBy(r, l)
	}
	for _, scope := range Scopes {
		names[scope.Counter.ID] = named{rule: scope.Name, mode: rules.Enforce, action: rules.Refuse}
	}
	return names
}

// shown is a bit as operators see it.
func (n named) shown(source counter.Source, bit mitigation.Bit) Mitigation {
	return Mitigation{Rule: n.rule, Policy: n.policy, Limit: n.limit, Mode: n.mode,
		Action: n.action, Source: nameOf(source), Start: bit.Start, End: bit.End,
		Learned: bit.Learned, By: bit.By.String(), Reason: bit.Reason, Who: bit.Who}
}

// Block refuses a source, or all sources of a prefix, under a rule or AllRules for a while, on
// every edge of the PoP, in place of what was in force. Errors are ErrNoRule, ErrOff, ErrFull, and
// what is wrong with the source or the time.
func (c *Admin) Block(rule, source string, d time.Duration, reason string, by Operator,
	now time.Time) (Mitigation, error) {
	r, key, err := c.keyOf(rule, source)
	if err != nil {
		return Mitigation{}, err
	}
	m, err := c.put(rule, key, d, reason, by, now)
	m.Mode, m.Action, m.Warning = rules.Enforce, rules.Refuse, c.effect(r, key.Source, now)
	if r != nil {
		m.Mode, m.Action = r.Config.Mode, blocksBy(r)
	}
	if m.Warning == "" {
		m.Warning = c.width(source, key.Source)
	}
	return m, err
}

// width says how much is blocked where that is not what was written: an address that is told apart
// by its prefix only, a prefix that is a part of such a one, or has bits behind its length. "": it
// is what was written.
func (c *Admin) width(said string, blocked counter.Source) string {
	addr, err := netip.ParseAddr(said)
	if p, is := blocked.Prefix(); err != nil && is {
		if wrote, err := netip.ParsePrefix(said); err == nil && wrote != wrote.Masked() {
			return fmt.Sprintf("%s is written with bits behind its length: this blocks all of %s",
				said, p)
		}
		if whole, is := c.with.View().Sources.Of(p.Addr()).Prefix(); is && whole.Bits() < p.Bits() {
			return fmt.Sprintf("sources are told apart by /%d: this blocks a part of one, and whoever has it may take another address of %s: block that", whole.Bits(), whole)
		}
	}
	if err != nil {
		return ""
	}
	counted, _ := c.with.View().Sources.Of(addr).Prefix()
	switch is, _ := blocked.Prefix(); {
	case counted.IsSingleIP():
		return ""
	case is.IsSingleIP():
		return fmt.Sprintf("sources are told apart by /%d: this blocks the one address, and whoever has it may take another of %s: block that", counted.Bits(), counted)
	default:
		return fmt.Sprintf("sources are told apart by /%d: this blocks all of %s", is.Bits(), is)
	}
}

// put has an operator's word in force for a while.
func (c *Admin) put(rule string, key mitigation.Key, d time.Duration, reason string, by Operator,
	now time.Time) (m Mitigation, err error) {
	if d <= 0 || d > mitigation.MaxBlock {
		return m, fmt.Errorf("edge: for %v: want more than 0 and at most %v", rules.Duration(d),
			rules.Duration(mitigation.MaxBlock))
	}
	m = Mitigation{Rule: rule, Source: nameOf(key.Source), Start: now, End: now.Add(d),
		Learned: now, By: mitigation.ByAdmin.String(), Reason: reason, Who: by.Who}
	m.Edges, err = c.say(mitigation.Order{Rule: rule, Source: key.Source,
		Kind: mitigation.OrderBlock, Start: now, End: m.End, Reason: reason, Who: by.Who,
		From: by.From}, false, key, func() {
		c.with.Limiter.Blocks.Start(key, mitigation.Bit{Start: now, End: m.End,
			By: mitigation.ByAdmin, Reason: reason, Who: by.Who}, now)
	})
	return m, err
}

// say has the PoP put an operator's order in force, here as well, and waits for that: what several
// operators say of one source at once comes in the same order everywhere. On an edge that counts
// alone it does so itself, as alone says. Then other operators are told.
func (c *Admin) say(o mitigation.Order, idle bool, key mitigation.Key,
	alone func()) (*Spread, error) {
	event := Event(&o, idle, o.Start)
	if bit, in := c.with.Limiter.Blocks.Get(key, o.Start); in {
		event.Old = blockText(&bit)
	}
	if c.with.PoP.Order == nil {
		alone()
		c.with.Events.Add(event)
		return nil, nil
	}
	spread, err := c.with.PoP.Order(o)
	if err != nil {
		return nil, err
	}
	if spread.Missing == nil {
		spread.Missing = []string{}
	}
	c.with.Events.Add(event)
	return &spread, nil
}

// Adopt takes over a mitigation that another process on this edge's place knows of. One of a rule
// that there is not, that counts otherwise or allows more, is left out, and one that is longer than
// the rule allows is cut.
func (c *Admin) Adopt(m Handed, now time.Time) {
	r, key, err := c.keyOf(m.Rule, m.Source)
	if m.Rule == Allow || m.Rule == Deny {
		key, err = scopeKey(m.Rule, m.Source)
	}
	if m.Rule == Site {
		key, err = siteKey, nil
	}
	if err == nil && r != nil && m.Limit != 0 {
		if r = r.Variants()[m.Limit]; r == nil {
			return // nobody has that limit now
		}
		key.Rule = r.Counter.ID
	}
	if err != nil {
		return
	}
	var under *rules.Limit
	if r != nil {
		if under = r.Limit(cmp.Or(m.Policy, r.Config.Name)); under == nil {
			return // the rule has that limit no more
		}
		key.Rule = under.Counter.ID
	}
	bit := mitigation.Bit{Start: m.Start, End: m.End, By: mitigation.ByPoP,
		Shadow: m.Mode == rules.Shadow, Reason: m.Reason}
	most := mitigation.MaxBlock
	switch {
	case m.By == mitigation.ByAdmin.String():
		bit.By = mitigation.ByAdmin
	case r == nil:
		return // only operators speak of all rules
	case m.Mode != "" && m.Mode != r.Config.Mode, m.Counts != "" &&
		m.Counts != under.Counter.Identity():
		return // what it refused, if anything, was counted otherwise
	default:
		// A bit may end later than the timeout: when the source would be admitted again.
		most = under.Repeat.Longest(under.Timeout) + under.Counter.Window
		bit.Memory, bit.Version = under.Repeat.Memory(), m.Version
		if m.Counts == "" {
			bit.Version = under.Version()
		}
	}
	if m.By == mitigation.ByPeer.String() {
		bit.By = mitigation.ByPeer
	}
	bit.End = now.Add(min(most, m.End.Sub(now))) // on the monotonic clock of this process
	c.with.Limiter.Blocks.Start(key, bit, now)
}

// Lift ends the mitigation of a source under a rule and forgets what was counted of it, on every
// edge of the PoP, so that it starts afresh. AllRules ends what operators said of all rules, and
// every mitigation of the source that is in force here.
func (c *Admin) Lift(rule, source string, by Operator, now time.Time) (Lifted, error) {
	if rule == AllRules {
		return c.liftAll(source, by, now)
	}
	return c.liftUnder(rule, source, by, now)
}

// liftUnder is Lift under one rule, or of what was said of AllRules.
func (c *Admin) liftUnder(rule, source string, by Operator, now time.Time) (Lifted, error) {
	all, err := c.liftFrom(rule, source, by, now, false)
	if src, bad := parseSource(source); bad == nil {
		all.Warning = c.remains(src, time.Now())
	}
	return all, err
}

// remains says what refuses a source, or sources within a prefix, after a lift; "": nothing.
func (c *Admin) remains(src counter.Source, now time.Time) string {
	prefix, is := src.Prefix()
	denied, _, covering := c.listed(prefix, now)
	if is && denied {
		return "this source is denied, which goes before: it is refused all the same"
	}
	var enforced []where
	for _, r := range c.with.View().Rules.Rules {
		limits := r.AllLimits()
		for i := range limits {
			l := where{rule: r, limit: &limits[i], source: src}
			if r.Shadow || r.Tag {
				continue
			}
			if is && r.Parts == nil {
				var counts bool
				if l.source, counts = l.limit.Of(src, prefix.Addr()); !counts {
					continue
				}
			}
			enforced = append(enforced, l)
		}
	}
	if m := c.over(covering, now, enforced...); m != nil {
		rule := m.Rule
		if rule == AllRules {
			rule = "every rule"
		}
		return "a block of " + m.Source + " under " + rule + " still refuses it"
	}
	if !is || prefix.IsSingleIP() {
		return ""
	}
	within := 0
	for m := range c.EachMitigation(now) {
		p, is := parsePrefix(m.Source)
		if is && m.Mode == rules.Enforce && m.Action != rules.Tag && prefix.Overlaps(p) {
			within++
		}
	}
	switch within {
	case 0:
		return ""
	case 1:
		return "1 block within it stays (sluice blocked --source " + prefix.String() + " shows it)"
	}
	return fmt.Sprintf("%d blocks within it stay (sluice blocked --source %s shows them)", within,
		prefix)
}

func parsePrefix(text string) (netip.Prefix, bool) {
	src, _ := counter.ParseSource(text)
	return src.Prefix()
}

// liftFrom ends what is under one rule, or what was said of AllRules, and no more. among says that
// other lifts of the source are said with it: then nobody is told that there was nothing to lift.
func (c *Admin) liftFrom(rule, source string, by Operator, now time.Time,
	among bool) (Lifted, error) {
	r, key, err := c.keyOf(rule, source)
	if err != nil {
		return Lifted{}, err
	}
	all, err := c.lift(rule, key, r, by, now, among)
	for _, wider := range c.wider(r, key.Source, now) {
		l, failed := c.lift(rule, mitigation.Key{Rule: key.Rule, Source: wider}, r, by, now, true)
		all.add(l)
		err = errors.Join(err, failed)
	}
	return all, err
}

// add takes in what became of another lift that was said at once with l.
func (l *Lifted) add(o Lifted) {
	l.Lifted = l.Lifted || o.Lifted
	if l.Edges == nil || o.Edges != nil && o.Edges.Have < l.Edges.Have {
		l.Edges = o.Edges
	}
}

// wider are the prefixes that a rule blocks, and by that a source: who lifts the source would not
// be served as long as they are. What an operator has said of them stays: that is for him to lift.
func (c *Admin) wider(r *rules.Rule, source counter.Source, now time.Time) (list []counter.Source) {
	p, is := source.Prefix()
	if r == nil || r.Parts != nil || !is {
		return nil
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		src, counts := l.Of(source, p.Addr())
		of, is := src.Prefix()
		if !counts || !is || of.Bits() >= p.Bits() || slices.Contains(list, src) {
			continue
		}
		if bit, in := c.with.Limiter.Blocks.Get(mitigation.Key{Rule: l.Counter.ID, Source: src},
			now); in && bit.By != mitigation.ByAdmin {
			list = append(list, src)
		}
	}
	return list
}

// liftAll is Lift under AllRules.
func (c *Admin) liftAll(source string, by Operator, now time.Time) (all Lifted, err error) {
	src, err := parseSource(source)
	if err != nil {
		return all, err
	}
	known := func(r *rules.Rule, src counter.Source) bool {
		return slices.ContainsFunc(r.AllLimits(), func(l rules.Limit) bool {
			_, known := c.with.Limiter.Blocks.Last(mitigation.Key{Rule: l.Counter.ID, Source: src},
				now)
			return known
		})
	}
	var names []string
	for _, r := range c.with.View().Rules.Rules {
		if _, key, err := c.keyOf(r.Config.Name, source); err == nil && (known(r, key.Source) ||
			len(c.wider(r, key.Source, now)) > 0) {
			names = append(names, r.Config.Name)
		}
	}
	if _, is := src.Prefix(); is {
		names = append(names, AllRules)
	}
	lifts, errs := make([]Lifted, len(names)), make([]error, len(names))
	var said sync.WaitGroup // at once: each waits for all edges
	for i, name := range names {
		said.Go(func() { lifts[i], errs[i] = c.liftFrom(name, source, by, now, len(names) > 1) })
	}
	said.Wait()
	for _, l := range lifts {
		all.add(l)
	}
	all.Warning = c.remains(src, time.Now())
	return all, errors.Join(errs...)
}

// lift ends an operator's word, or the mitigations under all limits of a rule. r is nil for a
// scope.
func (c *Admin) lift(rule string, key mitigation.Key, r *rules.Rule, by Operator, now time.Time,
	among bool) (lifted Lifted, err error) {
	under := []rules.Limit{}
	if r != nil {
		under = r.AllLimits()
	}
	lifted.Lifted = !c.with.Limiter.Blocks.Until(key, now).IsZero()
	for _, l := range under {
		of := mitigation.Key{Rule: l.Counter.ID, Source: key.Source}
		lifted.Lifted = lifted.Lifted || !c.with.Limiter.Blocks.Until(of, now).IsZero()
	}
	lifted.Edges, err = c.say(mitigation.Order{Rule: rule, Source: key.Source,
		Kind: mitigation.OrderLift, Start: now, Who: by.Who, From: by.From}, !lifted.Lifted &&
		!among, key, func() {
		for _, l := range under {
			c.with.Limiter.Counters.Forget(l.Counter, key.Source)
		}
		if r != nil {
			for _, asked := range r.Asked {
				c.with.Limiter.Counters.Forget(asked, key.Source)
			}
		}
		// After Forget: who was judged before it may not have started a mitigation yet.
		lifted.Lifted = c.with.Limiter.Blocks.Lift(key, time.Now()) || lifted.Lifted
		for _, l := range under {
			lifted.Lifted = c.with.Limiter.Blocks.Lift(mitigation.Key{Rule: l.Counter.ID,
				Source: key.Source}, time.Now()) || lifted.Lifted
		}
	})
	return lifted, err
}

// parseSource reads a source as operators name it.
func parseSource(text string) (counter.Source, error) {
	if text == Everybody {
		return rules.Everybody, nil
	}
	src, err := counter.ParseSource(text)
	if err != nil {
		return src,
			fmt.Errorf("edge: source %q: want an address, a prefix, or # and 32 hexadecimal digits",
				text)
	}
	return src, nil
}

// Everybody is how operators name all that come under a rule at once, where it has an action for
// them.
const Everybody = "*"

// nameOf is a source as operators name it.
func nameOf(source counter.Source) string {
	if source == rules.Everybody {
		return Everybody
	}
	return source.String()
}

// OnEverybody are the rules whose action is in force against all that come under them.
func (c *Admin) OnEverybody(now time.Time) (list []Mitigation) {
	for _, r := range c.with.View().Rules.Rules {
		if bit, in := c.with.Limiter.Blocks.Get(mitigation.Key{Rule: r.Counter.ID,
			Source: rules.Everybody}, now); in && r.ForEverybody() {
			list = append(list, namedBy(r, &r.Limits[0]).shown(rules.Everybody, bit))
		}
	}
	return list
}

// keyOf finds a rule by name and a source in the form that the rule counts, or a wider prefix. The
// rule is nil for AllRules.
func (c *Admin) keyOf(rule, source string) (*rules.Rule, mitigation.Key, error) {
	if rule == AllRules {
		key, err := scopeKey(rule, source)
		return nil, key, err
	}
	in := c.with.View()
	r := in.Rules.ByName(rule)
	if r == nil {
		if slices.ContainsFunc(in.Rules.All,
			func(r *rules.Rule) bool { return r.Config.Name == rule }) {
			return nil, mitigation.Key{}, fmt.Errorf("%w: %s", ErrOff, rule)
		}
		return nil, mitigation.Key{}, fmt.Errorf("%w: %s", config.ErrNoRule, rule)
	}
	src, err := parseSource(source)
	if err != nil {
		return nil, mitigation.Key{}, err
	}
	if src == rules.Everybody && !r.ForEverybody() {
		return nil, mitigation.Key{},
			fmt.Errorf("edge: rule %s has no action: challenge, and would refuse everybody: sluice maintenance on does that", rule)
	}
	if p, ok := src.Prefix(); ok {
		if r.Parts != nil {
			return nil, mitigation.Key{},
				fmt.Errorf("edge: rule %s does not count by address: name the source as GET /v1/mitigations does", rule)
		}
		counted, _ := r.Limits[0].Of(in.Sources.Of(p.Addr()), p.Addr()) // the narrowest
		if want, _ := counted.Prefix(); p.Bits() >= want.Bits() {
			src = counted
		} else if err := CheckWidth(p); err != nil {
			return nil, mitigation.Key{}, err
		}
	}
	return r, mitigation.Key{Rule: r.Counter.ID, Source: src}, nil
}
