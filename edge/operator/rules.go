package operator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sluice/edge/changes"
	"sluice/edge/control"
	"sluice/edge/events"

	"github.com/goccy/go-yaml"
)

// An edited rule is what became of an edit, beside the rule itself.
type edited struct {
	Deleted   bool
	Edges     *control.Spread
	Overtaken []struct{ Field string } // what was set and does not stand; the warnings say so
	Warnings  []string
}

// differing says which fields of a rule differ, in their order.
func differing(before, after any) []string {
	was, _ := json.Marshal(before) // both were read from JSON
	is, _ := json.Marshal(after)
	return changed(changes.Fields(string(was), string(is)))
}

// changed says of fields what they were and what they are.
func changed(fields []events.Field) (list []string) {
	for _, f := range fields {
		list = append(list, fmt.Sprintf("%s %s → %s", f.Field, cmp.Or(f.From, "default"),
			cmp.Or(f.To, "default")))
	}
	return list
}

// CheckFields makes a merge patch (RFC 7396) of what an operator writes: limit=300,
// match.path=/login, window=null. A value is JSON where it can be, a list or fields as the
// configuration writes them (match.methods=[GET, POST]), and else a text.
func CheckFields(list []string) (patch map[string]any, err error) {
	patch = make(map[string]any)
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" || value == "" || strings.Contains("."+name+".", "..") {
			return nil,
				fmt.Errorf("%q is no FIELD=VALUE: want such as limit=300, match.path=/login, or window=null for the default", text)
		}
		var v any = value
		if json.Valid([]byte(value)) {
			v = json.RawMessage(value)
		} else if strings.ContainsRune("[{", rune(value[0])) {
			if err := yaml.Unmarshal([]byte(value), &v); err != nil {
				return nil,
					fmt.Errorf("%q is no list and no fields: want such as 'match.methods=[GET, POST]'", text)
			}
		}
		within, path := patch, strings.Split(name, ".")
		for _, outer := range path[:len(path)-1] {
			inner, object := within[outer].(map[string]any)
			if within[outer] != nil && !object {
				return nil, fmt.Errorf("%q: %s is there with another value", text, outer)
			}
			if !object {
				inner = make(map[string]any)
				within[outer] = inner
			}
			within = inner
		}
		last := path[len(path)-1]
		if _, twice := within[last]; twice {
			return nil, fmt.Errorf("%q: %s is there twice", text, name)
		}
		within[last] = v
	}
	return patch, nil
}

// setTries is how often a change is made anew, over what somebody else has changed of other fields.
const setTries = 5

// SetRule changes some fields of a rule, unless somebody else has changed one of them since it was
// looked at.
func (c *Client) SetRule(name string, patch map[string]any) error {
	var before map[string]json.RawMessage
	for tries := 1; ; tries++ {
		var old map[string]json.RawMessage
		if err := c.Get("/v1/rules/"+url.PathEscape(name), &old); err != nil {
			return NoRule(name, err)
		}
		if before != nil {
			if moved := differing(named(before, patch), named(old, patch)); len(moved) > 0 ||
				tries > setTries {
				return fmt.Errorf("somebody else has changed rule %s meanwhile, and nothing is changed by this: %s%s; look at it with sluice rules history %s, and say it again",
					name, strings.Join(moved, ", "), c.whose(name), name)
			}
		}
		err := c.editOf(old, name, http.MethodPatch, "", patch, "")
		if !IsRefusal(err, http.StatusPreconditionFailed) {
			return NoRule(name, err)
		}
		before = old
	}
}

// named is those fields of a rule that a patch names.
func named(rule map[string]json.RawMessage, patch map[string]any) map[string]json.RawMessage {
	some := make(map[string]json.RawMessage)
	for name, v := range patch {
		its := rule[name]
		if within, object := v.(map[string]any); object {
			var inner map[string]json.RawMessage
			_ = json.Unmarshal(its, &inner) // what is none has none of the fields
			its, _ = json.Marshal(named(inner, within))
		}
		if its != nil {
			some[name] = its
		}
	}
	return some
}

// whose says who made what is in force of a rule, as far as the edge tells.
func (c *Client) whose(rule string) string {
	var past []changes.Past
	if c.Get(historyPath(rule), &past) == nil {
		for _, v := range past {
			if v.InForce && v.Version > 0 {
				return fmt.Sprintf(", by %s at %s", cmp.Or(v.Who, v.From), v.Edge)
			}
		}
	}
	return ""
}

// Rollback takes a rule back to a version of its history, or, to "", to the one before that in
// force.
func (c *Client) Rollback(name, to string) error {
	var past []changes.Past
	if err := c.Get(historyPath(name), &past); err != nil {
		return NoRule(name, err)
	}
	if to == "" {
		var err error
		if to, err = before(past); err != nil {
			return fmt.Errorf("rule %s: %w", name, err)
		}
	}
	wanted, err := strconv.ParseUint(to, 10, 64)
	if err != nil {
		return fmt.Errorf("version %q: want the number of one (sluice rules history %s lists them)",
			to, name)
	}
	if wanted != 0 &&
		!slices.ContainsFunc(past, func(v changes.Past) bool { return v.Version == wanted }) {
		return fmt.Errorf("rule %s: no version %d is kept (sluice rules history %[1]s lists them)",
			name, wanted)
	}
	what := fmt.Sprintf("back at version %d", wanted)
	if wanted == 0 {
		what = "back at what the file says"
	}
	return c.edit(name, http.MethodPost, "/rollback", map[string]uint64{"to": wanted}, what)
}

