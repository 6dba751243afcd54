package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/config"
	"sluice/edge/plans"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// ErrNoPlans says that there are none.
var ErrNoPlans = errors.New("edge: there are no plans: say by what clients are known and where that is kept, plans: {key: header:X-API-Key, store: sqlite:/PATH}, in the configuration; no rule needs plans for a limit of one client")

// Usage is how a client stands under a rule that counts by the plans' key.
type Usage struct {
	Rule      string  `json:"rule"`
	Plan      string  `json:"plan"`
	Used      float64 `json:"used"` // hits in the window
	Limit     uint32  `json:"limit"`
	Remaining uint32  `json:"remaining"`
	// When all of the limit is there again, if nothing more comes
	Reset  time.Time  `json:"reset"`
	Until  *time.Time `json:"mitigated_until,omitempty"` // nil: it is not
	Places *Places    `json:"places,omitempty"`          // nil: the rule has no concurrency
}

// Used is what a client has used.
type Used struct {
	Key   string  `json:"key"`          // "#" and a digest where keys are secret
	By    string  `json:"by,omitempty"` // "": plans.key
	Plan  string  `json:"plan"`
	Asked bool    `json:"asked"` // the tier has answered; else this is what this edge alone knows
	Rules []Usage `json:"rules"`
}

// A Client is one as operators name it.
type Client struct {
	Key string // what it sends
	By  string // where: one of plans.also; "": plans.key
}

// A subject is a client that an operator has named.
type subject struct {
	key    rules.ClientKey
	source counter.Source // as rules count it
	known  *plans.Client  // what was said of it
	shown  string         // "#" and a digest where keys are secret
	by     string         // "": plans.key
}

// client finds who is named.
func (c *Admin) client(in *View, who Client) (s subject, err error) {
	if in.PlansConfig.Key == "" {
		return s, ErrNoPlans
	}
	keys, err := rules.NewClientKeys(in.PlansConfig, c.with.Secret)
	if err != nil {
		return s, err
	}
	if s.key, err = keys.By(who.By); err != nil {
		return s, err
	}
	var ok bool
	if s.source, s.shown, ok = s.key.Of(who.Key); !ok {
		return s, plans.ErrKey
	}
	if in.PlansConfig.SecretKeys {
		s.shown = s.source.String()
	}
	if s.key.String() != keys[0].String() {
		s.by = s.key.String()
	}
	s.known = in.Plans.Of(s.key.Known(s.source))
	return s, nil
}

// Usage tells what a client has used of its limits, under every rule that is about its plan and
// counts by its key alone. The tier is asked as Look asks it.
func (c *Admin) Usage(ctx context.Context, who Client) (Used, error) {
	in := c.with.View()
	n, err := c.client(&in, who)
	if err != nil {
		return Used{}, err
	}
	u := Used{Key: n.shown, By: n.by, Plan: planOf(&in, n.known)}
	under, plan := counted(&in, &n.key, n.source, n.known)
	u.Asked = c.askTier(ctx, under, n.source)
	u.Rules = c.usage(under, plan, n.source, time.Now())
	return u, nil
}

// counted is the rules that count a client by its key alone, and its plan under each.
func counted(in *View, by *rules.ClientKey, client counter.Source,
	known *plans.Client) (under []where, plan []string) {
	for _, r := range in.Rules.Rules {
		if v, p, about := r.For(known); about && by.CountsBy(r) && (r.Config.Limit != 0 ||
			r.InFlight != nil) {
			under, plan = append(under, where{rule: v, limit: &v.Limits[0], source: client}),
				append(plan, cmp.Or(p, planOf(in, known)))
		}
	}
	return under, plan
}

