package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sluice/counter/algorithm"
	"sluice/edge/answercost"
	"sluice/edge/config/compose"
	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
)

// ErrNoRule means that no rule in force has the name that was given.
var ErrNoRule = errors.New("edge: no such rule")

// ParseRule reads a rule without what modules add.
func ParseRule(name string, text []byte) (rules.Config, error) {
	return new(Config).ParseRule(name, text)
}

// ParseRule reads a rule of that name in JSON, with the fields of a configuration file that had
// been read with the same modules. The name may be left out. The error is what Parse would say of
// it, a line each.
func (c *Config) ParseRule(name string, text []byte) (rules.Config, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil || given == nil {
		return rules.Config{},
			errors.New("rule: the body is not a JSON object, such as {\"limit\": 5}")
	}
	if given["name"] == nil {
		given["name"], _ = json.Marshal(name)
		text, _ = json.Marshal(given)
	}
	// Who calls the API reads neither the edge's environment nor its files
	tree, errs := compose.Plain("rule", text)
	r, of := &reader{tree: tree, errs: errs, modules: c.Modules}, Default()
	if tree.Root != nil && len(errs) == 0 {
		r.rule(tree.Root, of, make(map[string]ast.Node))
	}
	switch {
	case len(r.errs) > 0:
		return rules.Config{}, errors.Join(r.errs...)
	case of.Rules[0].Name != name:
		return rules.Config{},
			fmt.Errorf("rule: its name is %s in the path and %s in the body: make them agree", name,
				of.Rules[0].Name)
	}
	return of.Rules[0], nil
}

// DropGone returns a rule in JSON without fields that only versions before had: what an operator
// changed then holds in all else.
func DropGone(rule json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(rule, &fields); err != nil {
		return rule // the reader says what is wrong
	}
	before := len(fields)
	maps.DeleteFunc(fields,
		func(name string, _ json.RawMessage) bool { return gone["rule."+name] != "" })
	if len(fields) == before {
		return rule
	}
	text, _ := json.Marshal(fields) // it was read from JSON
	return text
}

func (r *reader) rule(n ast.Node, c *Config, names map[string]ast.Node) {
	rule := rules.Default("", 0)
	rule.Key = nil
	f := r.settings("", &rule)
	f["name"] = r.text("rule name", func(n ast.Node, text string) {
		switch other := names[text]; {
		case !plainName(text):
			r.fail(n, "rule name: %v", checkName(text))
		case strings.Trim(text, ".") == "":
			r.fail(n,
				"rule name: %q is a step in a path, so the API could not name the rule: choose another", text)
		case other != nil:
			r.fail(n, "rule name: %s is the name of the rule at %s already: choose another",
				text, r.lineOf(n, other))
		default:
			names[text] = n
			rule.Name = text
		}
	})
	f["match"] = func(n ast.Node) { r.match(n, &rule.Match) }
	f["key"] = r.key(&rule.Key)
	subWindows := f["sub_windows"]
	f["sub_windows"] = func(n ast.Node) {
		subWindows(n)
		if !slices.Contains([]int{1, 2, 4, 8, 12}, rule.SubWindows) {
			r.fail(n, "sub_windows: %d is not possible: want 1, 2, 4, 8 or 12", rule.SubWindows)
		}
	}
	f["estimate"] = r.setting("estimate", "", &rule.Estimate)
	f["escalate"] = r.each("escalate", func(n ast.Node) {
		var t rules.Duration
		r.setting("escalate", `want:"1s to 24h"`, &t)(n)
		if len(rule.Escalate) == maxEscalate {
			r.fail(n, "escalate: more than %d timeouts: leave out some", maxEscalate)
		}
		rule.Escalate = append(rule.Escalate, t)
	})
	f["count"] = func(n ast.Node) { r.count(n, &rule.Count) }
	f["action"] = oneOf(r, "action", &rule.Action, rules.NamesOf(actions(r.modules))...)
	f["response"] = func(n ast.Node) { r.response(n, &rule.Response) }
	f["plans"] = r.planLimits(&rule.Plans)
	f["windows"] = r.windows(&rule.Windows)
	f["prefixes"] = r.ruleWidths(&rule.Prefixes)
	f["cost"] = func(n ast.Node) { r.cost(n, &rule.Cost) }
	f["algorithm"] = oneOf(r, "algorithm", &rule.Algorithm, rules.Algorithms...)
	seen := r.mapping(n, "rule", r.own(&rule, f))
	if seen == nil {
		return
	}
	if seen["name"] == nil {
		r.fail(n, "rule: no name: every rule needs a name and a limit")
	}
	if seen["limit"] == nil && !rule.MayLackLimit() {
		r.fail(n,
			"rule: no limit: every rule needs a name and a limit, or instead a concurrency, a priority or a queue")
	}
	if rule.Key == nil {
		rule.Key = []string{"source"}
	}
	r.answer(n, seen, &rule)
	r.tags(n, seen, &rule)
	if at := seen["cost"]; at != nil && rule.Cost.Least() > rule.Limit && rule.Limit > 0 {
		r.fail(at, "cost: %d is more than the limit of %d: no request would ever pass",
			rule.Cost.Least(), rule.Limit)
	}
	if rule.Match.Descriptors != nil {
		r.described(n, seen, &rule, c.Rules)
	}
	if at := seen["escalate"]; at != nil {
		r.escalate(at, &rule)
	}
	if rule.Limit > 0 { // else that is what is wrong
		if err := rule.CheckWindows(); err != nil {
			r.fail(seen["windows"], "%v", err)
		} else if err := rule.CheckPrefixes(); err != nil {
			r.fail(seen["prefixes"], "%v", err)
		}
		if field, err := rule.CheckAlgorithm(); err != nil {
			r.fail(cmp.Or(seen[field], n), "%s: %v", field, err)
		}
	}
	if at := seen["first_sight"]; rule.Check == limiter.Sync && rule.FirstSight == limiter.Wait {
		r.fail(at,
			"first_sight: check: sync waits for the tier with every request, so wait adds nothing: leave first_sight out")
	}
	if field, err := rule.CheckConcurrency(); err != nil {
		r.fail(cmp.Or(seen[field], seen["concurrency"], n), "%s: %v", field, err)
	}
	if seen["limit"] == nil && rule.MayLackLimit() {
		r.limitless(n, seen, rule)
	}
	c.Rules = append(c.Rules, rule)
	r.planned = append(r.planned, cmp.Or(seen["plans"], seen["match"], n))
}

