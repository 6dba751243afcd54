package rules

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/message"
	"sluice/edge/plans"
	"sluice/edge/rules/key"
)

// PlansConfig is how a client's plan is found. The zero PlansConfig is none.
type PlansConfig struct {
	// The part of a key by which clients are known: header:NAME, cookie:NAME or query:NAME; "":
	// there are no plans
	Key string `json:"key" want:"file" reload:"yes"`
	// What else such clients are known by, each apart: an organisation, say
	Also []string `json:"also" reload:"yes"`
	// The plan of clients without a quota
	Default string `json:"default" want:"plan" reload:"yes"`
	// Where quotas are, sqlite:/PATH or postgres://…; "": there are none
	Store      string        `json:"store" want:"file"`
	Refresh    time.Duration `json:"refresh" want:"100ms to 1h"`
	SecretKeys bool          `json:"secret_keys" reload:"yes"` // the store has digests, and no keys
}

// PlanLimit is what clients on a plan are allowed under a rule.
type PlanLimit struct {
	Limit uint32 `json:"limit" want:"1 to 1000000000"`
}

// ParsePlanKey reads PlansConfig.Key, which cannot be one of the facts.
func ParsePlanKey(text string, facts ...*key.Fact) (key.Part, error) {
	part, err := key.Parse(text)
	if i := slices.IndexFunc(facts, func(f *key.Fact) bool { return f.IsKey(text) }); i >= 0 {
		if part, err = (key.Part{}), nil; facts[i].Who != "" {
			err = fmt.Errorf("%q: a plan cannot follow from %s: want what a client sends itself, such as header:X-API-Key", text, facts[i].Who)
		}
	}
	switch {
	case err != nil:
		return part, err
	case part.Kind == key.Source || part.Kind == key.Host || part.Kind == key.Path ||
		part.Kind == key.Global:
		return part,
			fmt.Errorf("%q does not identify a client: want what it sends, such as header:X-API-Key", text)
	}
	return part, nil
}

// KeyOf is the part by which a rule identifies clients: of Key and Also the first that it counts
// by; else Key.
func (p *PlansConfig) KeyOf(c *Config) (part string, counted bool) {
	for _, part := range append([]string{p.Key}, p.Also...) {
		if key.Has(c.Key, part) {
			return part, true
		}
	}
	return p.Key, false
}

// HasPlans reports whether the rule uses the client's plan.
func (c *Config) HasPlans() bool {
	return len(c.Plans)+len(c.Match.Plans) > 0 || c.Match.Not != nil && len(c.Match.Not.Plans) > 0
}

// planned is what a rule makes of plans. A limit of a plan or a client is a variant: a rule like
// this one that counts under a name of its own, with the limit in it, so all edges mean the same by
// it, and by its mitigations. Clients with the same limit share a variant. Whose limit changes is
// counted afresh.
//
// It costs a decision a look into two maps, and where no other rule has the plans' key, one digest;
// by one of PlansConfig.Also another. Memory: 1 KB for a variant; the tier is told of each, and no
// command is sent for it.
//
// A rule without plans that counts by the plans' key has a planned too, Rule.own, for limits of
// clients' own alone: it costs a decision one load where there are none.
type planned struct {
	key        []key.Part
	name       string // of the key; rules by that alone have the same digest
	shows      int    // how many characters of it are shown
	apart      string // "": the key is PlansConfig.Key
	counted    bool   // the rule counts by the key, so a client can have a limit of its own
	of         string // the rule's name
	standard   string
	about, not []string
	limits     map[string]uint32
	// By limit, but for the rule's own. Set.Vary replaces it
	variants atomic.Pointer[map[uint32]*Rule]
	// Of plans that the rule names: a store may have any number of others,
	tallies map[string]*PlanTally
	others  *PlanTally // which are counted together
}

const (
	maxPlans   = 20      // of a rule are counted apart
	otherPlans = "other" // what those that are not are called
)

// tally has the plan's requests counted in t.
func (v *planned) tally(t *Tally) {
	names := slices.Concat(slices.Collect(maps.Keys(v.limits)), v.about, v.not,
		[]string{v.standard})
	slices.Sort(names)
	names = slices.Compact(names)
	v.tallies, v.others = make(map[string]*PlanTally), t.plan(otherPlans)
	for _, name := range names[:min(len(names), maxPlans)] {
		v.tallies[name] = t.plan(name)
	}
}

// tallyOf is what counts the requests of clients on a plan.
func (v *planned) tallyOf(plan string) *PlanTally {
	if t := v.tallies[plan]; t != nil {
		return t
	}
	return v.others
}

