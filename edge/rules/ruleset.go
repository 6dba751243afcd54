package rules

import (
	"fmt"
	"iter"
	"strings"

	"sluice/counter/algorithm"
	"sluice/edge/rules/descriptors"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
)

// MaxSearched bounds what regular expressions of rules see of one request, in bytes: its path in
// all its readings, and for all its hosts, together. They are tried one by one, and each may take
// 100 ns for a byte; so a request costs 0.1 ms at most for each that is about its host and method
// (BenchmarkRegexps). Whether a rule is about a longer path is not decided, and no client may dodge
// a rule by that: the request is refused (message.TooLong) if it fulfils all else of the rule.
const MaxSearched = 1 << 10

// A Set finds the rules that a request falls under. It looks hosts and paths up instead of trying
// every rule, so that ten thousand rules cost little more than ten; only regular expressions are
// tried one by one, on MaxSearched bytes.
type Set struct {
	Rules []*Rule // all that are not off, in the order of the file
	All   []*Rule // those that are off as well, for display
	// Everything are those of Rules that are about all requests, and count by source.
	Everything []*Rule
	// Trials are rules that are in none of the others, and are tried beside them (try.go).
	Trials []*Rule

	names   map[string]*Rule
	index   match.Index[Rule]
	asked   key.Names         // by all of Rules
	spelled map[string]string // keys, as Spelled has them

	descriptors descriptors.Tree[Rule] // rules about them, which are in none of the others
}

func New(list []Config, defaults Defaults, tallies func(string) *Tally) (*Set, error) {
	s := &Set{names: make(map[string]*Rule, len(list))}
	var counters []*algorithm.Spec
	for _, config := range list {
		r, err := newRule(config, defaults)
		if err != nil {
			return nil, err
		}
		if r.Tally = tallies(config.Name); r.plans != nil && r.Tally != nil {
			r.plans.tally(r.Tally)
		}
		s.All = append(s.All, r)
		if config.Mode == Off {
			continue
		}
		r.Place = len(s.Rules)
		s.Rules, s.names[config.Name] = append(s.Rules, r), r
		if r.Parts == nil && r.Config.Match.Everything() {
			s.Everything = append(s.Everything, r)
		}
		r.addNames(&s.asked)
		for i := range r.Limits {
			counters = append(counters, r.Limits[i].Counter)
		}
		counters = append(counters, r.Asked...)
		if r.Config.Match.Descriptors == nil {
			s.index.Add(&r.Config.Match, r)
		} else if other := s.descriptors.Add(r.Config.Match.Descriptors, r); other != nil {
			return nil,
				fmt.Errorf("rule %s: match.descriptors: rule %s is about the same: keep one, or say mode: off", config.Name, other.Config.Name)
		}
	}
	algorithm.Renumber(counters)
	for _, r := range s.Rules {
		if r.apart != nil { // what operators have blocked under the rule is blocked under this limit
			r.Limits[len(r.Limits)-1].Rule.VariantOf = r.Counter.ID
		}
	}
	s.showKeys()
	return s, nil
}

// showKeys tells the rules how much of a key is shown: a request has it once for all that have the
// same.
func (s *Set) showKeys() {
	shows := make(map[string]int)
	s.spelled = make(map[string]string)
	for _, r := range s.Rules {
		if _, known := s.spelled[r.key]; !known {
			s.spelled[r.key] = strings.Join(r.Config.Key, ",")
		}
		shows[r.key] = max(shows[r.key], r.Config.ShowKey)
	}
	for _, r := range s.Rules {
		if r.shows = shows[r.key]; r.plans != nil {
			r.plans.shows = shows[r.plans.name]
		}
		if r.own != nil {
			r.own.shows = shows[r.own.name]
		}
	}
	for _, r := range s.Trials { // nothing more is shown of a key that a rule in force counts by
		var known bool
		if r.shows, known = shows[r.key]; !known {
			r.shows = r.Config.ShowKey
		}
	}
}

// Spelled is a rule's KeyName as the first rule that counts by it spells it.
func (s *Set) Spelled(name string) string {
	if text, ok := s.spelled[name]; ok {
		return text
	}
	return name
}

// Configs returns the rules as they are in force, those that are off as well.
func (s *Set) Configs() (list []Config) {
	for _, r := range s.All {
		list = append(list, r.Config)
	}
	return list
}

// EachLimit ranges over the limits of all rules that are not off, and of their variants.
func (s *Set) EachLimit() iter.Seq2[*Rule, *Limit] {
	return func(yield func(*Rule, *Limit) bool) {
		for r := range s.Each() {
			for i := range r.Limits {
				if !yield(r, &r.Limits[i]) {
					return
				}
			}
		}
	}
}

// ByName returns the rule of that name if there is one and it is not off.
func (s *Set) ByName(name string) *Rule { return s.names[name] }
