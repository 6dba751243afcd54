package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/address"
	"sluice/edge/limiter"
	"sluice/edge/rules/key"
)

// An Ask is what a program asks of one rule, which it names: whether somebody may go on, and at
// what cost. Conditions of the rule (match) are about requests of HTTP, and the program knows
// better.
type Ask struct {
	Rule string
	// Of a rule by addresses the address; else a value for each part of its key, in that order, but
	// for global
	Key  []string
	Cost *uint32 // nil: what the rule says; 0: nothing is counted
	// What of Cost an earlier ask has counted, as an estimate: the rest is spent, and is counted
	// whatever is left. nil: the ask is no settlement.
	Estimated *uint32
}

// An Asked is an Ask that makes sense under the rules there are.
type Asked struct {
	Rule   *Rule
	Hits   uint32
	Client netip.Addr // the zero Addr: the key names no address
	Source counter.Source
	About  bool // the rule is about that source (share, plans); if not, it may go on
	Spent  bool // nobody can refuse it any more

	key keyed
}

// ErrNoRule says that no rule has the name.
var ErrNoRule = errors.New("there is no such rule")

// AskedOf finds the rule of an ask, and whom that counts. Errors say nothing of the key's values.
func (d *Decision) AskedOf(q *Ask, set *Set, secret key.Secret,
	s *address.Sources) (a Asked, err error) {
	r := set.ByName(q.Rule)
	if r == nil {
		return a, fmt.Errorf("%w: want one of %s", ErrNoRule, set.askable())
	}
	if no := r.noAsk(); no != "" {
		return a, fmt.Errorf("rule %s %s", q.Rule, no)
	}
	a.Rule, a.Hits = r, max(1, r.Config.Cost.Least())
	if q.Cost != nil {
		a.Hits = *q.Cost
	}
	if q.Estimated != nil && q.Cost == nil {
		return a, errors.New("estimated is without cost: say what was spent in all")
	}
	switch one := r.AsksTier(); {
	case one && a.Hits != 1:
		return a,
			fmt.Errorf("cost: rule %s has check: sync, which keeps one at a time: want 1, or no cost", q.Rule)
	case a.Hits > 1 && r.Config.Algorithm != Sliding && r.Config.Algorithm != Fixed:
		return a,
			fmt.Errorf("cost: rule %s counts by algorithm: %s, one at a time: want 0 or 1, or no cost", q.Rule, r.Config.Algorithm)
	case a.Hits > algorithm.MaxCost:
		return a, fmt.Errorf("cost: %d is out of range: want 0 to %d", a.Hits, algorithm.MaxCost)
	}
	if q.Estimated != nil {
		a.Hits -= min(a.Hits, *q.Estimated)
		a.Spent = a.Hits > 0
	}
	values, err := a.read(q.Key, s)
	if err != nil {
		return a, err
	}
	client, known := r.ClientOf(secret, values, a.Source, d.Plans)
	if !known {
		return a,
			fmt.Errorf("rule %s goes by the plan of %s, which is no part of its key: ask a rule that counts by it", q.Rule, r.KnowsBy())
	}
	if r.Parts != nil {
		a.key = keyed{key: r.key, counts: true}
		d.buf, _ = key.AppendValues(d.buf[:0], r.Parts, values)
		a.Source = secret.Sum(d.buf)
		a.key.source = a.Source
		a.key.start, a.key.named = key.Look(r.Parts, d.buf, r.shows)
	}
	if a.Rule, _, a.About = r.For(client); !a.Rule.IsAbout(secret, a.Source) {
		a.About = false
	}
	return a, nil
}

// read reads the values of a key, and the address that is among them.
func (a *Asked) read(texts []string, s *address.Sources) (values []key.Value, err error) {
	r := a.Rule
	parts := r.Parts
	if parts == nil {
		parts = []key.Part{{Kind: key.Source}}
	}
	want := len(parts)
	for i := range parts {
		if parts[i].Kind == key.Global {
			want--
		}
	}
	if len(texts) != want {
		return nil, fmt.Errorf("key: rule %s counts by %s: want %s, and not %d", r.Config.Name,
			strings.Join(r.Config.Key, " and "), amount(want), len(texts))
	}
	for i := range parts {
		text := ""
		if parts[i].Kind != key.Global {
			text, texts = texts[0], texts[1:]
		}
		v, err := key.ParseValue(parts[i], text, func(addr netip.Addr) counter.Source {
			a.Client, a.Source = addr, s.Of(addr)
			return a.Source
		})
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		values = append(values, v)
	}
	if r.Parts == nil {
		return nil, nil
	}
	return values, nil
}

func amount(values int) string {
	switch values {
	case 0:
		return "no value"
	case 1:
		return "one value"
	}
	return fmt.Sprintf("a list of %d values", values)
}

// noAsk is why a rule cannot be asked; "": it can.
func (r *Rule) noAsk() string {
	switch {
	case r.Config.Match.Descriptors != nil:
		return "is about descriptors, which the rate limit service gets: ask another"
	case r.InFlight != nil:
		return "has a concurrency, and nobody would say here when the request has ended: ask another"
	case r.Config.Limit == 0:
		return "has no limit: ask another"
	case len(r.Config.Count.Statuses) > 0:
		return "counts by the status of an answer, and here is none: ask another"
	}
	return ""
}

// askable names the rules that can be asked.
func (s *Set) askable() string {
	const most = 50 // in one sentence
	var names []string
	for _, r := range s.Rules {
		if r.noAsk() != "" {
			continue
		}
		if len(names) == most {
			names = append(names, "…")
			break
		}
		names = append(names, r.Config.Name)
	}
	if names == nil {
		return "none, because no rule here can be asked"
	}
	return strings.Join(names, ", ")
}

// AddAsked puts the rule of an ask to the limiter. What costs more than a limit of it allows could
// never go on: that is only looked at, as if it cost nothing, so that it blocks nobody who has kept
// to the limit. A rule that counts attempts counts it as others.
func (d *Decision) AddAsked(a *Asked) (never bool) {
	r := a.Rule
	d.Rules = append(d.Rules, r)
	if a.key.key != "" {
		d.keys = append(d.keys, a.key)
	}
	if r.several {
		d.addLimits(r, a.Source, a.Client, key.Secret{})
	} else {
		d.Add(&r.Rule, a.Source)
	}
	for i := range d.Results {
		by := d.Results[i].Rule
		never = never || a.Hits > by.Counter.Limit && !by.Shadow && !by.Tag && !by.Refused && !a.Spent
	}
	for i := range d.Results {
		result := &d.Results[i]
		result.Hits = min(a.Hits, result.Rule.Counter.Limit+1) // more hits are no more over it
		result.Probe, result.Spent = a.Hits == 0 || never, a.Spent
	}
	return never
}

// StrictestAsked is the result that an answer tells: what the client's headers would report, else
// the first.
func (d *Decision) StrictestAsked() *limiter.RuleResult {
	if d.Reported != nil {
		return d.Reported
	}
	return &d.Results[0]
}
