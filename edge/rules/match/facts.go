package match

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluice/edge/address"
	"sluice/edge/rules/key"
)

// Values are those of a fact, as files have them.
type Values struct {
	Texts   []string
	Numbers bool
}

// MarshalJSON shows numbers as numbers.
func (v Values) MarshalJSON() ([]byte, error) {
	if v.Numbers {
		return []byte("[" + strings.Join(v.Texts, ",") + "]"), nil
	}
	return json.Marshal(v.Texts)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Values) UnmarshalJSON(text []byte) error {
	*v = Values{}
	if json.Unmarshal(text, &v.Texts) == nil {
		return nil
	}
	var numbers []json.Number
	err := json.Unmarshal(text, &numbers)
	*v = Values{Numbers: true}
	for _, n := range numbers {
		v.Texts = append(v.Texts, n.String())
	}
	return err
}

func (v Values) sorted() Values {
	return Values{slices.SortedFunc(slices.Values(v.Texts), func(a, b string) int {
		if v.Numbers && len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	}), v.Numbers}
}

// A fact is a rule's condition on what a module finds out of a request. What is not known is none
// of the values: no rule about some is about such a request, and every rule that leaves some out
// is.
type fact struct {
	*key.Fact
	values, not []string
	in, out     *address.Group // of a fact with a noun: those that have the values
}

// newFacts are those of m, in the order of facts.
func newFacts(m *Config, facts []*key.Fact) (list []fact, err error) {
	known := 0
	for _, f := range facts {
		one := fact{Fact: f}
		if f.Match == "" {
			continue
		}
		if one.values, err = f.Values(m.Facts[f.Match].Texts); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Match, err)
		}
		if m.Not != nil {
			if one.not, err = f.Values(m.Not.Facts[f.Match].Texts); err != nil {
				return nil, fmt.Errorf("not.%s: %w", f.Match, err)
			}
		}
		for _, value := range slices.Concat(one.values, one.not) {
			if err := f.Check(value); err != nil {
				return nil, err
			}
		}
		if f.Noun != "" && f.In != nil {
			one.in, one.out = f.In(one.values), f.In(one.not)
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
	if f.Noun != "" {
		return (len(f.values) == 0 || f.in.Has(v.Client)) && !f.out.Has(v.Client)
	}
	value := v.Fact(f.Fact)
	is := func(want string) bool { return string(value) == want }
	return (len(f.values) == 0 || slices.ContainsFunc(f.values, is)) &&
		!slices.ContainsFunc(f.not, is)
}
