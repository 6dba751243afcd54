package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/counter"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/mitigation"
)

// A Key is who is counted by something else than an address, as operators name him: one part of a
// key, or several.
type Key struct {
	KeyPart
	// Of a composite key, in any order, in place of the one
	Parts []KeyPart `json:"parts,omitempty"`
}

// A KeyPart is a part of a rule's key, and the value that the client sends.
type KeyPart struct {
	Key   string `json:"key,omitempty"` // as the rule has it: header:X-Api-Key
	Value string `json:"value,omitempty"`
}

// ErrNoKey says that no rule has such a key, and ErrNotSeen that no rule has counted a digest.
var (
	ErrNoKey   = errors.New("edge: no such key")
	ErrNotSeen = errors.New("edge: no rule has counted that digest of late: name a rule, or the key itself")
)

// maxVariants is how many limits of a rule are looked at for a digest that does not tell who the
// client is.
const maxVariants = 64

// keyed is a rule, and whom it counts.
type keyed struct {
	rule   *rules.Rule
	source counter.Source
}

// read reads the values of a key. Errors say nothing of them.
func (k *Key) read(in *View) (values []key.Value, err error) {
	list := k.Parts
	if k.KeyPart != (KeyPart{}) {
		if len(list) > 0 {
			return nil, errors.New("edge: want a key and its value, or parts, and not both")
		}
		list = []KeyPart{k.KeyPart}
	}
	if len(list) == 0 {
		return nil, errors.New(`edge: whose? want a key such as header:X-Api-Key, and its value`)
	}
	for _, one := range list {
		text, _, _ := strings.Cut(one.Key, "=") // behind which somebody may have put the value
		part, err := key.Parse(text, in.Facts...)
		if err != nil {
			return nil, fmt.Errorf("edge: key: %w", err)
		}
		if text != one.Key && part.Argument() == "" {
			return nil, fmt.Errorf("edge: key: %s is followed by more: say the value as value",
				part)
		} else if text != one.Key {
			argument := strings.ToLower(part.Fact().Argument)
			if part, err = key.Parse(one.Key, in.Facts...); err != nil { // they are any text
				return nil, errors.New("edge: key: that is no " + argument)
			}
		}
		if slices.ContainsFunc(values, func(v key.Value) bool { return v.Part.IsPart(part) }) {
			return nil, fmt.Errorf("edge: key: %s is there twice", part)
		}
		v, err := key.ParseValue(part, one.Value,
			func(a netip.Addr) counter.Source { return in.Sources.Of(a) })
		if err != nil {
			return nil, fmt.Errorf("edge: %w", err)
		}
		values = append(values, v)
	}
	return values, nil
}

// under finds the rules that count by just this key, or the one of that name; AllRules are all of
// them.
func (c *Admin) under(in *View, k *Key, rule string) (list []keyed, values []key.Value, err error) {
	if values, err = k.read(in); err != nil {
		return nil, nil, err
	}
	if rule != AllRules && in.Rules.ByName(rule) == nil {
		_, _, err := c.keyOf(rule, "#") // says why
		return nil, nil, err
	}
	for _, r := range in.Rules.Rules {
		if source, is := c.with.Secret.DigestOfValues(r.Parts, values); is && (rule == AllRules ||
			r.Config.Name == rule) {
			list = append(list, keyed{r, source})
		}
	}
	if len(list) > 0 {
		return list, values, nil
	}
	what := "no rule counts"
	if rule != AllRules {
		what = "rule " + rule + " does not count"
	}
	var parts []string
	for i := range values {
		parts = append(parts, values[i].Part.String())
	}
	return nil, nil, fmt.Errorf("%w: %s by %s alone; %s", ErrNoKey, what,
		strings.Join(parts, " and "), keysOf(in))
}