func newPlanned(c *Config, p PlansConfig) (*planned, error) {
	name, counted := p.KeyOf(c)
	part, err := ParsePlanKey(name)
	if err != nil {
		return nil, fmt.Errorf("plans: key: %w", err)
	}
	v := &planned{key: []key.Part{part}, name: part.String(), of: c.Name, standard: p.Default,
		counted: counted, about: c.Match.Plans, limits: make(map[string]uint32, len(c.Plans))}
	if c.Match.Not != nil {
		v.not = c.Match.Not.Plans
	}
	for plan, l := range c.Plans {
		v.limits[plan] = l.Limit
	}
	if name != p.Key {
		v.apart = part.String()
	}
	v.variants.Store(new(map[uint32]*Rule))
	return v, nil
}

// under is the plan of a client under the rule, and its limit there; 0: the rule's own.
func (v *planned) under(c *plans.Client) (plan string, limit uint32) {
	if plan, limit = c.Under(v.of); plan == "" {
		plan = v.standard
	}
	if limit == 0 {
		limit = v.limits[plan]
	}
	return plan, limit
}

// isAbout reports whether the rule is about clients on a plan.
func (v *planned) isAbout(plan string) bool {
	return (len(v.about) == 0 || slices.Contains(v.about, plan)) && !slices.Contains(v.not, plan)
}

// choose is the variant of a rule for a client, and the client's plan; nil: the rule is not about
// it. A limit that has no variant, because there are too many, or because plans have changed since
// this version of the rules was left, is that of the client's plan.
func (v *planned) choose(r *Rule, c *plans.Client) (variant *Rule, plan string) {
	plan, limit := v.under(c)
	if !v.isAbout(plan) {
		return nil, plan
	}
	variants := *v.variants.Load()
	if own := variants[limit]; own != nil {
		return own, plan
	}
	if own := variants[v.limits[plan]]; own != nil && limit != r.Config.Limit {
		return own, plan
	}
	return r, plan
}

// TakesOwn returns why no client can have a limit of its own under the rule; nil: those can that
// KnowsBy names.
func (r *Rule) TakesOwn() error {
	v := r.plans
	if v == nil {
		v = r.own
	}
	switch c := &r.Config; {
	case c.Match.Descriptors != nil:
		return errors.New("proxies ask it by descriptors, which name no client that plans.key knows")
	case c.Limit == 0:
		return errors.New("it counts no requests: give it a limit for all others first")
	case v == nil || !v.counted:
		return fmt.Errorf("it counts by %s, which names no client: want a rule whose key has plans.key, or one of plans.also", strings.Join(c.Key, ", "))
	case len(r.Limits) > 1:
		return errors.New("it has windows or prefixes, so more than one limit: want a rule with one")
	case c.Algorithm == Exact && !r.AsksTier():
		return errors.New("it has algorithm: exact without check: sync: give it that, or another algorithm")
	}
	return nil
}

// knows is what tells the limits of clients under the rule apart; nil: all have the same.
func (r *Rule) knows() *planned {
	if r.own != nil && len(*r.own.variants.Load()) > 0 {
		return r.own
	}
	return r.plans
}

// newVariant is a rule by another limit, which is the only one that it has.
func newVariant(r *Rule, limit uint32) (*Rule, error) {
	v := *r
	v.Config.Limit, v.of, v.Place, v.VariantOf = limit, r, -1, r.Counter.ID
	var err error
	if v.Counter, err = r.Config.newCounter(fmt.Sprintf("%s limit %d", r.Counter.Name, limit),
		limit, r.Counter.Estimate); err != nil {
		return nil, err
	}
	if r.Exact != nil {
		v.Exact = r.Exact.By(v.Counter)
	}
	v.Limits = []Limit{{Rule: &v.Rule, Parent: &v, Policy: r.Limits[0].Policy}}
	v.ownLimits()
	text := newText(&v.Limits[0], policy(v.Limits, true), true)
	v.Limits[0].Texts = [2]Text{text, text} // it counts a key, of clients of both families
	return &v, nil
}

