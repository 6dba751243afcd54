// Package changes is what operators change of the rules while a PoP runs: an overlay over the
// configuration file, which is never written.
//
// A Change sets a rule (whole, so that edges whose files differ end the same), removes it, or puts
// the file's in force again. Of each rule the latest changes are kept, and the newest that this
// edge understands replaces the file's, together with the fields of others that were made at the
// same moment (merge.go). A version is the number of a change, the same on every edge; 0 is the
// file's rule. So a rule's past is the list of its changes, and to go back is to say an old one
// again.
//
// What operators change of something of a module's (Kind) travels in the same list, and is in no
// overlay: the module puts it in force.
//
// Overlay does all of it on values. Where changes are kept, how they reach other edges, and how
// rules are put in force is others' to say.
package changes

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/edge/config"
	"sluice/edge/rules"
)

// Does is what a Change does.
type Does string

const (
	Set     Does = "set"     // the rule is Rule, whole
	Remove  Does = "removed" // there is no such rule, even if the file has one
	Restore Does = "file"    // the file's rule is in force
)

// Change is what an operator said of a rule, or of something of a module's. Its JSON is how it
// travels, beside its Subject, version and time.
type Change struct {
	// The name of the module whose it is, which says what Does may be; "": it is of a rule
	Kind    string `json:"-"`
	Name    string `json:"-"`
	Version uint64 `json:"-"`
	// The edge's number: of one version the change of the higher stands
	Maker uint64    `json:"-"`
	At    time.Time `json:"-"`

	Does Does            `json:"does"`
	Rule json.RawMessage `json:"rule,omitempty"` // of a Set
	// Of a Set the fields that were meant, as JSON Pointers; none: the whole rule
	Sets []string `json:"sets,omitempty"`
	// The latest changes of the rule that it was made over
	Seen  []string `json:"seen,omitempty"`
	After uint64   `json:"after"`          // the version that was in force
	Who   string   `json:"who,omitempty"`  // as the operator calls himself
	From  string   `json:"from,omitempty"` // where he came from
	Edge  string   `json:"edge,omitempty"` // the one that he spoke to
	To    *uint64  `json:"to,omitempty"`   // of a rollback: the version that it went back to

	Until time.Time `json:"until,omitzero"` // its end; zero: it has none

	wrong error // it is no Change that this edge understands
}

// Subject is the name under which a change travels. Names of rules have no colon.
func (c *Change) Subject() string {
	if c.Kind == "" {
		return c.Name
	}
	return c.Kind + ":" + c.Name
}

// Text is the change as it travels.
func (c *Change) Text() string {
	text, _ := json.Marshal(c) // it always can be
	return string(text)
}

// Read reads a change that Text wrote, perhaps at an edge of a later version, or of one before.
func Read(subject string, version, maker uint64, at time.Time, text string) Change {
	kind, name, own := strings.Cut(subject, ":")
	if !own {
		kind, name = "", subject
	}
	c := Change{}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		c = Change{wrong: err}
	} else if !own && c.Does != Set && c.Does != Remove && c.Does != Restore {
		c.wrong = c.Unknown()
	}
	c.Rule = config.DropGone(c.Rule)
	c.Kind, c.Name, c.Version, c.Maker, c.At = kind, name, version, maker, at
	return c
}

// Unknown says that it does what this edge does not know.
func (c *Change) Unknown() error {
	return fmt.Errorf("it does what this edge does not know: %q", c.Does)
}

// Wrong is why it is no Change that this edge understands; nil: it does. Refuse has it be none.
func (c *Change) Wrong() error     { return c.wrong }
func (c *Change) Refuse(err error) { c.wrong = err }

// read is the rule of a Set.
func (c *Change) read(on *config.Config) (rule rules.Config, err error) {
	if c.wrong != nil || c.Does != Set {
		return rule, c.wrong
	}
	if rule, err = on.ParseRule(c.Name, c.Rule); err == nil {
		err = on.CheckRule(&rule)
	}
	if err == nil {
		_, err = rules.New([]rules.Config{rule}, on.RuleDefaults(),
			func(string) *rules.Tally { return nil })
	}
	return rule, err
}

// Origin is where a rule in force comes from.
type Origin string

