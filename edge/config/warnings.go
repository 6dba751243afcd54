package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
	"sluice/edge/upstream"
)

// shortestExact is how long a window must be for `lower` to keep its promise among edges: ten times
// what their clocks may differ by.
const shortestExact = 20 * time.Second

// weaknesses returns what will hurt one day, a sentence each.
func (c *Config) weaknesses() (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if c.Source.TrustsEverybody() {
		add("source.trust has every address: each client can claim to be any other, unless only proxies can reach this edge")
	}
	if c.Plans.Store == "" && slices.ContainsFunc(c.Rules,
		func(r rules.Config) bool { return r.HasPlans() }) {
		add("plans: nothing says which client is on which plan, so every client is on %s: give plans.store", c.Plans.Default)
	}
	for _, m := range c.Modules {
		if m.Weaknesses != nil {
			all = append(all, m.Weaknesses(c)...)
		}
	}
	inForce := 0
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Mode == rules.Off {
			continue
		}
		if r.OrdersOrigin() && !slices.ContainsFunc(c.Origins,
			func(o upstream.Config) bool { return o.Shedding != nil }) {
			add("rule %s has a priority or a queue, which has no effect where no origin sheds load: give the origin shedding: {}", r.Name)
		} else if r.OrdersOrigin() && (r.Mode == rules.Shadow || c.Shadow) {
			add("rule %s is a shadow, so its priority and its queue say nothing", r.Name)
		}
		if r.Limit > 0 {
			inForce += r.Limits()
		} else if r.Concurrency == 0 {
			continue // it counts nothing
		}
		if j := slices.IndexFunc(r.Key, func(part string) bool {
			return c.isMadeUp(part, &r.Match)
		}); j >= 0 && !c.coveredBySource(r) {
			add("rule %s counts by %s, which a client can make up anew for each request, and no rule counts these requests by source alone: "+
				"add one with key: source", r.Name, r.Key[j])
		}
		if r.Concurrency > 0 && !slices.ContainsFunc(r.Key, isOwn) &&
			!c.hasBySource(r, func(o *rules.Config) bool {
				return o.Concurrency > 0 && o.Concurrency < r.Concurrency
			}) {
			add("rule %s has %d slots for all clients together, which one that sends or reads slowly could hold: add a rule with key: source and a lower concurrency",
				r.Name, r.Concurrency)
		}
		if what := r.Match.Evadable(); what != "" && !c.coveredBySource(r) {
			add("rule %s leaves out requests with %s, which a client can send as well, and no rule counts these requests by source: "+
				"add one with key: source", r.Name, what)
		}
		if width := r.ManyAsOne(); width > 0 {
			add("rule %s: prefixes above 32 are of IPv6, and %d is the narrowest: all clients in an IPv6 /%d share the limit of one; give 64 as well, or, if IPv4 was meant, 32 or less",
				r.Name, width, width)
		}
		estimate := c.Estimate
		if r.Estimate != nil {
			estimate = *r.Estimate
		}
		shortest := r.Window
		for _, w := range r.Windows {
			shortest = min(shortest, w.Window)
		}
		if estimate == algorithm.Lower && r.Algorithm == rules.Sliding &&
			time.Duration(shortest) < shortestExact && len(c.PoP.Memcached) > 0 {
			add("rule %s has a window of %v and estimate: lower, which promises to refuse no request below the limit: where the clocks of edges differ by a tenth of the window "+
				"that does not hold; take %v or more", r.Name, shortest,
				rules.Duration(shortestExact))
		}
	}
	if want := c.Limits.Connections * inForce; c.Table.Counters < want {
		add("table.counters is %d: with %d limits of rules in force and limits.connections %d there can be %d counters of clients that are connected; what has no room starts afresh",
			c.Table.Counters, inForce, c.Limits.Connections, want)
	}
	return all
}

// isMadeUp reports whether a client can write a part of a key anew for each request that a rule is
// about.
func (c *Config) isMadeUp(part string, m *match.Config) bool {
	switch {
	case part == "source" || part == "global" || slices.ContainsFunc(Facts(c.Modules),
		func(f *key.Fact) bool { return f.Who != "" && f.IsKey(part) }):
		return false
	case part == "host":
		return len(m.Hosts) == 0 ||
			slices.ContainsFunc(m.Hosts, func(h string) bool { return strings.HasPrefix(h, "*") })
	case part == "path" || strings.HasPrefix(part, "path:"):
		return m.Path == "" || m.Path[0] == '~' || strings.HasSuffix(m.Path, "*")
	}
	return true
}

// isOwn reports whether a part of a key distinguishes clients.
func isOwn(part string) bool {
	return part != "global" && part != "host" && part != "path" && !strings.HasPrefix(part, "path:")
}

// coveredBySource reports whether a rule that refuses counts by source alone what r is about, and
// what r could be about if its clients wrote less or more.
func (c *Config) coveredBySource(r *rules.Config) bool {
	return c.hasBySource(r, func(o *rules.Config) bool { return o.Limit > 0 })
}

// hasBySource is coveredBySource for rules that are such.
func (c *Config) hasBySource(r *rules.Config, such func(*rules.Config) bool) bool {
	return slices.ContainsFunc(c.Rules,
		func(o rules.Config) bool { return such(&o) && isBySource(&o, r) })
}

// BySource are the rules with a limit that refuse by source alone what r is about.
func (c *Config) BySource(r *rules.Config) (list []*rules.Config) {
	for i := range c.Rules {
		if o := &c.Rules[i]; o.Limit > 0 && o.Name != r.Name && isBySource(o, r) {
			list = append(list, o)
		}
	}
	return list
}

// isBySource reports whether o refuses by source alone what r is about.
func isBySource(o, r *rules.Config) bool {
	covers := func(a, b match.Config) bool {
		return a.Everything() || a.Plain() && slices.Equal(a.Hosts, b.Hosts) && a.Path == b.Path &&
			slices.Equal(a.Methods, b.Methods) ||
			b.Evadable() == "" && text(a) == text(b)
	}
	return o.Mode == rules.Enforce && o.Action != rules.Tag &&
		slices.Contains(rules.NamesOf(nil), o.Action) && o.Share == 100 &&
		slices.Equal(o.Key, []string{"source"}) && covers(o.Match, r.Match)
}