// keysOf says by which keys rules count.
func keysOf(in *View) string {
	by := make(map[string][]string)
	for _, r := range in.Rules.Rules {
		if r.Parts != nil && r.Config.Match.Descriptors == nil {
			text := keyName(in, r.KeyName())
			by[text] = append(by[text], r.Config.Name)
		}
	}
	if len(by) == 0 {
		return "no rule counts by anything but addresses"
	}
	const most = 20 // in one sentence
	var list []string
	for _, text := range slices.Sorted(maps.Keys(by)) {
		if len(list) == most {
			list = append(list, fmt.Sprintf("%d more", len(by)-most))
			break
		}
		names := by[text]
		if len(names) > most {
			names = append(names[:most:most], "…")
		}
		list = append(list, text+" ("+strings.Join(names, ", ")+")")
	}
	return "rules count by " + strings.Join(list, "; ")
}

// LookKey tells how a client stands under every rule that counts by just this key, as Look does of
// an address.
func (c *Admin) LookKey(ctx context.Context, k *Key) (Looked, error) {
	in := c.with.View()
	list, values, err := c.under(&in, k, AllRules)
	if err != nil {
		return Looked{}, err
	}
	l := c.lookUnder(ctx, &in, list, values)
	l.Key = keyName(&in, list[0].rule.KeyName())
	return l, nil
}

// LookDigest tells how a client that is known by a digest stands under every rule that has counted
// it of late or blocks it. A digest does not tell which key it is of.
func (c *Admin) LookDigest(ctx context.Context, digest counter.Source) Looked {
	in := c.with.View()
	var list []keyed
	for _, r := range in.Rules.Rules {
		if r.Parts != nil {
			list = append(list, keyed{r, digest})
		}
	}
	l := c.lookUnder(ctx, &in, list, nil)
	l.Source = digest.String()
	l.Rules = slices.DeleteFunc(l.Rules, func(st SourceState) bool {
		return st.Estimate == 0 && st.Block == nil && (st.Places == nil || st.Places.Held == 0)
	})
	return l
}

// lookUnder is what is known of who counts so under rules.
func (c *Admin) lookUnder(ctx context.Context, in *View, list []keyed, values []key.Value) Looked {
	l := Looked{Rules: []SourceState{}}
	var under []where
	var plan []string
	for _, k := range list {
		if k.rule.Config.Limit == 0 && k.rule.InFlight == nil {
			continue
		}
		variants, of := variantsFor(in, k, values, c.with.Secret)
		for _, v := range variants {
			for i := range v.Limits {
				under, plan = append(under, where{rule: v, limit: &v.Limits[i], source: k.source}),
					append(plan, of)
			}
		}
	}
	if len(list) > 0 {
		l.Source = list[0].source.String()
		l.Asked = c.askTier(ctx, under, list[0].source)
	}
	now := time.Now()
	for i := range under {
		u := &under[i]
		st := c.state(u, nil, now)
		st.Plan, st.OutsideShare = plan[i], !u.rule.IsAbout(c.with.Secret, u.source)
		if st.Reset = now; st.Estimate > 0 {
			st.Reset = now.Add(u.limit.Counter.Reset(now))
		}
		if st.Until != nil {
			st.Remaining, st.Reset = 0, *st.Until
		}
		l.Rules = append(l.Rules, st)
	}
	return l
}

// variantsFor are the variants of a rule that may count a client: the one of its plan, where that
// is known.
func variantsFor(in *View, k keyed, values []key.Value,
	secret key.Secret) (list []*rules.Rule, plan string) {
	client, ok := k.rule.ClientOf(secret, values, k.source, in.Plans)
	if ok {
		v, plan, about := k.rule.For(client)
		if !about {
			return nil, ""
		}
		if plan == "" && k.rule.HasPlans() {
			plan = planOf(in, client)
		}
		return []*rules.Rule{v}, plan
	}
	list = []*rules.Rule{k.rule}
	others := k.rule.Variants()
	for _, limit := range slices.Sorted(maps.Keys(others)) {
		if len(list) < maxVariants {
			list = append(list, others[limit])
		}
	}
	return list, ""
}

// BlockKey refuses a client under the rule of that name, or AllRules that count by just this key,
// for a while, on every edge of the PoP. It may never have been seen.
func (c *Admin) BlockKey(k *Key, rule string, d time.Duration, reason string, by Operator,
	now time.Time) (Mitigation, error) {
	in := c.with.View()
	list, _, err := c.under(&in, k, rule)
	if err != nil {
		return Mitigation{}, err
	}
	return c.blockUnder(list, d, reason, by, now)
}

