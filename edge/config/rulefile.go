package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/rules"
)

// ErrNoRule says that no rule in force has the name that was given.
var ErrNoRule = errors.New("edge: no such rule")

// ParseRule reads a rule of that name in JSON, with the fields of a configuration file. The name may be left out. The error
// is what ParseConfig would say of it, a line each.
func ParseRule(name string, text []byte) (rules.Config, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil || given == nil {
		return rules.Config{}, errors.New("rule: the body is not a JSON object, such as {\"limit\": 5}")
	}
	if given["name"] == nil {
		given["name"], _ = json.Marshal(name)
		text, _ = json.Marshal(given)
	}
	r, c := &reader{file: "rule"}, Default()
	if root := r.parse(text); root != nil && len(r.errs) == 0 {
		r.rule(root, c, make(map[string]ast.Node))
	}
	switch {
	case len(r.errs) > 0:
		return rules.Config{}, errors.Join(r.errs...)
	case c.Rules[0].Name != name:
		return rules.Config{}, fmt.Errorf("rule: its name is %s in the path and %s in the body: make them agree", name, c.Rules[0].Name)
	}
	return c.Rules[0], nil
}

// WithRule returns a list of rules with one put in the place of the rule of that name, or behind all; with nil it takes the rule of
// that name out, and the error is ErrNoRule if there is none.
func WithRule(list []rules.Config, name string, rule *rules.Config) ([]rules.Config, error) {
	list = slices.Clone(list)
	i := slices.IndexFunc(list, func(r rules.Config) bool { return r.Name == name })
	switch {
	case rule == nil && i < 0:
		return nil, fmt.Errorf("%w: %s", ErrNoRule, name)
	case rule == nil:
		return slices.Delete(list, i, i+1), nil
	case i < 0:
		return append(list, *rule), nil
	}
	list[i] = *rule
	return list, nil
}

// EditRules is WithRule on the text of a configuration file. Everything else in it stays as it is, comments too; only where
// rules are written in one line are all of them written anew. What it returns has been read again and compared: a file that
// it cannot edit without changing something else is an error.
func EditRules(file string, text []byte, name string, rule *rules.Config) ([]byte, error) {
	before, err := Parse(file, text)
	if err != nil {
		return nil, err
	}
	list, err := WithRule(before.Rules, name, rule)
	if err != nil {
		return nil, err
	}
	edited := editRules(file, text, before.Rules, list, name)
	after, err := Parse(file, edited)
	if err != nil || !sameButRules(before, after) || !sameRules(list, after.Rules) {
		return nil, fmt.Errorf("%s: the rule cannot be changed without changing something else in the file: edit it by hand", file)
	}
	return edited, nil
}

func sameButRules(a, b *Config) bool {
	x, y := *a, *b
	x.Rules, y.Rules = nil, nil
	return reflect.DeepEqual(x, y)
}

func sameRules(a, b []rules.Config) bool {
	return slices.EqualFunc(a, b, func(x, y rules.Config) bool { return ruleYAML(x) == ruleYAML(y) })
}

func editRules(file string, text []byte, before, now []rules.Config, name string) []byte {
	all := "rules:\n"
	for _, r := range now {
		all += indent(ruleYAML(r), "  ")
	}
	if len(now) == 0 {
		all = "rules: []\n"
	}
	r := &reader{file: file}
	root := r.parse(text)
	lines := strings.SplitAfter(string(text), "\n")
	if n := len(lines); lines[n-1] == "" {
		lines = lines[:n-1]
	} else {
		lines[n-1] += "\n"
	}
	var keys []*ast.MappingValueNode
	switch m := root.(type) {
	case *ast.MappingNode:
		keys = m.Values
	case *ast.MappingValueNode:
		keys = []*ast.MappingValueNode{m}
	}
	at := slices.IndexFunc(keys, func(v *ast.MappingValueNode) bool { return scalar(v.Key) == "rules" })
	if at < 0 {
		return []byte(strings.Join(lines, "") + all)
	}
	first, _ := place(keys[at].Key)
	first--
	last := len(lines)
	if at+1 < len(keys) {
		last, _ = place(keys[at+1].Key)
		last--
	}
	last = trimEnd(lines, first+1, last, 0)
	list, block := keys[at].Value.(*ast.SequenceNode)
	if !block || list.IsFlowStyle || len(now) == 0 || len(list.Entries) != len(before) {
		return []byte(strings.Join(lines[:first], "") + all + strings.Join(lines[last:], ""))
	}

	dash := list.Start.Position.Column - 1
	pad := strings.Repeat(" ", dash)
	i := slices.IndexFunc(before, func(r rules.Config) bool { return r.Name == name })
	if i < 0 {
		return []byte(strings.Join(lines[:last], "") + indent(ruleYAML(now[len(now)-1]), pad) + strings.Join(lines[last:], ""))
	}
	start, end := list.Entries[i].Start.Position.Line-1, last
	if i+1 < len(before) {
		end = trimEnd(lines, start+1, list.Entries[i+1].Start.Position.Line-1, dash)
	}
	put := ""
	if len(now) == len(before) {
		put = indent(ruleYAML(now[i]), pad)
	}
	return []byte(strings.Join(lines[:start], "") + put + strings.Join(lines[end:], ""))
}

