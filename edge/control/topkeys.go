package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/counter"
	"sluice/edge/config"
	"sluice/edge/rules"
	"sluice/edge/seen"
	"sluice/edge/top"
)

// A HeavyKey is a key that comes often: at least Count - Error, at most Count, of late.
type HeavyKey struct {
	top.Heavy          // Source is its digest
	Key       string   `json:"key"`                 // what it is of
	KeyStart  string   `json:"key_start,omitempty"` // its first characters, where a rule shows them
	Rules     []string `json:"rules"`               // that count by it now
	// Of the client, where a rule asks for it and the key tells who it is
	Plan string `json:"plan,omitempty"`
}

// TopKeys returns at most n of the keys that rules count by, the heaviest first: by requests, by
// those that a rule by the key refused, or by those that a shadow would have. rule is the one whose
// keys are wanted; "": of all. What is remembered, package seen says.
func (c *Admin) TopKeys(kind seen.Kind, n int, rule string) ([]HeavyKey, error) {
	in := c.with.View()
	var by func(string) bool
	if rule != "" {
		r := in.Rules.ByName(rule)
		if r == nil {
			return nil, fmt.Errorf("%w: %s", config.ErrNoRule, rule)
		}
		if r.KeyName() == "" {
			return nil, fmt.Errorf("edge: rule %s does not count by a key", rule)
		}
		by = func(of string) bool { return of == r.KeyName() }
	}
	return c.keyList(&in, kind, n, by).Heavy, nil
}

// A KeyList is some of the heaviest keys, as far as they are to be added to those of other edges.
type KeyList struct {
	Heavy []HeavyKey `json:"heavy"`
	Rest  uint64     `json:"rest,omitempty"` // a key that is not listed has at most so many
}

// KeyLists are the lists of heavy keys that this edge has, n of each at most, by what they are
// heavy in.
func (c *Admin) KeyLists(n int) map[string]KeyList {
	in, lists := c.with.View(), make(map[string]KeyList)
	for by, kind := range map[string]seen.Kind{"requests": seen.Requests, "refused": seen.Refused,
		"shadow": seen.NotEnforced} {
		if l := c.keyList(&in, kind, n, nil); len(l.Heavy) > 0 {
			lists[by] = l
		}
	}
	return lists
}

func (c *Admin) keyList(in *View, kind seen.Kind, n int, by func(string) bool) KeyList {
	l := KeyList{Heavy: []HeavyKey{}}
	if c.with.Keys == nil {
		return l
	}
	heaviest, rest := c.with.Keys.List(kind, n, by)
	l.Rest = rest
	for _, h := range heaviest {
		one := HeavyKey{Heavy: top.Heavy{Source: h.Digest.String(), Count: h.Count, Error: h.Error},
			Key: keyName(in, h.By), KeyStart: h.Start.String(), Rules: []string{}}
		for _, r := range in.Rules.Rules {
			if r.KeyName() == h.By {
				one.Rules = append(one.Rules, r.Config.Name)
				if plan := c.planUnder(in, r, h.Digest); plan != "" {
					one.Plan = plan
				}
			}
		}
		l.Heavy = append(l.Heavy, one)
	}
	return l
}

// keyName is what a key is of, as operators read it.
func keyName(in *View, by string) string {
	return strings.ReplaceAll(in.Rules.Spelled(by), ",", " and ")
}

// planUnder is the plan of who has a key, under a rule; "": the rule does not ask, or the digest
// does not tell who it is.
func (c *Admin) planUnder(in *View, r *rules.Rule, digest counter.Source) string {
	if !r.HasPlans() {
		return ""
	}
	client, ok := r.ClientOf(c.with.Secret, nil, digest, in.Plans)
	if !ok {
		return ""
	}
	if _, plan, _ := r.For(client); plan != "" {
		return plan
	}
	return planOf(in, client)
}

// describe adds to a mitigation of a key what is known of the key.
func (c *Admin) describe(in *View, m *Mitigation, source counter.Source) {
	if _, address := source.Prefix(); address || c.with.Keys == nil {
		return
	}
	if r := in.Rules.ByName(m.Rule); r != nil {
		m.KeyStart, m.Plan = c.with.Keys.Start(r.KeyName(), source).String(), c.planUnder(in, r,
			source)
	}
}

// ByKey is a key by which rules count who has an address too, and which of them came from there.
type ByKey struct {
	Key   string   `json:"key"` // what it is of
	Rules []string `json:"rules"`
	// At this edge, of late, the latest first: few, as package seen says
	Seen []SeenKey `json:"seen"`
}

// A SeenKey is a key that came from an address.
type SeenKey struct {
	Source   string    `json:"source"` // its digest
	KeyStart string    `json:"key_start,omitempty"`
	Last     time.Time `json:"last"`
}

// byKeys are the keys by which rules count a source as well.
func (c *Admin) byKeys(in *View, source counter.Source) []ByKey {
	list := []ByKey{}
	for _, r := range in.Rules.Rules {
		if r.KeyName() == "" {
			continue
		}
		of := keyName(in, r.KeyName())
		i := slices.IndexFunc(list, func(k ByKey) bool { return k.Key == of })
		if i < 0 {
			i = len(list)
			list = append(list, ByKey{Key: of, Seen: []SeenKey{}})
		}
		list[i].Rules = append(list[i].Rules, r.Config.Name)
	}
	if c.with.Keys == nil || len(list) == 0 {
		return list
	}
	for _, p := range c.with.Keys.From(source) {
		if i := slices.IndexFunc(list, func(k ByKey) bool {
			return k.Key == keyName(in, p.By)
		}); i >= 0 {
			list[i].Seen = append(list[i].Seen, SeenKey{p.Digest.String(), p.Start.String(),
				p.Last})
		}
	}
	return list
}
