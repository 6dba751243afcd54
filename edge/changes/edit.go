package changes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/edge/config"
	"sluice/edge/rules"
)

// Edit is an operator's edit of a rule.
type Edit struct {
	Name    string
	Action  Action
	Body    []byte // of a Put the whole rule, of a Patch what changes of it (RFC 7396)
	Replace bool   // a Put may drop fields that were set
	To      uint64 // of a Rollback: the version
	IfMatch string // the header: entity tags, or *; "": whatever is in force
	Who     string
	From    string
}

// Action is what an Edit does.
type Action uint8

const (
	Put Action = iota
	Patch
	Delete
	Rollback
)

// Change makes a change of an operator's edit, in the form that is sent. There is none if the rule
// is so already, by an operator's word. Errors are config.ErrNoRule, ErrMatch, ErrDrops, and what
// is wrong with the rule.
func (o *Overlay) Change(e Edit) (c Change, needed bool, err error) {
	old := o.Rule(e.Name)
	if e.IfMatch != "" && !o.matches(e.Name, e.IfMatch) {
		return c, false, fmt.Errorf("%w: it is %s now: get it again, and change that", ErrMatch,
			orNone(o.ETag(e.Name)))
	}
	if old == nil && (e.Action == Patch || e.Action == Delete) {
		return c, false, fmt.Errorf("%w: %s", config.ErrNoRule, e.Name)
	}
	newer := o.newer(e.Name)
	if newer != nil && (e.Action == Patch || e.Action == Put && !e.Replace) {
		return c, false,
			fmt.Errorf("%w: version %d of the rule says what this edge does not understand (%v): change it at an edge that does, roll it back, or replace it with PUT and ?replace=true",
				ErrDrops, newer.Change.Version, newer.Err)
	}
	c = Change{Name: e.Name, Does: Set, After: o.inForce[e.Name].Version,
		Seen: heads(o.changes[e.Name]), Who: e.Who, From: e.From}
	switch e.Action {
	case Put:
		c.Rule, err = o.put(e, old)
	case Patch:
		c.Rule, c.Sets, err = patched(*old, e.Body)
	case Delete:
		c.Does = Remove
	case Rollback:
		c.To = &e.To
		err = o.rollback(&c, e.To)
	}
	if err != nil || c.Does == Restore && c.After == 0 && newer == nil {
		return c, false, err
	}
	if c.Does == Set {
		rule, err := c.read(o.on)
		if err != nil {
			return c, false, err
		}
		c.Rule = json.RawMessage(config.RuleJSON(rule))
		if old != nil && c.Sets == nil && !e.Replace {
			c.Sets = differing(config.Fields(*old), config.Fields(rule))
		}
		if old != nil && c.After != 0 && newer == nil && config.RuleJSON(*old) == string(c.Rule) {
			return c, false, nil
		}
	}
	return c, true, nil
}

// newer is the latest change of a rule if it cannot be in force on this edge; nil: it is, or there
// is none.
func (o *Overlay) newer(name string) *Refused {
	i := slices.IndexFunc(o.Refused, func(r Refused) bool { return r.Change.Name == name })
	if i < 0 {
		return nil
	}
	return &o.Refused[i]
}

func orNone(tag string) string {
	if tag == "" {
		return "gone"
	}
	return tag
}

func (o *Overlay) matches(name, header string) bool {
	tag := o.ETag(name)
	for _, want := range strings.Split(header, ",") {
		if want = strings.TrimSpace(want); tag != "" && (want == tag || want == "*") {
			return true
		}
	}
	return false
}

func (o *Overlay) put(e Edit, old *rules.Config) (json.RawMessage, error) {
	rule, err := o.on.ParseRule(e.Name, e.Body)
	if err != nil {
		return nil, err
	}
	if old != nil && !e.Replace {
		given, err := object(e.Body)
		if err != nil {
			return nil, err
		}
		if lost := dropped(config.Fields(*old), given, ""); len(lost) > 0 {
			return nil,
				fmt.Errorf("%w: %s: name them as well, or change only what you name with PATCH, or say ?replace=true", ErrDrops, strings.Join(lost, ", "))
		}
	}
	return json.RawMessage(config.RuleJSON(rule)), nil
}

// dropped are the fields that are set and not given.
func dropped(set, given map[string]any, under string) (lost []string) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		inner, object := set[name].(map[string]any)
		its, there := given[name]
		within, _ := its.(map[string]any)
		switch {
		case name == "name" && under == "":
		case object && (!there || within != nil):
			lost = append(lost, dropped(inner, within, under+name+".")...)
		case !there:
			lost = append(lost, under+name)
		}
	}
	return lost
}

// patched merges a patch into a rule, and returns which fields it names: others stay, null stands
// for the default.
func patched(old rules.Config, patch []byte) (rule json.RawMessage, sets []string, err error) {
	change, err := object(patch)
	if err != nil {
		return nil, nil, err
	}
	rule, err = json.Marshal(merge(config.Fields(old), change))
	return rule, paths(change, ""), err
}

// merge is MergePatch of RFC 7396.
func merge(target, patch map[string]any) map[string]any {
	if target == nil {
		target = make(map[string]any)
	}
	for name, v := range patch {
		switch inner, object := v.(map[string]any); {
		case v == nil:
			delete(target, name)
		case object:
			its, _ := target[name].(map[string]any)
			target[name] = merge(its, inner)
		default:
			target[name] = v
		}
	}
	return target
}

// object reads a JSON object, and nothing after it. Numbers stay as they are written.
func object(text []byte) (fields map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil || fields == nil || d.More() {
		return nil, errors.New("rule: the body is not a JSON object, such as {\"limit\": 5}")
	}
	return fields, nil
}

// rollback makes c say what a version said.
func (o *Overlay) rollback(c *Change, to uint64) error {
	if len(o.changes[c.Name]) == 0 && byName(o.file, c.Name) == nil {
		return fmt.Errorf("%w: %s", config.ErrNoRule, c.Name)
	}
	if to == 0 {
		c.Does = Restore
		return nil
	}
	// Of two of one version, what both make
	i := slices.IndexFunc(o.changes[c.Name], func(c Change) bool { return c.Version == to })
	if i < 0 {
		return fmt.Errorf("%w: %s has no version %d that is kept: see its history",
			config.ErrNoRule, c.Name, to)
	}
	if c.Does = o.changes[c.Name][i].Does; c.Does == Set {
		c.Rule = o.said(c.Name, i)
	}
	return o.changes[c.Name][i].wrong
}
