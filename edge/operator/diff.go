package operator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/edge/changes"
	"sluice/edge/config"
	"sluice/edge/rules"
)

// A Difference is a setting, or a field of a rule, of which a file says something else than what
// runs.
type Difference struct {
	// As limits.connections, rules.login.limit, or rules.login for all of one
	Field string `json:"field"`
	Runs  string `json:"runs"` // "": nothing, or the default
	File  string `json:"file"`
	// Waits is why a reload would not change it: "restart", or "operators", whose change of the
	// rule lies over the file. "": it would.
	Waits string `json:"waits,omitempty"`
	// Note is what else becomes of the rule by it.
	Note string `json:"note,omitempty"`
}

func (d Difference) String() string {
	what := fmt.Sprintf("%s %s → %s", d.Field, cmp.Or(d.Runs, "default"), cmp.Or(d.File, "default"))
	if strings.Count(d.Field, ".") == 1 && strings.HasPrefix(d.Field, "rules.") {
		what = fmt.Sprintf("%s %s → %s", d.Field, cmp.Or(d.Runs, "none"), cmp.Or(d.File, "none"))
	}
	switch name, _, _ := strings.Cut(strings.TrimPrefix(d.Field, "rules."), "."); d.Waits {
	case "restart":
		what += ", at the next start"
	case "operators":
		what += ", once the change by operators is taken back: sluice rules rollback " + name + " 0"
	}
	if d.Note != "" {
		what += ": " + d.Note
	}
	return what
}

// Differences are those between what runs and what a file says. Flags that the edge was started
// with are among them.
func (c *Client) Differences(file *config.Config) ([]Difference, error) {
	var runs map[string]json.RawMessage
	if err := c.Get("/v1/config", &runs); err != nil {
		return nil, err
	}
	text, err := json.Marshal(config.Shown(file))
	if err != nil {
		return nil, err
	}
	var says map[string]json.RawMessage
	if err := json.Unmarshal(text, &says); err != nil {
		return nil, err
	}
	var limits map[string]json.RawMessage
	if json.Unmarshal(runs["limits"], &limits) == nil && limits["connections_configured"] != nil {
		// And not what the system has left of it
		limits["connections"] = limits["connections_configured"]
		delete(limits, "connections_configured")
		runs["limits"], _ = json.Marshal(limits)
	}
	list := appendDifferences([]Difference{}, "", runs, says, file)
	var named []struct {
		Name   string
		Origin changes.Origin
	}
	var whole []json.RawMessage
	if err := c.decode(runs["rules"], &named); err != nil {
		return nil, err
	}
	if err := c.decode(runs["rules"], &whole); err != nil {
		return nil, err
	}
	open := make(map[string]bool) // rules of the file that leave the estimate to the edge
	for _, r := range file.Rules {
		open[r.Name] = r.Estimate == nil
	}
	now, by, running := make(map[string]string), make(map[string]string),
		make(map[string]rules.Config)
	for i, r := range named {
		var fields map[string]json.RawMessage
		if err := c.decode(whole[i], &fields); err != nil {
			return nil, err
		}
		delete(fields, "origin")
		delete(fields, "version")
		text, _ := json.Marshal(fields)
		rule, err := (&config.Config{Modules: c.Modules}).ParseRule(r.Name, text)
		if err != nil {
			return nil,
				fmt.Errorf("rule %s of %s is not understood: %w; is the edge of another version?",
					r.Name, c.Address, err)
		}
		if open[r.Name] {
			rule.Estimate = nil
		}
		now[r.Name], running[r.Name] = config.RuleJSON(rule), rule
		switch r.Origin {
		case changes.Flags: // the rule of an edge whose file gives none
			delete(now, r.Name)
		case changes.File:
		default:
			by[r.Name] = "operators"
		}
	}
	is, afresh := make(map[string]string), make(map[string]string)
	for i, r := range file.Rules {
		is[r.Name] = config.RuleJSON(r)
		if old, there := running[r.Name]; there {
			afresh[r.Name] = rules.Afresh(&old, &file.Rules[i])
		}
	}
	names := slices.Concat(slices.Collect(maps.Keys(now)), slices.Collect(maps.Keys(is)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		field := "rules." + name
		if now[name] == "" || is[name] == "" {
			list = append(list, Difference{Field: field, Runs: now[name], File: is[name],
				Waits: by[name]})
			continue
		}
		for _, f := range changes.Fields(now[name], is[name]) {
			d := Difference{Field: field + "." + f.Field, Runs: f.From, File: f.To, Waits: by[name]}
			if f.Field == "limit" || f.Field == "windows" {
				d.Note = afresh[name]
			}
			list = append(list, d)
		}
	}
	return list, nil
}

// appendDifferences adds the settings that differ, of those that the edge has and the file can
// have.
func appendDifferences(list []Difference, within string, runs, says map[string]json.RawMessage,
	file *config.Config) []Difference {
	for _, name := range slices.Sorted(maps.Keys(says)) {
		a, there := runs[name]
		if !there {
			continue // an edge of another version
		}
		b := says[name]
		var inner, its map[string]json.RawMessage
		if json.Unmarshal(a, &inner) == nil && json.Unmarshal(b, &its) == nil && inner != nil &&
			its != nil {
			list = appendDifferences(list, within+name+".", inner, its, file)
			continue
		}
		if was, is := canonical(a), canonical(b); was != is {
			d := Difference{Field: within + name, Runs: was, File: is}
			if !file.Reloads(d.Field) {
				d.Waits = "restart"
			}
			list = append(list, d)
		}
	}
	return list
}

// canonical is a value in one spelling, a text without its quotes.
func canonical(text json.RawMessage) string {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return string(text)
	}
	if s, is := v.(string); is {
		return s
	}
	out, _ := json.Marshal(v) // it was read from JSON
	return string(out)
}