// Vary makes the variants that a snapshot of plans needs, and drops the others. It reports whether
// anything has changed. A variant that stays keeps its ID. It is for one goroutine at a time;
// requests may go on.
func (s *Set) Vary(now *plans.Snapshot) (changed bool, err error) {
	var kept, added []*algorithm.Spec
	next := make(map[*planned]map[uint32]*Rule)
	for _, r := range slices.Concat(s.Rules, s.Trials) {
		for i := range r.Limits {
			kept = append(kept, r.Limits[i].Counter)
		}
		v := r.plans
		if v == nil {
			v = r.own
		}
		if v == nil || len(v.limits) == 0 && r.TakesOwn() != nil {
			continue
		}
		before, wanted := *v.variants.Load(), make(map[uint32]*Rule)
		for _, limit := range slices.Sorted(maps.Values(v.limits)) {
			wanted[limit] = nil
		}
		for _, limit := range now.Limits(r.Config.Name) {
			// Else it was said under another algorithm, and is that of the client's plan
			if r.Config.CheckOwn(limit) == nil {
				wanted[limit] = nil
			}
		}
		delete(wanted, r.Config.Limit)
		for _, limit := range slices.Sorted(maps.Keys(wanted)) {
			own := before[limit]
			if own == nil {
				if own, err = newVariant(r, limit); err != nil {
					return false, fmt.Errorf("rule %s: limit of a plan or a client: %w",
						r.Config.Name, err)
				}
				added = append(added, own.Counter)
			} else {
				kept = append(kept, own.Counter)
			}
			wanted[limit] = own
		}
		if !maps.Equal(before, wanted) {
			next[v] = wanted
		}
	}
	// Those in force are there first, and stay as they are
	algorithm.Renumber(append(kept, added...))
	for v, variants := range next {
		v.variants.Store(&variants)
	}
	return len(next) > 0, nil
}