// limitless returns what is wrong with a rule that has no limit: fields about counting, and about
// requests over the limit.
func (r *reader) limitless(n ast.Node, seen map[string]ast.Node, rule rules.Config) {
	known := []string{"name", "match", "key", "mode", "share", "show_key", "priority", "queue"}
	if rule.Concurrency > 0 {
		known = append(known, "concurrency", "action", "response", "on_store_failure")
	} else if rule.Mode == rules.Shadow {
		r.fail(seen["mode"],
			"mode: a shadow refuses no request, so its priority and its queue have no effect, and it has no limit: take enforce or off")
	}
	if rule.Estimate != nil && *rule.Estimate == algorithm.Nearest {
		known = append(known, "estimate") // as a rule in force is shown
	}
	set := Fields(rule)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if at := seen[name]; at != nil && !slices.Contains(known, name) {
			r.fail(at,
				"%s: the rule has no limit, so this has no effect: give it a limit, or remove %s",
				name, name)
		}
	}
}

// windows reads the limits that a rule has in other windows.
func (r *reader) windows(to *[]rules.Window) func(ast.Node) {
	return r.each("windows", func(n ast.Node) {
		var w rules.Window
		switch seen := r.into(n, "windows", &w); {
		case seen == nil:
		case seen["limit"] == nil || seen["window"] == nil:
			r.fail(n,
				"windows: want a limit and a window in each of them, such as {limit: 10, window: 1s}")
		case w.Limit > 0 && w.Window > 0: // else that was said
			*to = append(*to, w)
		}
	})
}

// ruleWidths reads the prefixes in which a rule counts addresses: numbers, or numbers with a limit
// of their own.
func (r *reader) ruleWidths(to *[]rules.Prefix) func(ast.Node) {
	return r.each("prefixes", func(n ast.Node) {
		var p rules.Prefix
		f := r.settings("prefixes.", &p)
		f["prefix"] = integer(r, "prefixes", 8, 128, &p.Prefix)
		switch n.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			seen := r.mapping(n, "prefixes", f)
			if seen["prefix"] == nil || seen["limit"] == nil {
				r.fail(n,
					"prefixes: want a number, such as 24, or one with a limit: {prefix: 24, limit: 1000}")
				return
			}
		default:
			f["prefix"](n)
		}
		if p.Prefix > 0 { // else that was said
			*to = append(*to, p)
		}
	})
}

