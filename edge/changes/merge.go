package changes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/edge/rules"
)

// Operators at two edges change one rule at the same moment: neither change was made over the
// other. Each is whole, and lists the fields that were meant (Sets) and the changes that it was
// made over (Seen). So what both make together follows from the list alone, on every edge the same:
//
//	limit=20      at edge1, over version 7  ─┐
//	                                         ├─ both fields; of a field that both set, the newer change's value
//	window=2m     at edge2, over version 7  ─┘
//
// A change that means the whole rule, a removal among them, stands for all that is older. Where the
// fields do not fit together, the newest change stands with each of the others, the newer first,
// that fits with those that stand already.

// whole reports whether a change means all of the rule.
func (c *Change) whole() bool { return c.Does != Set || len(c.Sets) == 0 }

// id identifies a change.
func (c *Change) id() string { return fmt.Sprintf("%d-%016x", c.Version, c.Maker) }

// seen are the changes in a list, the newest first, over which its ith was made.
func seen(list []Change, i int) map[int]bool {
	before := make(map[int]bool)
	for from := []int{i}; len(from) > 0; from = from[1:] {
		for j := from[0] + 1; j < len(list); j++ {
			if !before[j] && slices.Contains(list[from[0]].Seen, list[j].id()) {
				before[j] = true
				from = append(from, j)
			}
		}
	}
	return before
}

// heads are the changes in a list, the newest first, that say over which a new one is made: all
// others are behind one of them.
func heads(list []Change) (ids []string) {
	behind := make(map[int]bool)
	for i := range list {
		if !behind[i] {
			ids = append(ids, list[i].id())
		}
		if list[i].whole() {
			break
		}
		maps.Copy(behind, seen(list, i))
	}
	return ids
}

// merged is the rule that changes make, the newest first, the newest of which is a Set. It is not
// said that such a rule is possible.
func merged(list []Change) json.RawMessage {
	c := &list[0]
	if c.whole() {
		return c.Rule
	}
	its, _ := object(c.Rule)
	rule, before, oldest, alone := its, seen(list, 0), 0, true
	for i := 1; i < len(list); i++ {
		d := &list[i]
		if !before[i] && !d.whole() {
			oldest, alone = i, false
		}
		if !before[i] && d.whole() && d.Does == Set {
			rule, _ = object(d.Rule)
			oldest, alone = i-1, false
		}
		if d.whole() {
			break
		}
	}
	if alone {
		return c.Rule
	}
	rule = merge(nil, rule) // a copy
	for i := oldest; i >= 0; i-- {
		from := its // what the newest had seen stands as it saw it
		if i > 0 && !before[i] {
			from, _ = object(list[i].Rule)
		}
		for _, path := range list[i].Sets {
			v, there := at(from, path)
			if inner, object := v.(map[string]any); object {
				v = merge(nil, inner) // a copy: others put something into the rule's
			}
			put(rule, path, v, there)
		}
	}
	text, _ := json.Marshal(rule) // it was read from JSON
	return text
}

// fitting leaves out of changes, the newest first, what the newest has not seen and does not fit:
// each with what it was made over is held against those that fit, the newer first. What a change
// that means the whole rule has replaced does not come back where that does not fit.
func fitting(list []Change, fit func([]Change) bool) []Change {
	kept := seen(list, 0)
	kept[0] = true
	some := func(kept map[int]bool) (some []Change) {
		for _, i := range slices.Sorted(maps.Keys(kept)) {
			some = append(some, list[i])
		}
		return some
	}
	for i := 1; i < len(list); i++ {
		if !kept[i] {
			more := seen(list, i)
			more[i] = true
			maps.Copy(more, kept)
			if fit(some(more)) {
				kept = more
			}
		}
		if list[i].whole() {
			break
		}
	}
	return some(kept)
}

// A path is a field of a rule as a JSON Pointer (RFC 6901).
var escape, unescape = strings.NewReplacer("~", "~0", "/", "~1"), strings.NewReplacer("~1", "/",
	"~0", "~")

// paths are the fields that an object names, of objects those within.
func paths(fields map[string]any, under string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		path := under + "/" + escape.Replace(name)
		if inner, object := fields[name].(map[string]any); object {
			list = append(list, paths(inner, path)...)
		} else {
			list = append(list, path)
		}
	}
	return list
}

