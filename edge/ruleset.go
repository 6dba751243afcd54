package edge

import (
	"bytes"
	"slices"
	"strings"

	"sluice/counter"
)

// A ruleset finds the rules that a request falls under. It looks hosts and paths up instead of trying every rule, so that
// ten thousand rules cost little more than ten; only regular expressions are tried one by one.
type ruleset struct {
	rules []*rule // all that are not off, in the order of the file
	all   []*rule // those that are off as well, for display
	names map[string]*rule
	hosts map[string]*paths
	wild  map[string]*paths // by what follows the *, with its dot
	any   *paths
}

// paths are the rules of one host, by path.
type paths struct {
	any     []*rule
	exact   map[string][]*rule
	below   map[string][]*rule // prefixes that end in a slash: /api/
	depths  []int              // the lengths of these, ascending
	begin   []*rule            // other prefixes: /api
	regexps []*rule
}

func newRuleset(list []RuleConfig, defaults RuleDefaults, tallies func(string) *tally) (*ruleset, error) {
	s := &ruleset{hosts: make(map[string]*paths), wild: make(map[string]*paths), any: &paths{},
		names: make(map[string]*rule, len(list))}
	var counters []*counter.Rule
	for _, config := range list {
		r, err := newRule(config, defaults)
		if err != nil {
			return nil, err
		}
		r.tally = tallies(config.Name)
		s.all = append(s.all, r)
		if config.Mode == Off {
			continue
		}
		s.rules, s.names[config.Name] = append(s.rules, r), r
		counters = append(counters, r.Counter)
		s.add(r)
	}
	counter.Renumber(counters)
	return s, nil
}

func (s *ruleset) add(r *rule) {
	hosts := r.config.Match.Hosts
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

func (p *paths) add(r *rule) {
	path := r.config.Match.Path
	prefix, isPrefix := strings.CutSuffix(path, "*")
	switch {
	case path == "" || path == "*" || path == "/*":
		p.any = append(p.any, r)
	case path[0] == '~':
		p.regexps = append(p.regexps, r)
	case isPrefix && strings.HasSuffix(prefix, "/"):
		if p.below == nil {
			p.below = make(map[string][]*rule)
		}
		p.below[prefix] = append(p.below[prefix], r)
		if i, found := slices.BinarySearch(p.depths, len(prefix)); !found {
			p.depths = slices.Insert(p.depths, i, len(prefix))
		}
	case isPrefix && prefix != "":
		p.begin = append(p.begin, r)
	default:
		if p.exact == nil {
			p.exact = make(map[string][]*rule)
		}
		p.exact[path] = append(p.exact[path], r)
	}
}

// match appends to found the rules about a request, each once. Host and path are canonical.
func (s *ruleset) match(found []*rule, host, path, method []byte) []*rule {
	found = s.any.match(found, path, method)
	if len(s.hosts) > 0 {
		if p := s.hosts[string(host)]; p != nil {
			found = p.match(found, path, method)
		}
	}
	if len(s.wild) > 0 {
		for rest := host; ; {
			i := bytes.IndexByte(rest, '.')
			if i < 0 {
				break
			}
			if p := s.wild[string(rest[i:])]; p != nil {
				found = p.match(found, path, method)
			}
			rest = rest[i+1:]
		}
	}
	return found
}

func (p *paths) match(found []*rule, path, method []byte) []*rule {
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
		prefix := r.config.Match.Path
		if prefix = prefix[:len(prefix)-1]; len(path) >= len(prefix) && string(path[:len(prefix)]) == prefix {
			found = takeOne(found, r, method)
		}
	}
	for _, r := range p.regexps {
		if r.config.Match.regexp.Match(path) {
			found = takeOne(found, r, method)
		}
	}
	return found
}

func take(found, rules []*rule, method []byte) []*rule {
	for _, r := range rules {
		found = takeOne(found, r, method)
	}
	return found
}

// takeOne leaves out what is there already: a rule with two patterns for one host is one rule.
func takeOne(found []*rule, r *rule, method []byte) []*rule {
	if !r.config.Match.method(method) || len(r.config.Match.Hosts) > 1 && slices.Contains(found, r) {
		return found
	}
	return append(found, r)
}

// byName returns the rule of that name if there is one and it is not off.
func (s *ruleset) byName(name string) *rule { return s.names[name] }
