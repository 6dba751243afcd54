package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sluice/counter/algorithm"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

func (r *reader) plans(n ast.Node, p *rules.PlansConfig) {
	checkKey := func(text string) error {
		_, err := rules.ParsePlanKey(text, Facts(r.modules)...)
		return err
	}
	f := r.settings("plans.", p)
	f["key"] = r.kept("plans.key", checkKey, &p.Key)
	f["also"] = r.texts("plans.also", func(n ast.Node, text string) {
		err := checkKey(text)
		switch {
		case err != nil:
			r.fail(n, "plans.also: %v", err)
		case key.Has(p.Also, text):
			r.fail(n, "plans.also: %s is there twice: remove one", text)
		case len(p.Also) == maxAlso:
			r.fail(n, "plans.also: more than %d: leave out some", maxAlso)
		default:
			p.Also = append(p.Also, text)
		}
	})
	f["store"] = r.kept("plans.store", checkStore, &p.Store)
	seen := r.mapping(n, "plans", f)
	switch {
	case seen == nil:
	case p.Key == "" && p.Store != "":
		r.fail(n,
			"plans: a store but no key: say by what clients are known, such as key: header:X-API-Key")
	case p.Key == "" && len(p.Also) > 0:
		r.fail(n,
			"plans: also but no key: say by what most clients are known, such as key: header:X-API-Key")
	case p.Key != "" && key.Has(p.Also, p.Key):
		r.fail(n, "plans: also has the key itself, %s: remove it there", p.Key)
	}
}

// maxAlso is by how much else clients may be known.
const maxAlso = 8

// checkStore reports whether a text names a store, as far as it shows. It quotes no password.
func checkStore(text string) error {
	u, err := url.Parse(text)
	path, file := strings.CutPrefix(text, "sqlite:")
	if file && filepath.IsAbs(path) ||
		!file && err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") &&
			u.Host+u.RawQuery != "" && len(u.Path) > 1 {
		return nil
	}
	return errors.New("that is no store: want sqlite:/ABSOLUTE/PATH, such as sqlite:/var/lib/sluice/plans.db, or postgres://USER:PASSWORD@HOST/DATABASE")
}

// checkPlan reports whether a plan may have this name.
func checkPlan(name string) error {
	if !plainName(name) {
		return fmt.Errorf("%q is not the name of a plan: want 1 to 64 letters, digits, dots, dashes or underscores", name)
	}
	return nil
}

// redacted is a store without its password.
func redacted(store string) string {
	u, err := url.Parse(store)
	if err != nil || u.Scheme == "sqlite" || u.Scheme == "" {
		return store
	}
	if q := u.Query(); q.Has("password") {
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}

// planLimits reads a rule's limits by plan: each a number, or fields.
func (r *reader) planLimits(to *map[string]rules.PlanLimit) func(ast.Node) {
	return func(n ast.Node) {
		values, ok := r.entries(n, "plans")
		if !ok {
			return
		}
		for _, v := range values {
			name, limit := scalar(v.Key), rules.PlanLimit{}
			_, twice := (*to)[name]
			read := integer(r, "plans: "+name, 1, algorithm.MaxLimit, &limit.Limit)
			switch v.Value.(type) {
			case *ast.MappingNode, *ast.MappingValueNode:
				inner := fields{"limit": integer(r, "plans: "+name+": limit", 1, algorithm.MaxLimit,
					&limit.Limit)}
				if seen := r.mapping(v.Value, "plans: "+name, inner); seen != nil &&
					seen["limit"] == nil {
					r.fail(v.Value, "plans: %s: no limit: want a number, or {limit: 1000}", name)
				}
			default:
				read(v.Value)
			}
			switch {
			case !plainName(name):
				r.fail(v.Key, "plans: %v", checkPlan(name))
			case twice:
				r.fail(v.Key, "plans: %s is there twice: remove one", name)
			case len(*to) == maxPlans:
				r.fail(v.Key, "plans: more than %d: leave out some", maxPlans)
			default:
				if *to == nil {
					*to = make(map[string]rules.PlanLimit)
				}
				(*to)[name] = limit
			}
		}
	}
}

// maxPlans is how many plans a rule may name.
const maxPlans = 64

func (r *reader) planNames(what string, to *[]string) func(ast.Node) {
	return r.texts(what, func(n ast.Node, text string) {
		switch {
		case !plainName(text):
			r.fail(n, "%s: %v", what, checkPlan(text))
		case slices.Contains(*to, text):
			r.fail(n, "%s: %s is there twice: remove one", what, text)
		case len(*to) == maxPlans:
			r.fail(n, "%s: more than %d: leave out some", what, maxPlans)
		default:
			*to = append(*to, text)
		}
	})
}

// CheckRule returns why a rule cannot use plans as it does in this configuration, whatever else is.
func (c *Config) CheckRule(r *rules.Config) error {
	_, counts := c.Plans.KeyOf(r)
	switch {
	case !r.HasPlans():
		return nil
	case c.Plans.Key == "":
		return errors.New("rule " + r.Name +
			" needs plans, but nothing says by what key a client is known: add plans: {key: header:X-API-Key, default: free} beside rules")
	case len(r.Plans) > 0 && !counts:
		return errors.New("rule " + r.Name + " has limits by plan but does not count by " +
			strings.Join(append([]string{c.Plans.Key}, c.Plans.Also...), " or ") +
			", so clients on several plans would share a counter: put that into the rule's key; a rule that counts otherwise can have match: {plans: […]}")
	case len(r.Plans) > 0 && len(r.Windows) > 0:
		return errors.New("rule " + r.Name +
			" has windows and limits by plan: a plan has one limit, in the rule's own window; remove one of them, or give the rule of each plan windows with match: {plans: […]}")
	case len(r.Plans) > 0 && r.Algorithm == rules.Exact && !r.AsksTier():
		return errors.New("rule " + r.Name +
			" has algorithm: exact and limits by plan: give it check: sync, or want another algorithm, or a rule for each plan with match: {plans: […]}")
	case leastOf(r.Plans) < r.Cost.Least():
		return fmt.Errorf("rule %s has a plan with a limit of %d, and each request costs %d: none would ever pass", r.Name, leastOf(r.Plans), r.Cost.Least())
	}
	for _, plan := range slices.Sorted(maps.Keys(r.Plans)) {
		if err := r.CheckOwn(r.Plans[plan].Limit); err != nil {
			return fmt.Errorf("rule %s has a limit of %d for the plan %s: %w", r.Name,
				r.Plans[plan].Limit, plan, err)
		}
	}
	return nil
}

// leastOf is the lowest of these limits, but for those that were refused.
func leastOf(plans map[string]rules.PlanLimit) uint32 {
	least := uint32(algorithm.MaxLimit)
	for _, l := range plans {
		if l.Limit > 0 {
			least = min(least, l.Limit)
		}
	}
	return least
}

// checkPlans reports what no single rule shows.
func (c *Config) checkPlans() error {
	if c.Plans.SecretKeys && c.PoP.SecretFile == "" {
		return errors.New("plans.secret_keys is on but the PoP's secret follows from its name, so anyone who has the store can find out keys by trying: give pop.secret_file")
	}
	for i := range c.Rules {
		if err := c.CheckRule(&c.Rules[i]); err != nil {
			return err
		}
	}
	return nil
}
