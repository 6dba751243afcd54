package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
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

// Fields is a rule in JSON, as ParseRule reads it: its name, and what is not the default.
func Fields(r rules.Config) map[string]any {
	all, standard := plain(r), plain(rules.Default(r.Name, 0))
	set := differing(all, standard)
	set["name"] = r.Name
	if r.Estimate != nil {
		set["estimate"] = r.Estimate.String()
	}
	return set
}

// RuleJSON is Fields as text, the same for the same rule.
func RuleJSON(r rules.Config) string { return text(Fields(r)) }

// Hash stands for rules, in whatever order: the same for the same, and a number that a float64 holds.
func Hash(list []rules.Config) uint64 {
	lines := make([]string, len(list))
	for i, r := range list {
		lines[i] = RuleJSON(r)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return binary.BigEndian.Uint64(sum[:8]) >> 16
}

// plain is a value as JSON shows it.
func plain(v any) (fields map[string]any) {
	d := json.NewDecoder(strings.NewReader(text(v)))
	d.UseNumber()
	_ = d.Decode(&fields) // it is what text wrote
	return fields
}

func text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // a rule always can be
	return strings.TrimSuffix(b.String(), "\n")
}

// differing are the fields that differ from the standard, and of objects those within.
func differing(all, standard map[string]any) map[string]any {
	set := make(map[string]any)
	for name, v := range all {
		if inner, object := v.(map[string]any); object {
			its, _ := standard[name].(map[string]any)
			if d := differing(inner, its); len(d) > 0 {
				set[name] = d
			}
		} else if !reflect.DeepEqual(v, standard[name]) {
			set[name] = v
		}
	}
	return set
}
