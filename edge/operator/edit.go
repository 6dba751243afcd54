package operator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	"github.com/goccy/go-yaml"

	"sluice/edge/config"
	"sluice/edge/rules"
)

// rulePath is where the API has a rule.
func rulePath(name string) string { return "/v1/rules/" + url.PathEscape(name) }

// AddRules adds rules, one after the other, none of which may be there.
func (c *Client) AddRules(list []rules.Config) error {
	for _, r := range list {
		var there json.RawMessage
		switch err := c.Get(rulePath(r.Name), &there); {
		case err == nil:
			return fmt.Errorf("rule %s is there already: change it with sluice rules edit %[1]s or sluice rules set %[1]s", r.Name)
		case !IsRefusal(err, http.StatusNotFound):
			return err
		}
	}
	if !c.JSON || len(list) == 1 {
		for _, r := range list {
			if err := c.addRule(r); err != nil {
				return err
			}
		}
		return nil
	}
	var done []json.RawMessage // one list, which tells what was added though another was not
	var failed error
	one := *c
	for _, r := range list {
		var answer bytes.Buffer
		one.Out = &answer
		if failed = one.addRule(r); failed != nil {
			break
		}
		done = append(done, answer.Bytes())
	}
	text, err := json.MarshalIndent(done, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(failed, c.raw(text))
}

func (c *Client) addRule(r rules.Config) error {
	return c.edit(r.Name, http.MethodPut, "", json.RawMessage(config.RuleJSON(r)), "added")
}

// Rule prints a rule as it is in force.
func (c *Client) Rule(name string) error {
	return NoRule(name, Show(c, http.MethodGet, rulePath(name), nil,
		func(answer json.RawMessage) error { return c.raw(answer) }))
}

// EditRule changes of a rule what differs in what is written, unless somebody else has changed the
// rule since it was looked at. Write is given what the rule says in YAML, and returns what it is to
// say.
func (c *Client) EditRule(name string, write func(now string) (rules.Config, error)) error {
	var old map[string]json.RawMessage
	if err := c.Get(rulePath(name), &old); err != nil {
		return NoRule(name, err)
	}
	tag := c.tag
	text, err := json.Marshal(old)
	if err != nil {
		return err
	}
	was, err := (&config.Config{Modules: c.Modules}).ParseRule(name, text)
	if err != nil {
		return fmt.Errorf("rule %s is not understood, so it cannot be edited here: %w; is the edge of another version?", name, err)
	}
	shown, err := ruleYAML(was)
	if err != nil {
		return err
	}
	is, err := write(shown)
	switch {
	case err != nil:
		return err
	case is.Name != name:
		return fmt.Errorf("rule %s is to be changed, and what was written is about %s: add that with sluice rules add", name, is.Name)
	}
	c.tag = tag
	err = c.editOf(old, name, http.MethodPatch, "", mergePatch(config.Fields(was),
		config.Fields(is)), "")
	if IsRefusal(err, http.StatusPreconditionFailed) {
		return fmt.Errorf("somebody else has changed rule %s meanwhile%s: look at it with sluice rules history %s, and edit it again", name, c.whose(name), name)
	}
	return NoRule(name, err)
}

// mergePatch is what makes one rule of another (RFC 7396).
func mergePatch(was, is map[string]any) map[string]any {
	patch := make(map[string]any)
	for name, v := range is {
		before, a := was[name].(map[string]any)
		after, b := v.(map[string]any)
		switch {
		case a && b:
			if inner := mergePatch(before, after); len(inner) > 0 {
				patch[name] = inner
			}
		case !reflect.DeepEqual(was[name], v):
			patch[name] = v
		}
	}
	for name := range was {
		if _, stays := is[name]; !stays {
			patch[name] = nil
		}
	}
	return patch
}

// RemoveRule removes a rule, whatever the file says.
func (c *Client) RemoveRule(name string) error {
	var there json.RawMessage
	if err := c.Get(rulePath(name), &there); err != nil {
		return NoRule(name, err)
	}
	return c.edit(name, http.MethodDelete, "", nil, "removed")
}

// ruleYAML is a rule as a configuration has it: what is not the default, the name first.
func ruleYAML(rule rules.Config) (string, error) {
	fields := config.Fields(rule)
	var list yaml.MapSlice
	add := func(name string) {
		if v, set := fields[name]; set {
			list = append(list, yaml.MapItem{Key: name, Value: numbers(v)})
			delete(fields, name)
		}
	}
	for _, name := range []string{"name", "match", "key", "limit", "window"} {
		add(name)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		add(name)
	}
	out, err := yaml.Marshal(list)
	return string(out), err
}

// numbers is a value of JSON with numbers that YAML writes as such.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
	case map[string]any:
		for name := range v {
			v[name] = numbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	}
	return v
}