// maxEscalate is how many timeouts a rule may have for repeated blocks.
const maxEscalate = 16

// escalate returns what is wrong with the timeouts for repeated blocks.
func (r *reader) escalate(n ast.Node, rule *rules.Config) {
	before := rule.MitigationTimeout
	if before == 0 && len(rule.Escalate) > 0 {
		r.fail(n,
			"escalate: a rule with mitigation_timeout: 0 blocks no source, so no block can be longer: give it a mitigation_timeout")
		return
	}
	for _, t := range rule.Escalate {
		if t <= before {
			r.fail(n,
				"escalate: %v is not longer than %v before it (mitigation_timeout goes first): want times that ascend", t, before)
			return
		}
		before = t
	}
}

func (r *reader) match(n ast.Node, m *match.Config) {
	f := r.matchFields("match", m)
	f["not"] = func(n ast.Node) {
		m.Not = new(match.Config)
		not := r.matchFields("match.not", m.Not)
		one := not["path"]
		not["path"] = func(n ast.Node) {
			if _, several := n.(*ast.SequenceNode); !several {
				one(n)
				return
			}
			r.texts("match.not.path", func(n ast.Node, text string) {
				if slices.Contains(m.Not.Paths, text) {
					r.fail(n, "match.not.path: %s is there twice: remove one", text)
				} else if err := m.Not.AddPath(text); err != nil {
					r.fail(n, "match.not.path: %v", err)
				}
			})(n)
		}
		everything := func(path string) bool { return path == "*" || path == "/*" }
		if r.mapping(n, "match.not", not); everything(m.Not.Path) ||
			slices.ContainsFunc(m.Not.Paths, everything) || slices.Contains(m.Not.Hosts, "*") {
			r.fail(n,
				"match.not: it leaves everything out, so the rule is about nothing: say mode: off")
		} else if m.Not.Everything() {
			m.Not = nil // it says nothing
		}
	}
	f["descriptors"] = func(n ast.Node) { r.descriptors(n, m) }
	r.mapping(n, "match", f)
}

func (r *reader) matchFields(what string, m *match.Config) fields {
	f := r.settings(what+".", m)
	f["path"] = r.text(what+".path", func(n ast.Node, text string) {
		if err := m.SetPath(text); err != nil {
			r.fail(n, "%s.path: %v", what, err)
		}
	})
	f["headers"] = r.values(what+".headers", &m.Headers, strings.ToLower, match.CheckHeader)
	f["query"] = r.values(what+".query", &m.Query, strings.Clone, match.CheckQuery)
	f["cookies"] = r.values(what+".cookies", &m.Cookies, strings.Clone, match.CheckCookie)
	f["plans"] = r.planNames(what+".plans", &m.Plans)
	delete(f, "not")
	delete(f, "descriptors")
	return r.factFields(what, m, f)
}

// checkMethod reports whether a request may have this method.
func checkMethod(text string) error {
	if !message.IsToken([]byte(text)) || strings.ToUpper(text) != text {
		return fmt.Errorf("%q is not a method: want a name in capitals, such as POST", text)
	}
	return nil
}

// factFields are the fields of modules' facts.
func (r *reader) factFields(what string, m *match.Config, to fields) fields {
	for _, f := range Facts(r.modules) {
		if f.Match == "" {
			continue
		}
		to[f.Match] = r.texts(what+"."+f.Match, func(n ast.Node, text string) {
			if m.Facts == nil {
				m.Facts = make(map[string]match.Values)
			}
			values := match.Values{Texts: m.Facts[f.Match].Texts, Numbers: f.Numbers}
			r.factValue(n, what+"."+f.Match, f, "", text, &values.Texts)
			m.Facts[f.Match] = values
		})
	}
	return to
}

// values reads what values have to be, by name, in the form that names have.
func (r *reader) values(what string, to *map[string]match.Value, form func(string) string,
	check func(name string, v match.Value) error) func(ast.Node) {
	return func(n ast.Node) {
		values, _ := r.entries(n, what)
		for _, at := range values {
			name := form(scalar(at.Key))
			before := len(r.errs)
			v := r.value(what+": "+scalar(at.Key), at.Value)
			if _, twice := (*to)[name]; twice {
				r.fail(at.Key, "%s: %s is there twice: remove one", what, name)
			} else if len(r.errs) > before {
				continue
			} else if err := check(name, v); err != nil {
				r.fail(at.Value, "%s: %v", what, err)
			} else {
				if *to == nil {
					*to = make(map[string]match.Value)
				}
				(*to)[name] = v
			}
		}
	}
}

