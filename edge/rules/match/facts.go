package match

import (
	"fmt"
	"slices"

	"sluice/edge/rules/key"
)

// A fact is a rule's condition on what a module finds out of a request. What is not known is none
// of the values: no rule about some is about such a request, and every rule that leaves some out
// is.
type fact struct {
	*key.Fact
	values, not []string
}

// newFacts are those of m, in the order of facts.
func newFacts(m *Config, facts []*key.Fact) (list []fact, err error) {
	known := 0
	for _, f := range facts {
		one := fact{Fact: f}
		if f.Match == "" {
			continue
		}
		if one.values, err = f.Values(m.Facts[f.Match]); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Match, err)
		}
		if m.Not != nil {
			if one.not, err = f.Values(m.Not.Facts[f.Match]); err != nil {
				return nil, fmt.Errorf("not.%s: %w", f.Match, err)
			}
		}
		if len(one.values)+len(one.not) > 0 {
			list = append(list, one)
		}
		known += min(1, len(one.values)) + min(1, len(one.not))
	}
	asked := len(m.Facts)
	if m.Not != nil {
		asked += len(m.Not.Facts)
	}
	if known < asked {
		return nil, fmt.Errorf("it asks for what this program does not find out")
	}
	return list, nil
}

// holds reports whether the fact is one of the values, and none of the others.
func (f *fact) holds(v *key.View) bool {
	value := v.Fact(f.Fact)
	is := func(want string) bool { return string(value) == want }
	return (len(f.values) == 0 || slices.ContainsFunc(f.values, is)) &&
		!slices.ContainsFunc(f.not, is)
}