// usage is how a client stands under rules, as far as this edge knows.
func (c *Admin) usage(under []where, plan []string, client counter.Source, now time.Time) []Usage {
	list := []Usage{}
	for i := range under {
		r := under[i].rule
		one := Usage{Rule: r.Config.Name, Plan: plan[i], Limit: r.Config.Limit,
			Remaining: r.Config.Limit, Reset: now, Places: c.places(&under[i])}
		if v, there := c.with.Limiter.Peek(&r.Rule, client, now); there {
			one.Used, one.Remaining = v.Estimate, v.Remaining
			if v.Estimate > 0 {
				one.Reset = now.Add(r.Counter.Reset(now))
			}
		}
		until := c.with.Limiter.Blocks.Until(mitigation.Key{Rule: r.Counter.ID, Source: client}, now)
		if r.IsVariant() { // an operator's block is under the rule itself
			if of := c.with.Limiter.Blocks.UntilOrdered(mitigation.Key{Rule: r.VariantOf, Source: client},
				now); of.After(until) {
				until = of
			}
		}
		if !until.IsZero() {
			one.Until, one.Remaining, one.Reset = &until, 0, until
		}
		list = append(list, one)
	}
	return list
}

// planOf is the plan of a client where no rule has another for it.
func planOf(in *View, c *plans.Client) string {
	if plan, _ := c.Under(""); plan != "" {
		return plan
	}
	return in.PlansConfig.Default
}

// Quota is what operators say of a client.
type Quota struct {
	Rule        string      `json:"rule,omitempty"`         // "": all
	Plan        string      `json:"plan,omitempty"`         // "": as otherwise
	Limit       uint32      `json:"limit,omitempty"`        // 0: that of the plan
	EffectiveAt *time.Time  `json:"effective_at,omitempty"` // nil: it is in force
	ExpiresAt   *time.Time  `json:"expires_at,omitempty"`   // nil: it has no end
	State       plans.State `json:"state,omitempty"`
	UpdatedAt   *time.Time  `json:"updated_at,omitempty"` // nil: the store does not say
	UpdatedBy   string      `json:"updated_by,omitempty"`
}

// Quotas are all that operators say of a client.
type Quotas struct {
	Key    string  `json:"key"`          // "#" and a digest where keys are secret
	By     string  `json:"by,omitempty"` // "": plans.key
	Plan   string  `json:"plan"`
	Quotas []Quota `json:"quotas"`

	Source counter.Source `json:"-"` // as rules count it
	Keys   []string       `json:"-"` // as the store has it
	kept   []plans.Quota  // each of Quotas as the store has it
}

// String is the quotas in a few words.
func (q *Quotas) String() string { return fmt.Sprintf("plan %s, %d quotas", q.Plan, len(q.Quotas)) }

// ByRule is what is said under each rule, in a few words; that under all rules by "".
func (q *Quotas) ByRule() map[string]string {
	all := make(map[string]string)
	for _, one := range q.Quotas {
		var parts []string
		if one.Plan != "" {
			parts = append(parts, "plan "+one.Plan)
		}
		if one.Limit != 0 {
			parts = append(parts, fmt.Sprintf("limit %d", one.Limit))
		}
		if one.EffectiveAt != nil {
			parts = append(parts, "from "+one.EffectiveAt.Format(time.RFC3339))
		}
		if one.ExpiresAt != nil {
			parts = append(parts, "until "+one.ExpiresAt.Format(time.RFC3339))
		}
		if all[one.Rule] != "" {
			all[one.Rule] += "; "
		}
		all[one.Rule] += strings.Join(parts, " ")
	}
	return all
}

// Quotas tells what operators say of a client, as it is in force on this edge.
func (c *Admin) Quotas(who Client) (Quotas, error) {
	in := c.with.View()
	n, err := c.client(&in, who)
	if err != nil {
		return Quotas{}, err
	}
	all := Quotas{Key: n.shown, By: n.by, Plan: planOf(&in, n.known), Quotas: quotasOf(n.known,
		time.Now()), Source: n.source, kept: n.known.Quotas()}
	all.Keys, _ = n.key.Keys(who.Key)
	return all, nil
}