// trimEnd takes lines from the end that are empty, or comments no deeper than dash: they belong to what follows.
func trimEnd(lines []string, first, end, dash int) int {
	for end > first {
		text := strings.TrimLeft(lines[end-1], " \t")
		if t := strings.TrimSpace(text); t != "" && (t[0] != '#' || len(lines[end-1])-len(text) > dash) {
			break
		}
		end--
	}
	return end
}

func indent(text, pad string) string {
	return pad + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+pad) + "\n"
}

// ruleYAML writes a rule as an entry of a list, without what is the default.
func ruleYAML(r rules.Config) string {
	var b strings.Builder
	standard := rules.Default(r.Name, r.Limit)
	field := func(name, value string) { fmt.Fprintf(&b, "  %s: %s\n", name, value) }
	field("name", yamlText(r.Name))
	var match []string
	if len(r.Match.Hosts) > 0 {
		match = append(match, "hosts: "+yamlList(r.Match.Hosts))
	}
	if r.Match.Path != "" {
		match = append(match, "path: "+yamlText(r.Match.Path))
	}
	if len(r.Match.Methods) > 0 {
		match = append(match, "methods: "+yamlList(r.Match.Methods))
	}
	if match != nil {
		field("match", "{"+strings.Join(match, ", ")+"}")
	}
	if !slices.Equal(r.Key, standard.Key) {
		field("key", yamlList(r.Key))
	}
	field("limit", strconv.FormatUint(uint64(r.Limit), 10))
	if r.Window != standard.Window {
		field("window", r.Window.String())
	}
	if r.SubWindows != standard.SubWindows {
		field("sub_windows", strconv.Itoa(r.SubWindows))
	}
	if r.Estimate != nil {
		field("estimate", r.Estimate.String())
	}
	if r.MitigationTimeout != standard.MitigationTimeout {
		field("mitigation_timeout", r.MitigationTimeout.String())
	}
	if r.Mode != standard.Mode {
		field("mode", string(r.Mode))
	}
	if r.FirstSight != standard.FirstSight {
		field("first_sight", string(r.FirstSight))
	}
	if r.OnStoreFailure != standard.OnStoreFailure {
		field("on_store_failure", string(r.OnStoreFailure))
	}
	switch {
	case len(r.Count.Statuses) > 0:
		list := make([]string, len(r.Count.Statuses))
		for i, status := range r.Count.Statuses {
			list[i] = strconv.Itoa(status)
		}
		field("count", "{statuses: ["+strings.Join(list, ", ")+"]}")
	case r.Count.Refused:
		field("count", "{refused: true}")
	}
	if r.Response != standard.Response {
		field("response", fmt.Sprintf("{status: %d, content_type: %s, body: %s}", r.Response.Status, yamlText(r.Response.ContentType), yamlText(r.Response.Body)))
	}
	return "-" + strings.TrimPrefix(b.String(), " ")
}

func yamlList(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = yamlText(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// yamlPlain is what needs no quotes. The words that YAML takes for something else are shorter, or are no values here.
var yamlPlain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// yamlText quotes as JSON does, which YAML understands.
func yamlText(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
	default:
		if yamlPlain.MatchString(s) {
			return s
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always can be
	return strings.TrimSuffix(b.String(), "\n")
}