// value reads what a value has to be: a text, or one of the terms.
func (r *reader) value(what string, n ast.Node) (v match.Value) {
	if _, is := n.(ast.MapNode); !is {
		r.text(what, func(_ ast.Node, text string) { v.Text = text })(n)
		return v
	}
	terms := make(fields)
	for name, of := range match.Terms {
		to := of(&v)
		terms[name] = func(n ast.Node) {
			add := func(_ ast.Node, text string) { *to = append(*to, text) }
			if _, several := n.(*ast.SequenceNode); several {
				*to = []string{}
				r.texts(what+"."+name, add)(n)
				return
			}
			r.text(what+"."+name, add)(n)
		}
	}
	before := len(r.errs)
	if seen := r.mapping(n, what, terms); len(r.errs) == before && len(seen) != 1 {
		r.fail(n, "%s: want a text, or one of {one_of: […]}, {contains: TEXT}, {prefix: TEXT} and {suffix: TEXT}", what)
	}
	return v
}

// key reads one part of a key or a list of them.
func (r *reader) key(to *[]string) func(ast.Node) {
	one := func(n ast.Node, text string) {
		part, err := key.Parse(text, Facts(r.modules)...)
		if err != nil {
			r.fail(n, "key: %v", err)
			return
		}
		if slices.Contains(*to, text) {
			r.fail(n, "key: %s is there twice: remove one", text)
			return
		}
		if f := part.Fact(); f != nil {
			r.asked = append(r.asked, asked{n, "key", f.Name, part.Argument()})
		}
		*to = append(*to, text)
	}
	return func(n ast.Node) {
		if s, ok := n.(*ast.SequenceNode); ok {
			if len(s.Values) == 0 {
				r.fail(n, "key: an empty list counts no source: want %s",
					key.FormsWith(Facts(r.modules)))
			}
			r.texts("key", one)(n)
			return
		}
		r.text("key", one)(n)
	}
}

func (r *reader) count(n ast.Node, c *rules.Count) {
	r.into(n, "count", c)
	if c.Refused && len(c.Statuses) > 0 {
		r.fail(n,
			"count: statuses and refused together: a refused request has no status of the origin; keep one")
	}
}

// maxReads is how many numbers of an answer are added up.
const maxReads = 4

// cost reads how much of a limit a request uses: a number, or what it is of.
func (r *reader) cost(n ast.Node, c *rules.Cost) {
	if _, mapping := n.(ast.MapNode); !mapping {
		integer(r, "cost", 1, algorithm.MaxCost, &c.Units)(n)
		return
	}
	f := r.settings("cost.", c)
	f["json"] = func(n ast.Node) {
		read := r.text("cost.json", func(n ast.Node, text string) {
			if _, err := answercost.ParsePath(text); err != nil {
				r.fail(n, "cost.json: %q: %v", text, err)
			} else if c.JSON = append(c.JSON, text); len(c.JSON) > maxReads {
				r.fail(n, "cost.json: more than %d paths: leave out some", maxReads)
			}
		})
		if list, several := n.(*ast.SequenceNode); !several {
			read(n)
		} else if r.list(n, "cost.json", read); len(list.Values) == 0 {
			r.fail(n, "cost.json: an empty list: name a path, such as usage.total_tokens")
		}
	}
	seen := r.mapping(n, "cost", f)
	if seen == nil {
		return
	}
	of := 0
	for _, name := range []string{"bytes", "header", "json"} {
		if seen[name] != nil {
			of++
		}
	}
	switch {
	case of != 1:
		r.fail(n,
			"cost: want a number, or one of {bytes: 10KiB}, {header: NAME} and {json: usage.total_tokens}")
	case seen["json"] == nil && (seen["sse"] != nil || seen["estimate"] != nil):
		r.fail(n, "cost: sse and estimate are about json: remove them, or say cost.json")
	case seen["json"] != nil && seen["sse"] == nil:
		c.SSE = true
	}
}

// checkCostHeader reports whether an answer may say its cost in a header of this name.
func checkCostHeader(name string) error {
	if !message.IsToken([]byte(name)) || message.KindOf([]byte(name)) != message.Other {
		return fmt.Errorf("%q cannot say what a request costs: want a header of the origin's own, such as X-Request-Cost, which clients do not get to see", name)
	}
	return nil
}