// quotasOf is what operators say of a client.
func quotasOf(known *plans.Client, now time.Time) []Quota {
	list := []Quota{}
	for i, q := range known.Quotas() {
		list = append(list, Quota{Rule: q.Rule, Plan: q.Plan, Limit: q.Limit,
			EffectiveAt: instant(q.Start), ExpiresAt: instant(q.End), State: known.State(i,
				now.UnixMilli())})
	}
	return list
}

// A QuotaChange is one of the history of a client.
type QuotaChange struct {
	At   time.Time  `json:"at"`
	Does plans.Does `json:"does"`
	// Nil: all were deleted, whatever the rule; "": what is said under all of them
	Rule        *string    `json:"rule,omitempty"`
	Plan        string     `json:"plan,omitempty"`
	Limit       uint32     `json:"limit,omitempty"`
	EffectiveAt *time.Time `json:"effective_at,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	Who         string     `json:"who,omitempty"`  // as the operator called himself
	From        string     `json:"from,omitempty"` // the address that he came from
	Edge        string     `json:"edge,omitempty"` // the edge that he spoke to
}

// QuotaChanges is a history as operators read it.
func QuotaChanges(entries []plans.Entry) []QuotaChange {
	list := []QuotaChange{}
	for _, e := range entries {
		c := QuotaChange{At: time.UnixMilli(e.At).UTC(), Does: e.Does, Who: e.By.Who,
			From: e.By.From, Edge: e.By.Edge}
		c.Plan, c.Limit, c.EffectiveAt, c.ExpiresAt = e.Quota.Plan, e.Quota.Limit,
			instant(e.Quota.Start), instant(e.Quota.End)
		if e.Does != plans.DeleteAll {
			c.Rule = &e.Quota.Rule
		}
		list = append(list, c)
	}
	return list
}

// Updated says of each quota when it was set and by whom, as far as a history tells.
func (q *Quotas) Updated(entries []plans.Entry) {
	for i := range q.Quotas {
		for _, e := range entries {
			if e.Current && e.Does == plans.Set && q.kept[i] == e.Quota {
				at := time.UnixMilli(e.At).UTC()
				q.Quotas[i].UpdatedAt, q.Quotas[i].UpdatedBy = &at, cmp.Or(e.By.Who, e.By.From)
			}
		}
	}
}

// instant is a time of a store; nil: there is none.
func instant(milli int64) *time.Time {
	if milli == 0 {
		return nil
	}
	t := time.UnixMilli(milli).UTC()
	return &t
}

// UTC is the quota with its times in the zone that all others are told in: an operator may write
// them in any.
func (q Quota) UTC() Quota {
	for _, t := range []**time.Time{&q.EffectiveAt, &q.ExpiresAt} {
		if *t != nil {
			utc := (*t).UTC()
			*t = &utc
		}
	}
	return q
}

// CheckQuota says what is wrong with what an operator says of a client, and what the store is to
// keep.
func (c *Admin) CheckQuota(who Client, q Quota, now time.Time) (plans.Quota, error) {
	in := c.with.View()
	out := plans.Quota{Rule: q.Rule, Plan: q.Plan, Limit: q.Limit}
	n, err := c.client(&in, who)
	if err != nil {
		return out, err
	}
	if q.EffectiveAt != nil {
		out.Start = q.EffectiveAt.UnixMilli()
	}
	if q.ExpiresAt != nil {
		out.End = q.ExpiresAt.UnixMilli()
		if q.EffectiveAt == nil || !q.EffectiveAt.After(now) {
			out.Start = now.UnixMilli() // it stands over what is in force, which began before
		}
	}
	switch r := in.Rules.ByName(q.Rule); {
	case q.Rule != "" && r == nil:
		return out, fmt.Errorf("%w: %s, or it is off", config.ErrNoRule, q.Rule)
	case q.Rule != "" && q.Plan != "" && !r.Config.HasPlans():
		return out,
			fmt.Errorf("edge: rule %s has no plans, so a plan changes nothing there: give the client a limit, or the rule plans: {%s: %d}", q.Rule, q.Plan, r.Config.Limit)
	case q.Rule != "" && q.Limit != 0 && r.TakesOwn() != nil:
		return out, fmt.Errorf("edge: rule %s has no limit for one client: %w", q.Rule,
			r.TakesOwn())
	case q.Rule != "" && (q.Plan != "" || q.Limit != 0) && r.KnowsBy() != n.key.String():
		return out,
			fmt.Errorf("edge: rule %s knows clients by %s, and not by %s: say whom it is about, with by=%s", q.Rule, r.KnowsBy(), n.key, r.KnowsBy())
	case q.Limit == 0 && q.Plan == "":
		return out, errors.New("edge: a quota needs a plan or a limit")
	case q.Limit > algorithm.MaxLimit:
		return out, fmt.Errorf("edge: limit %d is out of range: want 1 to %d", q.Limit,
			uint32(algorithm.MaxLimit))
	case q.Limit != 0 && q.Rule == "":
		return out, errors.New("edge: a limit is under one rule: say which, as rule")
	case q.Limit != 0 && q.Limit < r.Config.Cost.Least():
		return out,
			fmt.Errorf("edge: limit %d: each request costs %d under rule %s, so none would ever pass", q.Limit, r.Config.Cost.Least(), q.Rule)
	case q.Limit != 0 && r.Config.CheckOwn(q.Limit) != nil:
		return out, fmt.Errorf("edge: limit %d under rule %s: %w", q.Limit, q.Rule,
			r.Config.CheckOwn(q.Limit))
	case q.Plan != "" && !slices.Contains(planNames(&in), q.Plan):
		return out, fmt.Errorf("edge: no rule knows the plan %q: there is %v", q.Plan,
			planNames(&in))
	case q.ExpiresAt != nil && !q.ExpiresAt.After(now):
		return out,
			errors.New("edge: expires_at has passed: want a time to come, or DELETE the quota")
	case q.EffectiveAt != nil && q.ExpiresAt != nil && !q.EffectiveAt.Before(*q.ExpiresAt):
		return out, errors.New("edge: effective_at is not before expires_at")
	case q.EffectiveAt != nil && q.EffectiveAt.UnixMilli() <= 0 || q.ExpiresAt != nil &&
		out.End <= 0:
		return out, errors.New("edge: a time before 1970: want one such as 2026-05-04T14:05:00Z")
	}
	if live := slices.DeleteFunc(slices.Clone(n.known.Quotas()), func(q plans.Quota) bool {
		return q.End != 0 && q.End <= now.UnixMilli()
	}); len(live) >= plans.MaxQuotas {
		return out,
			fmt.Errorf("%w: the client has %d quotas in force or to come: delete them, or wait until some are over", ErrLimits, len(live))
	}
	if limits := in.Plans.Limits(q.Rule); q.Limit != 0 && len(limits) >= plans.MaxLimits {
		if _, there := slices.BinarySearch(limits, q.Limit); !there {
			return out,
				fmt.Errorf("%w: clients have %d limits of their own under rule %s: give this one a limit that another has", ErrLimits, len(limits), q.Rule)
		}
	}
	return out, nil
}

// ErrLimits says that there is no room for another quota, or for one with another limit.
var ErrLimits = errors.New("edge: too many quotas")

// planNames are those that rules or the configuration know.
func planNames(in *View) []string {
	names := []string{in.PlansConfig.Default}
	for _, r := range in.Rules.All {
		for name := range r.Config.Plans {
			names = append(names, name)
		}
		names = append(names, r.Config.Match.Plans...)
		if r.Config.Match.Not != nil {
			names = append(names, r.Config.Match.Not.Plans...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