// Each ranges over the rules that are not off, each with its variants after it.
func (s *Set) Each() iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		for _, r := range s.Rules {
			if !yield(r) {
				return
			}
			for _, v := range r.Variants() {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// Variants are those of a rule that plans and clients need, by their limits.
func (r *Rule) Variants() map[uint32]*Rule {
	v := r.knows()
	if v == nil || r.of != nil {
		return nil
	}
	return *v.variants.Load()
}

// AllLimits are the limits of a rule, and of its variants.
func (r *Rule) AllLimits() []Limit {
	list := slices.Clone(r.Limits)
	for _, v := range r.Variants() {
		list = append(list, v.Limits...)
	}
	return list
}

// IsVariant reports whether r is one of another rule.
func (r *Rule) IsVariant() bool { return r.of != nil }

// Of is the variant of a rule for a client, and its plan there; false: the rule is not about it.
func (r *Rule) For(c *plans.Client) (variant *Rule, plan string, about bool) {
	v := r.knows()
	switch v {
	case nil:
		return r, "", true
	case r.own:
		variant, _ = v.choose(r, c)
		return variant, "", true
	}
	if variant, plan = v.choose(r, c); variant == nil {
		return r, plan, false
	}
	return variant, plan, true
}

// A ClientKey makes a client of the value by which it is known.
type ClientKey struct {
	part   key.Part
	apart  string // "": of PlansConfig.Key
	secret key.Secret
	hidden bool
}

// ClientKeys are those of a configuration: of PlansConfig.Key, and of each of Also.
type ClientKeys []ClientKey

// NewClientKeys makes those of a configuration that has plans.
func NewClientKeys(p PlansConfig, secret key.Secret) (ClientKeys, error) {
	var list ClientKeys
	for i, text := range append([]string{p.Key}, p.Also...) {
		part, err := ParsePlanKey(text)
		if err != nil {
			return nil, err
		}
		k := ClientKey{part: part, secret: secret, hidden: p.SecretKeys}
		if i > 0 {
			k.apart = part.String()
		}
		list = append(list, k)
	}
	return list, nil
}

// By is the one of a part of a key; "": of PlansConfig.Key.
func (l ClientKeys) By(part string) (ClientKey, error) {
	p, err := key.Parse(part)
	for i := range l {
		if part == "" || err == nil && l[i].part.String() == p.String() {
			return l[i], nil
		}
	}
	return ClientKey{},
		fmt.Errorf("edge: no client is known by %q: want %s, or one of plans.also, which is %v",
			part, l[0].part, l[1:])
}

// String is what clients send.
func (k ClientKey) String() string { return k.part.String() }

// maxClient is how long a client's key may be.
const maxClient = 256

// Of is the client of a value as it is sent, in the form that its key has: the same that rules by
// this key count.
func (k ClientKey) Of(value string) (client counter.Source, form string, ok bool) {
	if value == "" || len(value) > maxClient || strings.Trim(value, " ") != value ||
		strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return client, "", false
	}
	b, token, ok := k.part.Form(nil, []byte(value))
	if !ok || token == message.NoClient {
		return client, "", false
	}
	b = b[token:]
	return k.secret.DigestOf(k.part.Kind, b), string(b), true
}

// Known is a client as plans know it, by what it counts as.
func (k ClientKey) Known(client counter.Source) counter.Source {
	return known(k.secret, k.apart, client)
}

func known(secret key.Secret, apart string, client counter.Source) counter.Source {
	if apart == "" {
		return client
	}
	return secret.Apart(apart, client)
}

// A store has a client under its form, after what it is known by if that is not PlansConfig.Key, or
// under its digest.
const plainKey = "="

// Keys are those that a store may have a client under, the first of which it is kept under.
func (k ClientKey) Keys(value string) ([]string, bool) {
	client, form, ok := k.Of(value)
	if !ok {
		return nil, false
	}
	plain, hidden := k.apart+plainKey+form, k.Known(client).String()
	if k.hidden {
		return []string{hidden, plain}, true
	}
	return []string{plain, hidden}, true
}

// Source is the client that a store has under a key, as plans know it.
func (l ClientKeys) Source(text string) (counter.Source, bool) {
	k, ok := l.Read(text)
	return k.Known, ok
}

// A StoreKey is what the key under which a store has a client tells of it.
type StoreKey struct {
	Known counter.Source // as plans know the client
	// Nil: nobody can tell, because there is only a digest and clients are known by several parts
	By     *ClientKey
	Client counter.Source // as rules count it, where By is not nil
	// What the client sends, in the form that its key has; "": the store has a digest
	Form string
}

// Read is the inverse of ClientKey.Keys, as far as there is one. It reports false for what no edge
// has written.
func (l ClientKeys) Read(text string) (s StoreKey, ok bool) {
	for i := range l {
		k := &l[i]
		if form, plain := strings.CutPrefix(text, k.apart+plainKey); plain {
			client := k.secret.DigestOf(k.part.Kind, []byte(form))
			return StoreKey{Known: k.Known(client), By: k, Client: client, Form: form}, true
		}
	}
	known, err := counter.ParseSource(text)
	if err != nil || !strings.HasPrefix(text, "#") {
		return s, false
	}
	s.Known = known
	if len(l) == 1 { // of the others the digest is one of a digest
		s.By, s.Client = &l[0], known
	}
	return s, true
}

// CountsBy reports whether a rule counts by this key alone, so that a client has one counter under
// it.
func (k ClientKey) CountsBy(r *Rule) bool {
	return len(r.Parts) == 1 && r.Parts[0].Kind == k.part.Kind && bytes.Equal(r.Parts[0].Name,
		k.part.Name)
}

// account finds the client of a request among the plans, by the key that a rule uses. It returns
// the part of the request that is in the way of that; nil: none is.
func (d *Decision) account(v *planned, secret key.Secret,
	source counter.Source) (client *plans.Client, bad *key.Part) {
	i := slices.IndexFunc(d.keys, func(k keyed) bool { return k.key == v.name })
	if i < 0 {
		i = len(d.keys)
		if source, d.buf, bad = secret.Digest(v.key, &d.request, source, d.buf); bad != nil {
			return nil, bad
		}
		k := keyed{key: v.name, source: source}
		k.start, k.named = key.Look(v.key, d.buf, v.shows)
		d.keys = append(d.keys, k)
	}
	k := &d.keys[i]
	if !k.found {
		k.client, k.found = d.Plans.Of(known(secret, v.apart, k.source)), true
	}
	return k.client, nil
}

// KnowsBy is the part by which the rule identifies clients; "": it does not.
func (r *Rule) KnowsBy() string {
	switch {
	case r.plans != nil:
		return r.plans.name
	case r.own != nil:
		return r.own.name
	}
	return ""
}

// ClientOf is what plans say of who sends these values, or, where there are none, counts as source
// under the rule. It reports false if that does not tell who it is.
func (r *Rule) ClientOf(secret key.Secret, values []key.Value, source counter.Source,
	s *plans.Snapshot) (c *plans.Client, ok bool) {
	v := r.knows()
	if v == nil {
		return nil, true
	}
	client, ok := secret.DigestOfValue(v.key[0], values)
	if !ok {
		if client = source; len(values) > 0 || len(r.Parts) != 1 || !r.Parts[0].IsPart(v.key[0]) {
			return nil, false
		}
	}
	return s.Of(known(secret, v.apart, client)), true
}

// HasPlans reports whether the rule knows clients by their plans.
func (r *Rule) HasPlans() bool { return r.plans != nil }