// before is the version before the one in force.
func before(past []changes.Past) (string, error) {
	seen := false
	for _, v := range past {
		switch {
		case v.InForce:
			seen = true
		case seen && v.Refused == "":
			return strconv.FormatUint(v.Version, 10), nil
		}
	}
	return "", errors.New("there is no earlier version to go back to")
}

// edit has a rule changed, unless it is another than when it was looked at, and tells what is
// different then.
func (c *Client) edit(name, method, route string, body any, what string) error {
	var old map[string]json.RawMessage
	// What was removed can be rolled back
	if err := c.Get("/v1/rules/"+url.PathEscape(name), &old); err != nil &&
		!IsRefusal(err, http.StatusNotFound) {
		return NoRule(name, err)
	}
	err := c.editOf(old, name, method, route, body, what)
	if IsRefusal(err, http.StatusPreconditionFailed) {
		return fmt.Errorf("somebody else has changed rule %s meanwhile%s: look at it with sluice rules history %s, and say it again", name, c.whose(name), name)
	}
	return NoRule(name, err)
}

// editOf is edit of a rule that was just looked at; nil: there is none.
func (c *Client) editOf(old map[string]json.RawMessage, name, method, route string, body any,
	what string) error {
	if old != nil {
		c.match, c.tag = c.tag, ""
		defer func() { c.match = "" }()
	}
	return Show(c, method, "/v1/rules/"+url.PathEscape(name)+route, body,
		func(answer json.RawMessage) error {
			var done edited
			if err := c.decode(answer, &done); err != nil {
				return err
			}
			var now map[string]json.RawMessage
			if err := c.decode(answer, &now); err != nil {
				return err
			}
			for _, f := range []string{"deleted", "version", "origin", "edges", "overtaken",
				"warnings"} {
				delete(now, f)
			}
			lines := []string{"rule " + name + " is " + cmp.Or(what, "changed")}
			if len(done.Overtaken) > 0 {
				lines[0] += ", but not all as you said"
			}
			of, others := differing(old, now), []string(nil)
			// What it does not name others have changed since
			if patch, is := body.(map[string]any); is {
				of = differing(named(old, patch), named(now, patch))
				others = slices.DeleteFunc(differing(old, now),
					func(f string) bool { return slices.Contains(of, f) })
			}
			switch {
			case done.Deleted:
				lines[0] += ": there is none of that name"
			case old == nil && what == "added":
			case old == nil:
				lines[0] += ": there is one of that name again"
			case len(of) == 0 && len(done.Overtaken) == 0:
				lines[0] = "rule " + name + " is so already"
			default:
				for _, f := range of {
					lines = append(lines, "  "+f)
				}
			}
			if done.Edges == nil {
				lines = append(lines, "in force on this edge")
			} else {
				lines = append(lines, "in force "+(*Spread)(done.Edges).String())
			}
			if len(others) > 0 {
				lines = append(lines, "somebody else has changed meanwhile: "+strings.Join(others,
					", "))
			}
			for _, w := range done.Warnings {
				lines = append(lines, "but: "+w)
			}
			return c.Lines(lines)
		})
}

// IsRefusal reports whether an edge has refused with a status.
func IsRefusal(err error, status int) bool {
	var r *refused
	return errors.As(err, &r) && r.status == status
}

func historyPath(rule string) string { return "/v1/rules/" + url.PathEscape(rule) + "/history" }

// History prints what was said of a rule, the latest first, by whom and at which edge; from which
// address JSON tells.
func (c *Client) History(name string) error {
	return NoRule(name, Show(c, http.MethodGet, historyPath(name), nil,
		func(list []changes.Past) error {
			t := Table{Columns: []Column{{"VERSION", Right}, {"WHEN", Whole}, {"STATE", Whole},
				{"WHO", Cut}, {"AT EDGE", Cut}, {"WHAT", Text}}}
			for _, v := range list {
				state := ""
				switch {
				case v.InForce:
					state = "in force"
				case v.Refused != "":
					state = "refused"
				}
				at := ""
				if v.At != nil {
					at = Clock(*v.At)
				}
				t.Add(strconv.FormatUint(v.Version, 10), at, state, cmp.Or(v.Who, v.From), v.Edge,
					what(&v, list))
			}
			return t.Write(c.Out)
		}))
}

// what says what a version of the list did.
func what(v *changes.Past, list []changes.Past) string {
	what := strings.Join(differing(v.Old, v.New), ", ")
	switch {
	case v.Refused != "":
		what = v.Refused
	case v.Version == 0:
		return "what the file says"
	case noRuleIn(v.New):
		what = "removed"
	case noRuleIn(v.Old) && v.After != 0 &&
		!slices.ContainsFunc(list, func(o changes.Past) bool { return o.Version == v.After }):
		what = "what it replaced is not kept any more"
	case noRuleIn(v.Old):
		what = "added"
	}
	if v.To != nil {
		return strings.TrimSuffix(fmt.Sprintf("back at %d: %s", *v.To, what), ": ")
	}
	return what
}

// noRuleIn reports whether there was no rule.
func noRuleIn(text json.RawMessage) bool { return text == nil || string(text) == "null" }
