package rules

import (
	"fmt"
	"slices"
	"strconv"

	"sluice/counter/inflight"
	"sluice/edge/limiter"
	"sluice/edge/limitfields"
)

// MaxConcurrency is the most requests in flight that a rule may allow.
const MaxConcurrency = 1_000_000

// MayLackLimit reports whether a rule is complete without a limit.
func (c *Config) MayLackLimit() bool { return c.OrdersOrigin() || c.Concurrency > 0 }

// CheckConcurrency returns which field does not go with a rule's concurrency, and why. A
// concurrency counts requests in flight by the rule's key alone, each as one, and waits for the
// tier in any case; all else belongs into a rule beside it.
func (c *Config) CheckConcurrency() (field string, err error) {
	if c.Concurrency == 0 {
		return "", nil
	}
	no := func(f, format string, args ...any) { field, err = f, fmt.Errorf(format, args...) }
	const apart = "put the concurrency into a separate rule, without a limit"
	switch {
	case c.Concurrency < 0 || c.Concurrency > MaxConcurrency:
		no("concurrency", "%d: want 0 to %d", c.Concurrency, MaxConcurrency)
	case c.Match.Descriptors != nil:
		no("concurrency", "no proxy reports when a request ends: remove it")
	case c.Action == Tag:
		no("action",
			"a request waits for its slot, and action: tag refuses no request: take mode: shadow, or %s", apart)
	case c.Action == Delay || c.Algorithm == LeakyBucket:
		no("concurrency",
			"a request holds its slot while it waits for its turn, and fewer are at the origin: if that is meant, %s", apart)
	case c.Check == limiter.Sync:
		no("check",
			"concurrency reads the tier before each decision already, and sync would do so once more: take check: async, or %s", apart)
	case len(c.Windows) > 0:
		no("windows", "requests in flight have no window: %s", apart)
	case len(c.Prefixes) > 0:
		no("prefixes", "concurrency counts by the rule's key alone: %s", apart)
	case len(c.Plans) > 0:
		no("plans",
			"a plan has a limit in a window, and no concurrency: %s, with match: {plans: …} for each", apart)
	case c.Cost.Is():
		no("cost", "a request holds one slot whatever it costs: %s", apart)
	case c.Count.Refused:
		no("count", "a request that finds no slot is counted under other rules, not under this: %s",
			apart)
	}
	return field, err
}

// ConcurrencyPolicy names the concurrency where the rule's name is that of its limit; "" otherwise.
func (r *Rule) ConcurrencyPolicy() string {
	if r.Config.Limit == 0 {
		return ""
	}
	return r.Config.Name + "/concurrency"
}

// addConcurrency gives a rule its slots, named like its counters by which requests it is about; in
// flight is each of them, whatever counts.
func (r *Rule) addConcurrency() error {
	c := &r.Config
	if field, err := c.CheckConcurrency(); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	if c.Concurrency == 0 {
		return nil
	}
	r.Uncounted = c.Limit == 0
	each := *c
	each.Count, each.Cost = Count{}, Cost{Units: 1}
	r.InFlight = &inflight.Concurrency{Name: each.countsBy(), Limit: int32(c.Concurrency)}
	name := c.Name
	if policy := r.ConcurrencyPolicy(); policy != "" {
		name = policy
	}
	limit := limitfields.Policy{Name: name, Quota: uint64(c.Concurrency),
		Unit: limitfields.ConcurrentRequests}
	item := limit.Append(nil)
	for i := range r.Limits { // one: windows and prefixes are refused
		for family := range r.Limits[i].Texts {
			t := &r.Limits[i].Texts[family]
			if r.Uncounted {
				t.Policy = item
			} else {
				t.Policy = slices.Concat(t.Policy, []byte(", "), item)
			}
		}
	}
	told := r.Limits[0].Texts[0]
	r.Crowded = &Text{Quoted: limitfields.AppendName(nil, name), Policy: told.Policy, Each: 1,
		Partition: told.Partition, Limit: strconv.AppendInt(nil, int64(c.Concurrency), 10),
		Body: fmt.Appendf(nil, `"limit":%d,"scope":%s`, c.Concurrency, r.Limits[0].scope(own))}
	return nil
}