// BlockDigest is BlockKey under every rule that knows a digest, as LookDigest says.
func (c *Admin) BlockDigest(ctx context.Context, digest counter.Source, d time.Duration,
	reason string, by Operator, now time.Time) (Mitigation, error) {
	in := c.with.View()
	var list []keyed
	for _, st := range c.LookDigest(ctx, digest).Rules {
		if r := in.Rules.ByName(st.Rule); r != nil &&
			!slices.ContainsFunc(list, func(k keyed) bool { return k.rule == r }) {
			list = append(list, keyed{r, digest})
		}
	}
	if len(list) == 0 {
		return Mitigation{}, ErrNotSeen
	}
	return c.blockUnder(list, d, reason, by, now)
}

func (c *Admin) blockUnder(list []keyed, d time.Duration, reason string, by Operator,
	now time.Time) (all Mitigation, err error) {
	blocks, errs := make([]Mitigation, len(list)), make([]error, len(list))
	var said sync.WaitGroup // at once: each waits for all edges
	for i, k := range list {
		said.Go(func() {
			blocks[i], errs[i] = c.Block(k.rule.Config.Name, k.source.String(), d, reason, by, now)
		})
	}
	said.Wait()
	all = blocks[0]
	for i, m := range blocks {
		all.Rules = append(all.Rules, list[i].rule.Config.Name)
		if m.Mode == rules.Enforce {
			all.Mode, all.Action = m.Mode, m.Action
		}
		if m.Warning != "" {
			all.Warning = m.Warning
		}
		if all.Edges == nil || m.Edges != nil && m.Edges.Have < all.Edges.Have {
			all.Edges = m.Edges
		}
	}
	if len(list) > 1 {
		all.Rule = AllRules
	}
	return all, errors.Join(errs...)
}

// LiftKey ends what BlockKey, or a limit, began, and has the client's counts forgotten.
func (c *Admin) LiftKey(k *Key, rule string, by Operator, now time.Time) (all Lifted, err error) {
	in := c.with.View()
	list, _, err := c.under(&in, k, rule)
	if err != nil {
		return all, err
	}
	all.Source = list[0].source.String()
	lifts, errs := make([]Lifted, len(list)), make([]error, len(list))
	var said sync.WaitGroup
	for i, k := range list {
		said.Go(func() {
			lifts[i], errs[i] = c.liftFrom(k.rule.Config.Name, k.source.String(), by, now,
				len(list) > 1)
		})
	}
	said.Wait()
	for i, l := range lifts {
		all.Rules = append(all.Rules, list[i].rule.Config.Name)
		all.add(l)
	}
	return all, errors.Join(errs...)
}

// state is how a source stands under a limit. covering are the prefixes of a source that is an
// address.
func (c *Admin) state(u *where, covering []counter.Source, now time.Time) SourceState {
	v, known := c.with.Limiter.Peek(u.limit.Rule, u.source, now)
	st := SourceState{Rule: u.rule.Config.Name, Policy: u.limit.OwnPolicy(),
		Source: u.source.String(), Mode: u.rule.Config.Mode,
		Limit: u.limit.Counter.Limit, Remaining: u.limit.Counter.Limit, Places: c.places(u)}
	if u.rule.Uncounted {
		st.Limit, st.Remaining = 0, 0
	} else if known {
		st.Estimate, st.Remaining = v.Estimate, v.Remaining
	}
	bit := mitigation.Key{Rule: u.limit.Counter.ID, Source: u.source}
	until := c.with.Limiter.Blocks.UntilOf(bit, covering, now)
	if u.rule.IsVariant() { // an operator's block is under the rule itself
		bit.Rule = u.rule.VariantOf
		if of := c.with.Limiter.Blocks.Until(bit, now); of.After(until) {
			until = of
		}
	}
	if !until.IsZero() {
		st.Until = &until
	}
	st.Block = c.over(covering, now, *u)
	return st
}