// differing are the fields in which two rules differ.
func differing(a, b map[string]any) (list []string) {
	for _, path := range slices.Concat(paths(a, ""), paths(b, "")) {
		x, inA := at(a, path)
		y, inB := at(b, path)
		if (inA != inB || !reflect.DeepEqual(x, y)) && !slices.Contains(list, path) {
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return list
}

// Fields are those in which two rules differ, as JSON; none where one of them is "", no rule.
func Fields(old, now string) (list []events.Field) {
	if old == "" || now == "" {
		return nil
	}
	a, _ := object([]byte(old)) // both are rules
	b, _ := object([]byte(now))
	text := func(fields map[string]any, path string) string {
		v, there := at(fields, path)
		if !there {
			return ""
		}
		if word, is := v.(string); is {
			return word
		}
		b, _ := json.Marshal(v) // it was read from JSON
		return string(b)
	}
	for _, path := range differing(a, b) {
		list = append(list, events.Field{Field: dotted(path), From: text(a, path),
			To: text(b, path)})
	}
	return list
}

// at is what an object has at a path.
func at(fields map[string]any, path string) (v any, there bool) {
	name, rest, within := strings.Cut(path[1:], "/")
	v, there = fields[unescape.Replace(name)]
	if !within {
		return v, there
	}
	inner, _ := v.(map[string]any)
	return at(inner, "/"+rest)
}

// put gives an object a value at a path, or none.
func put(fields map[string]any, path string, v any, there bool) {
	name, rest, within := strings.Cut(path[1:], "/")
	name = unescape.Replace(name)
	switch inner, object := fields[name].(map[string]any); {
	case !within && there:
		fields[name] = v
	case !within:
		delete(fields, name)
	case !there && !object: // there is nothing within
	default:
		if !object {
			inner = make(map[string]any)
			fields[name] = inner
		}
		put(inner, "/"+rest, v, there)
		if len(inner) == 0 {
			delete(fields, name)
		}
	}
}

// dotted is a path as operators write a field: match.path.
func dotted(path string) string {
	return unescape.Replace(strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "."))
}

// covers reports whether a change sets a field, or what is within it, or what it is within.
func (c *Change) covers(path string) bool {
	return c.whole() || slices.ContainsFunc(c.Sets, func(p string) bool {
		return p == path || strings.HasPrefix(p, path+"/") || strings.HasPrefix(path, p+"/")
	})
}

// Overtaken is a field that an operator has set, and another's value is in force.
type Overtaken struct {
	Field   string          `json:"field"` // as match.path; "": the rule
	Yours   json.RawMessage `json:"yours"` // null: the default, or no rule
	Stands  json.RawMessage `json:"stands"`
	Version uint64          `json:"version"` // by which it stands
	At      time.Time       `json:"at"`
	Who     string          `json:"who,omitempty"`
	From    string          `json:"from,omitempty"`
	Edge    string          `json:"edge,omitempty"`
}

func (t *Overtaken) String() string {
	or := func(v json.RawMessage) string {
		if text := string(v); text != "null" {
			return text
		}
		if t.Field == "" {
			return "no rule"
		}
		return "the default"
	}
	what := fmt.Sprintf("%s is %s, not %s", t.Field, or(t.Stands), or(t.Yours))
	if t.Field == "" {
		what = "the rule is " + or(t.Stands) + " now"
	}
	return fmt.Sprintf("%s: set by %s, and that stands (version %d)", what,
		by(t.Who, t.From, t.Edge), t.Version)
}

// by names the author of a change for operators.
func by(who, from, edge string) string {
	return cmp.Or(who, from, "somebody") + " at " + cmp.Or(edge, "another edge")
}

// Newer are the changes of a rule that are newer than one of them.
func (o *Overlay) Newer(name string, version, maker uint64) []Change {
	list := o.changes[name]
	for i, c := range list {
		if cmp.Or(cmp.Compare(c.Version, version), cmp.Compare(c.Maker, maker)) <= 0 {
			return list[:i]
		}
	}
	return list
}

// Overtaken returns which fields of a change are not in force, because of newer ones.
func (o *Overlay) Overtaken(name string, version, maker uint64) (lost []Overtaken) {
	list, i := o.changes[name], len(o.Newer(name, version, maker))
	if i == 0 || i == len(list) || list[i].Version != version || list[i].Maker != maker {
		return nil
	}
	c, stands := &list[i], o.Rule(name)
	add := func(path string, yours, is any) {
		d := &list[0]
		if j := slices.IndexFunc(list[:i], func(d Change) bool {
			return path == "" || d.covers(path)
		}); j >= 0 {
			d = &list[j]
		}
		t := Overtaken{Field: dotted(path), Version: d.Version, At: d.At, Who: d.Who, From: d.From,
			Edge: d.Edge}
		t.Yours, _ = json.Marshal(yours) // both were read from JSON
		t.Stands, _ = json.Marshal(is)
		lost = append(lost, t)
	}
	var said *rules.Config
	switch rule, err := c.read(o.on); {
	case c.Does == Restore:
		said = byName(o.file, name)
	case c.Does == Set && err == nil:
		said = &rule
	}
	switch {
	case said == nil && stands == nil:
	case said == nil:
		add("", nil, config.Fields(*stands))
	case stands == nil:
		add("", config.Fields(*said), nil)
	default:
		yours, is := config.Fields(*said), config.Fields(*stands)
		for _, path := range differing(yours, is) {
			if c.whole() || c.covers(path) {
				y, _ := at(yours, path)
				s, _ := at(is, path)
				add(path, y, s)
			}
		}
	}
	return lost
}

// moment is how long ago another operator may have set a field and not have the answer yet.
const moment = 2 * time.Second

// Replaced returns which fields a change has set anew that another operator had set at another edge
// a moment before, and whose answer may not report this. Values that were overtaken in turn are
// left out: they replaced nothing.
func (o *Overlay) Replaced(name string, version, maker uint64, lost []Overtaken) (texts []string) {
	list := o.changes[name][len(o.Newer(name, version, maker)):]
	if len(list) == 0 || list[0].Version != version || list[0].Maker != maker {
		return nil
	}
	c := &list[0]
	its, _ := object(c.Rule)
	for _, path := range c.Sets {
		if slices.ContainsFunc(lost, func(l Overtaken) bool {
			return l.Field == "" || l.Field == dotted(path)
		}) {
			continue
		}
		j := slices.IndexFunc(list[1:], func(d Change) bool { return d.covers(path) }) + 1
		if d := &list[j]; j > 0 && !d.whole() && d.Maker != maker &&
			(d.Who == "" || d.Who != c.Who) && c.At.Sub(d.At).Abs() < moment {
			theirs, _ := object(d.Rule)
			was, _ := at(theirs, path)
			if is, _ := at(its, path); !reflect.DeepEqual(was, is) {
				text, _ := json.Marshal(was)
				texts = append(texts,
					fmt.Sprintf("%s was set to %s by %s a moment before: this replaces it",
						dotted(path), text, by(d.Who, d.From, d.Edge)))
			}
		}
	}
	return texts
}