const (
	File  Origin = "file"    // of the configuration
	Flags Origin = "flags"   // of the command line
	Local Origin = "overlay" // an operator, for this edge only
	PoP   Origin = "pop"     // an operator, for all edges of the PoP
	Etcd  Origin = "etcd"    // an operator, for all edges of all PoPs that share an etcd
)

// Overlay is what a configuration and a list of changes make together. It is immutable.
type Overlay struct {
	Rules   []rules.Config // in force: those of the file in their order, then the others by name
	Refused []Refused

	on      *config.Config
	file    []rules.Config
	changes map[string][]Change // by rule, the newest first
	inForce map[string]InForce
}

// InForce is what stands for a rule.
type InForce struct {
	Origin  Origin
	Version uint64
}

// Refused is a change that cannot be in force on this edge: an older one is, or the file's.
type Refused struct {
	Change Change
	Err    error
}

// Lay lays changes, by rule and the newest first, over a file's rules.
func Lay(on *config.Config, from Origin, list []Change, changed Origin) *Overlay {
	file := on.Rules
	o := &Overlay{on: on, file: file, changes: make(map[string][]Change),
		inForce: make(map[string]InForce)}
	put := make(map[string]*rules.Config) // nil: removed
	done := make(map[string]bool)
	var added []string
	for i, c := range list {
		if c.Kind != "" {
			continue
		}
		o.changes[c.Name] = append(o.changes[c.Name], c)
		if done[c.Name] {
			continue
		}
		if _, err := c.read(on); err != nil {
			o.Refused = append(o.Refused, Refused{c, err})
			continue
		}
		done[c.Name] = true
		switch c.Does {
		case Set:
			put[c.Name] = o.together(list[i:])
			o.inForce[c.Name] = InForce{changed, c.Version}
			if !slices.ContainsFunc(file, func(r rules.Config) bool { return r.Name == c.Name }) {
				added = append(added, c.Name)
			}
		case Remove:
			put[c.Name] = nil
			o.inForce[c.Name] = InForce{changed, c.Version}
		}
	}
	for _, r := range file {
		switch changed, there := put[r.Name]; {
		case !there:
			o.inForce[r.Name] = InForce{Origin: from}
			o.Rules = append(o.Rules, r)
		case changed != nil:
			o.Rules = append(o.Rules, *changed)
		}
	}
	for _, name := range added {
		o.Rules = append(o.Rules, *put[name])
	}
	return o
}

// together is the rule that the first of some changes, which is a Set that this edge understands,
// makes with those that follow, by rule and the newest first.
func (o *Overlay) together(list []Change) *rules.Config {
	c := list[0]
	of := slices.IndexFunc(list, func(d Change) bool { return d.Name != c.Name })
	if of >= 0 {
		list = list[:of]
	}
	list = slices.DeleteFunc(slices.Clone(list), func(d Change) bool { return d.wrong != nil })
	try := func(list []Change) (*rules.Config, error) {
		both := c
		both.Rule = merged(list)
		rule, err := both.read(o.on)
		return &rule, err
	}
	rule, err := try(list)
	if err != nil { // the fields do not fit together
		rule, _ = try(fitting(list, func(some []Change) bool {
			_, err := try(some)
			return err == nil
		}))
	}
	return rule
}

// Rule is the rule of a name as it is in force, or nil.
func (o *Overlay) Rule(name string) *rules.Config { return byName(o.Rules, name) }

