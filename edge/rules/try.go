package rules

import (
	"errors"
	"fmt"
	"slices"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/edge/rules/key"
)

// Triable is a rule as it is tried beside those in force: a shadow, without what would do something
// to requests all the same. The error says which field cannot be tried.
func Triable(c Config) (Config, error) {
	switch {
	case c.Limit == 0:
		return c,
			errors.New("limit: a rule without one refuses nobody by a count: say how many requests are allowed, such as limit=100")
	case c.HasPlans():
		return c,
			errors.New("plans: a rule that is tried has one limit for all clients: leave plans and match.plans out, and try one plan's limit at a time")
	case c.Match.Descriptors != nil:
		return c,
			errors.New("match.descriptors: what other proxies ask cannot be tried: put the rule into the file with mode: shadow")
	case c.Concurrency > 0:
		return c,
			errors.New("concurrency: slots are taken in the tier, so they cannot be tried: put the rule into the file with mode: shadow")
	case c.Algorithm == Exact || c.Check == limiter.Sync || c.FirstSight == limiter.Wait:
		return c,
			errors.New("check: sync, first_sight: wait and algorithm: exact let requests wait for the tier, and nothing waits for what is only tried: leave them out")
	case c.Action == Delay:
		return c,
			errors.New("action: delay cannot be tried: leave it out, and what would be over the rate is refused")
	}
	plain := Default(c.Name, c.Limit)
	c.Mode, c.Action, c.Response, c.Tag, c.Priority, c.Queue = Shadow, plain.Action, plain.Response,
		plain.Tag, plain.Priority, plain.Queue
	return c, nil
}

// A Trial is a rule, which must be Triable, that is tried beside those in force.
type Trial struct {
	Config
	Tally *Tally // by which one knows it in Decision.Trials; nil: it is only checked
}

// Try adds rules that are tried beside those of the set: each has counters of its own and says what
// it would do, in Decision.Trials alone. Call it once, before the set is used. Those that cannot be
// tried are left out, and the error says why.
func (s *Set) Try(list []Trial, defaults Defaults) (wrong error) {
	var counters []*algorithm.Spec
	for r, l := range s.EachLimit() {
		counters = append(counters, l.Counter)
		counters = append(counters, r.Asked...)
	}
	for _, t := range list {
		r, err := newRule(t.Config, defaults)
		if err == nil && (!r.Shadow || r.plans != nil || r.InFlight != nil ||
			t.Match.Descriptors != nil) {
			err = fmt.Errorf("rule %s: it cannot be tried", t.Name)
		}
		if err != nil {
			wrong = errors.Join(wrong, err)
			continue
		}
		r.Observer, r.Place, r.Tally = true, -1, t.Tally
		r.own = nil // what is tried is one limit for all
		for i := range r.Limits {
			r.Limits[i].Observer = true
			if r.Tally != nil {
				r.Limits[i].Counter.Commands = &r.Tally.Commands
			}
			counters = append(counters, r.Limits[i].Counter)
		}
		r.addNames(&s.asked)
		s.Trials = append(s.Trials, r)
		s.index.Add(&r.Config.Match, r)
	}
	algorithm.Renumber(counters) // those in force are there first, and stay as they are
	s.showKeys()
	return wrong
}

// TrialResult is what a rule that is tried says of a request.
type TrialResult struct {
	Tally   *Tally // of the rule, by which one knows it
	Source  counter.Source
	Refuses bool      // it would refuse
	Moot    bool      // a rule in force refuses, so it does not matter
	Start   key.Start // of what the source is the digest of, as far as the rule shows it
}

// Trials has what the rules that are tried say of the request, once it is decided.
func (d *Decision) Trials(yield func(TrialResult) bool) {
	for r, results := range d.EachResult {
		if !r.Observer {
			continue
		}
		t := TrialResult{Tally: r.Tally, Source: results[0].Source, Moot: d.Refused(),
			Refuses: slices.ContainsFunc(results,
				func(r limiter.RuleResult) bool { return r.Verdict == limiter.Shadowed })}
		if i := slices.IndexFunc(d.keys, func(k keyed) bool {
			return k.key == r.key && k.source == t.Source
		}); i >= 0 && r.Parts != nil {
			t.Start = d.keys[i].start
		}
		if !yield(t) {
			return
		}
	}
}
