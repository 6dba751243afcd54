package rules

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

	"sluice/counter/algorithm"
	"sluice/edge/rules/descriptors"
	"sluice/edge/rules/key"
)

// MaxSearched bounds what regular expressions of rules see of one request, in bytes: its path in all its readings, and
// for all its hosts, together. They are tried one by one, and each may take 100 ns for a byte; so a request costs 0.1
// ms at most for each that is about its host and method (BenchmarkRegexps). Whether a rule is about a longer path is
// not decided, and no client may dodge a rule by that: the request is refused (message.TooLong) if it fulfils all else
// of the rule.
const MaxSearched = 1 << 10

// A Set finds the rules that a request falls under. It looks hosts and paths up instead of trying every rule, so that
// ten thousand rules cost little more than ten; only regular expressions are tried one by one, on MaxSearched bytes.
type Set struct {
	Rules []*Rule // all that are not off, in the order of the file
	All   []*Rule // those that are off as well, for display
	// Everything are those of Rules that are about all requests, and count by source.
	Everything []*Rule
	// Tried are rules that are in none of the others, and are tried beside them (try.go).
	Tried []*Rule

	names   map[string]*Rule
	hosts   map[string]*paths
	wild    map[string]*paths // by what follows the *, with its dot
	any     *paths
	nots    bool              // a rule leaves hosts, paths or methods out
	asked   key.Names         // by all of Rules
	spelled map[string]string // keys, as Spelled has them

	descriptors descriptors.Tree[Rule] // rules about them, which are in none of the others
}

// paths are the rules of one host, by path.
type paths struct {
	any     []*Rule
	exact   map[string][]*Rule
	below   map[string][]*Rule // prefixes that end in a slash: /api/
	depths  []int              // the lengths of these, ascending
	begin   []*Rule            // other prefixes: /api
	regexps []*Rule
}

func New(list []Config, defaults Defaults, tallies func(string) *Tally) (*Set, error) {
	s := &Set{hosts: make(map[string]*paths), wild: make(map[string]*paths), any: &paths{},
		names: make(map[string]*Rule, len(list))}
	s.asked.Geo = defaults.Geo
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
		s.Rules, s.names[config.Name] = append(s.Rules, r), r
		if r.Parts == nil && r.Config.Match.Everything() {
			s.Everything = append(s.Everything, r)
		}
		if not := r.Config.Match.Not; not != nil && (len(not.Hosts) > 0 || not.Path != "" || len(not.Methods) > 0) {
			s.nots = true
		}
		r.addNames(&s.asked)
		for i := range r.Limits {
			l := &r.Limits[i]
			counters = append(counters, l.Counter)
			if c := l.Candidate; c != nil {
				counters = append(counters, c.Counter, c.Bits.Counter)
			}
		}
		counters = append(counters, r.Asked...)
		if r.Config.Match.Descriptors == nil {
			s.add(r)
		} else if other := s.descriptors.Add(r.Config.Match.Descriptors, r); other != nil {
			return nil, fmt.Errorf("rule %s: match.descriptors: rule %s is about the same: keep one, or say mode: off", config.Name, other.Config.Name)
		}
	}
	algorithm.Renumber(counters)
	s.showKeys()
	return s, nil
}

// showKeys tells the rules how much of a key is shown: a request has it once for all that have the same.
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
	}
	for _, r := range s.Tried { // nothing more is shown of a key that a rule in force counts by
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

func (s *Set) add(r *Rule) {
	hosts := r.Config.Match.Hosts
	if len(hosts) == 0 || slices.Contains(hosts, "*") {
		s.any.add(r)
		return
	}
	for _, h := range hosts {
		table := s.hosts
		if suffix, wild := strings.CutPrefix(h, "*"); wild {
			table, h = s.wild, suffix
		}
		if table[h] == nil {
			table[h] = &paths{}
		}
		table[h].add(r)
	}
}

func (p *paths) add(r *Rule) {
	path := r.Config.Match.Path
	prefix, isPrefix := strings.CutSuffix(path, "*")
	switch {
	case path == "" || path == "*" || path == "/*":
		p.any = append(p.any, r)
	case path[0] == '~':
		p.regexps = append(p.regexps, r)
	case isPrefix && strings.HasSuffix(prefix, "/"):
		if p.below == nil {
			p.below = make(map[string][]*Rule)
		}
		p.below[prefix] = append(p.below[prefix], r)
		if i, found := slices.BinarySearch(p.depths, len(prefix)); !found {
			p.depths = slices.Insert(p.depths, i, len(prefix))
		}
	case isPrefix && prefix != "":
		p.begin = append(p.begin, r)
	default:
		if p.exact == nil {
			p.exact = make(map[string][]*Rule)
		}
		p.exact[path] = append(p.exact[path], r)
	}
}

// match appends to found the rules about a request, each once, by host, path and method. Host and path are canonical. A
// path that is long is taken for one that every regular expression finds.
func (s *Set) match(found []*Rule, host, path, method []byte, long bool) []*Rule {
	if !s.nots {
		return s.matching(found, host, path, method, long)
	}
	n := len(found)
	found = s.matching(found, host, path, method, long)
	kept := found[:n]
	for _, r := range found[n:] {
		if !r.Config.Match.excludes(host, path, method) {
			kept = append(kept, r)
		}
	}
	return kept
}

func (s *Set) matching(found []*Rule, host, path, method []byte, long bool) []*Rule {
	found = s.any.match(found, path, method, long)
	if len(s.hosts) > 0 {
		if p := s.hosts[string(host)]; p != nil {
			found = p.match(found, path, method, long)
		}
	}
	if len(s.wild) > 0 {
		for rest := host; ; {
			i := bytes.IndexByte(rest, '.')
			if i < 0 {
				break
			}
			if p := s.wild[string(rest[i:])]; p != nil {
				found = p.match(found, path, method, long)
			}
			rest = rest[i+1:]
		}
	}
	return found
}

func (p *paths) match(found []*Rule, path, method []byte, long bool) []*Rule {
	found = take(found, p.any, method)
	if len(p.exact) > 0 {
		found = take(found, p.exact[string(path)], method)
	}
	for _, n := range p.depths {
		if n > len(path) {
			break
		}
		if path[n-1] == '/' {
			found = take(found, p.below[string(path[:n])], method)
		}
	}
	for _, r := range p.begin {
		prefix := r.Config.Match.Path
		if prefix = prefix[:len(prefix)-1]; len(path) >= len(prefix) && string(path[:len(prefix)]) == prefix {
			found = takeOne(found, r, method)
		}
	}
	for _, r := range p.regexps {
		if r.Config.Match.method(method) && (long || r.Config.Match.regexp.Match(path)) {
			found = takeOne(found, r, method)
		}
	}
	return found
}

func take(found, rules []*Rule, method []byte) []*Rule {
	for _, r := range rules {
		found = takeOne(found, r, method)
	}
	return found
}

// takeOne leaves out what is there already: a rule with two patterns for one host is one rule.
func takeOne(found []*Rule, r *Rule, method []byte) []*Rule {
	if !r.Config.Match.method(method) || len(r.Config.Match.Hosts) > 1 && slices.Contains(found, r) {
		return found
	}
	return append(found, r)
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