func byName(list []rules.Config, name string) *rules.Config {
	if i := slices.IndexFunc(list, func(r rules.Config) bool { return r.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// InForce is what is in force for a rule; for one that never existed the zero InForce.
func (o *Overlay) InForce(name string) InForce { return o.inForce[name] }

// ETag identifies what is in force for a rule among all past and future states: by its version and
// a hash of its content, because a file changes without a version, and two edges may make the same
// one. "" for no rule.
func (o *Overlay) ETag(name string) string {
	r := o.Rule(name)
	if r == nil {
		return ""
	}
	return fmt.Sprintf(`"%d-%012x"`, o.inForce[name].Version, config.Hash([]rules.Config{*r}))
}

// Past is what was said of a rule, for operators.
type Past struct {
	Version uint64     `json:"version"`
	At      *time.Time `json:"at,omitempty"` // none: version 0, which is the file's
	Does    Does       `json:"does"`
	Who     string     `json:"who,omitempty"`
	From    string     `json:"from,omitempty"`
	Edge    string     `json:"edge,omitempty"`
	// What it replaced; null: no rule, or one that is not kept any more
	Old json.RawMessage `json:"old"`
	New json.RawMessage `json:"new"` // null: no rule
	// The version that it replaced, which may not be kept any more; 0: the file's
	After uint64 `json:"after,omitempty"`
	// Of a rollback: the version that it went back to
	To      *uint64 `json:"to,omitempty"`
	InForce bool    `json:"in_force"`
	Refused string  `json:"refused,omitempty"` // why it cannot be in force on this edge
}

// History is the changes of a rule, the newest first, and last the file's rule. The error is
// config.ErrNoRule.
func (o *Overlay) History(name string) ([]Past, error) {
	list := []Past{}
	for i, c := range o.changes[name] {
		p := Past{Version: c.Version, At: &c.At, Does: c.Does, Who: c.Who, From: c.From,
			Edge: c.Edge, Old: o.before(name, i), New: o.said(name, i), After: c.After, To: c.To}
		for _, r := range o.Refused {
			if r.Change.Name == name && r.Change.Version == c.Version && r.Change.Maker == c.Maker {
				p.Refused = r.Err.Error()
			}
		}
		list = append(list, p)
	}
	if text := o.ofFile(name); text != nil {
		list = append(list, Past{Does: Restore, New: text})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: %s", config.ErrNoRule, name)
	}
	for i := range list {
		if list[i].Refused == "" {
			list[i].InForce = true
			break
		}
	}
	return list, nil
}

// Done describes what an operator did to a rule, which was old and is now, as JSON; "" is no rule.
func Done(old, now string, rollback bool) string {
	switch {
	case rollback:
		return "rolled a rule back"
	case now == "":
		return "removed a rule"
	case old == "":
		return "added a rule"
	}
	return "changed a rule"
}

// said is what the rule was with the ith of its changes, the newest first; nil: there was none.
func (o *Overlay) said(name string, i int) json.RawMessage {
	list := o.changes[name][i:]
	switch c := &list[0]; {
	case c.Does == Restore:
		return o.ofFile(name)
	case c.Does != Set:
		return nil
	default:
		if _, err := c.read(o.on); err != nil { // then it was never in force here
			return c.Rule
		}
		return json.RawMessage(config.RuleJSON(*o.together(list)))
	}
}

// Made is the rule, as JSON, before and with a change that was laid: what others made of it since
// is not in it. "" is no rule. Two edges may have made the same version.
func (o *Overlay) Made(c *Change) (old, now string) {
	i := slices.IndexFunc(o.changes[c.Name], func(d Change) bool {
		return d.Version == c.Version && d.Maker == c.Maker
	})
	if i < 0 {
		return "", ""
	}
	return string(o.before(c.Name, i)), string(o.said(c.Name, i))
}

// before is what the ith change replaced; nil: no rule, or it is not kept any more.
func (o *Overlay) before(name string, i int) json.RawMessage {
	for j := i + 1; j < len(o.changes[name]); j++ {
		if _, err := o.changes[name][j].read(o.on); err == nil {
			return o.said(name, j)
		}
	}
	if o.changes[name][i].After == 0 {
		return o.ofFile(name)
	}
	return nil
}

// ofFile is the file's rule; nil: there is none.
func (o *Overlay) ofFile(name string) json.RawMessage {
	if r := byName(o.file, name); r != nil {
		return json.RawMessage(config.RuleJSON(*r))
	}
	return nil
}

// ErrMatch means that If-Match names another state of the rule than the one in force.
var ErrMatch = errors.New("changes: the rule is not as If-Match says")

// ErrMoved means that another operator has changed the rule at the same moment, and nothing was
// changed.
var ErrMoved = errors.New("changes: the rule has just been changed by another operator: get it again, and change that")

// ErrAway says that what carries changes to all edges cannot be reached, so that none can be made.
var ErrAway = errors.New("changes: rules cannot be changed now: what is in force stays")

// ErrDrops means that a rule would lose fields that were set.
var ErrDrops = errors.New("changes: fields that are set would be lost")
