package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

// A Module is what a feature adds to configuration files: a section, a field of rules, actions, and
// facts that rules may ask for.
//
// A section and a field of rules are read into structs. Each of their fields is a setting by the
// name that its tag json gives, and its tag want says what it may be:
//
//	bool                 nothing
//	int, uint32          "1 to 30"
//	time.Duration        "1s to 24h"; "0, or 1s to 24h" takes 0 as well. rules.Duration likewise
//	string               words, "none or page"; "file": any, of which none is ""; "address": one to
//	                     listen on, or none; without: any text
//	a TextUnmarshaler    what it takes; "file": none as well
//	Content              a file, of at most so many bytes as want says
//	a slice              as one, each; with a tag each:"once" none may be there twice
//	a struct             its settings, within; embedded: as if they were the struct's own
//
// A section may be such a slice as well. What has a method Check() error is checked once it is read,
// and a slice that has CheckLast() error after each of its entries.
//
// The tag need says what a setting is without which the section's others are nothing.
type Module struct {
	Name string // of the section, and of the field of rules
	// Settings makes what the section is read into, a pointer to a struct with the defaults; nil:
	// there is none. What is read is in Config.Settings.
	Settings func() any
	// AtStart reports that the section takes effect when the process starts, and not before.
	AtStart bool
	// Rule makes what the field of a rule is read into, and is in rules.Config.Own; nil: there is
	// none.
	Rule    func() any
	Actions []rules.OwnAction
	Facts   []*key.Fact
	// Lacks says why no request can have a value of one of Facts under a configuration, or, of "",
	// any; nil: each can be there.
	Lacks func(c *Config, fact, value string) error
	// Certifies reports that the module gets the certificates of listeners that have none of their
	// own; nil: it never does.
	Certifies func(*Config) bool
	// InKernel reports that the module has the kernel refuse connections, as shed: kernel wants;
	// nil: it never does.
	InKernel func(*Config) bool
	// Service returns what programs call at a listener of the module's; nil: nothing.
	Service func(*Config) Service
	// Check returns what is wrong with a configuration as a whole; nil: nothing can be.
	Check func(*Config) error
	// Weaknesses are what will hurt one day, a sentence each; nil: nothing can.
	Weaknesses func(*Config) []string
}

// A Content is a file that the configuration names, and what it says.
type Content struct {
	File string // as it is written
	Text []byte
}

// facts and actions are those of all modules.
func facts(modules []Module) (list []*key.Fact) {
	for _, m := range modules {
		list = append(list, m.Facts...)
	}
	return list
}

// facts are those of all modules, under the configuration.
func (c *Config) facts() (list []*key.Fact) {
	for _, m := range c.Modules {
		for _, f := range m.Facts {
			if m.Lacks != nil {
				of := *f
				of.Lacks = func(value string) error { return m.Lacks(c, of.Name, value) }
				f = &of
			}
			list = append(list, f)
		}
	}
	return list
}

// An asked fact is where one is spoken of.
type asked struct {
	node              ast.Node
	what, name, value string
}

// findFacts returns what is spoken of and cannot be there. Sections of modules may come after that.
func (r *reader) findFacts(c *Config) {
	facts := c.facts()
	for _, a := range r.asked {
		of := facts[slices.IndexFunc(facts, func(f *key.Fact) bool { return f.Name == a.name })]
		if err := of.Check(a.value); err != nil {
			r.fail(a.node, "%s: %v", a.what, err)
		}
	}
}

// factValue reads a value of a fact, behind what is before it in the list; each is there once.
func (r *reader) factValue(n ast.Node, what string, f *key.Fact, before, text string, to *[]string) {
	values, err := f.Values([]string{text})
	switch {
	case err != nil:
		r.fail(n, "%s: %v", what, err)
	case slices.Contains(*to, before+values[0]):
		r.fail(n, "%s: %s is there twice: remove one", what, values[0])
	default:
		r.asked = append(r.asked, asked{n, what, f.Name, values[0]})
		*to = append(*to, before+values[0])
	}
}

func actions(modules []Module) (list []rules.OwnAction) {
	for _, m := range modules {
		list = append(list, m.Actions...)
	}
	return list
}

// SettingsOf are what a module's section says, a pointer to its struct; nil: it was not read.
func SettingsOf[T any](c *Config, module string) *T {
	settings, _ := c.Settings[module].(*T)
	return settings
}

// certified reports whether a module gets certificates.
func (c *Config) certified() bool {
	return slices.ContainsFunc(c.Modules,
		func(m Module) bool { return m.Certifies != nil && m.Certifies(c) })
}

// sections are the fields of a configuration that modules have.
func (r *reader) sections(n ast.Node, c *Config, to fields) fields {
	for setting := range r.missing {
		section, _, within := strings.Cut(setting, ".")
		switch {
		case to[section] != nil:
		case within:
			to[section] = func(n ast.Node) { r.without(n, section) }
		default:
			to[section] = func(ast.Node) { r.absent = append(r.absent, section) }
		}
	}
	for name, settings := range c.Settings {
		to[name] = r.setting(name, "", settings)
	}
	if m, ok := n.(*ast.MappingNode); ok && r.others {
		for _, v := range m.Values {
			if name := scalar(v.Key); to[name] == nil && Nearest(name, slices.Collect(maps.Keys(to))) == "" {
				to[name] = func(ast.Node) {}
			}
		}
	}
	return to
}

// without notes which settings are given that need what the program was built without.
func (r *reader) without(n ast.Node, section string) {
	values, _ := r.entries(n, section)
	for _, v := range values {
		list, is := v.Value.(*ast.SequenceNode)
		none := is && len(list.Values) == 0 || scalar(v.Value) == "none"
		if setting := section + "." + scalar(v.Key); r.missing[setting] != "" && !none {
			r.absent = append(r.absent, setting)
		}
	}
}

// set sets what a module's section says.
func (c *Config) set(name string, settings any) {
	if c.Settings == nil {
		c.Settings = make(map[string]any)
	}
	c.Settings[name] = settings
}

// own are the fields of a rule that modules have.
func (r *reader) own(rule *rules.Config, to fields) fields {
	for _, m := range r.modules {
		if m.Rule == nil {
			continue
		}
		to[m.Name] = func(n ast.Node) {
			settings := m.Rule()
			r.into(n, m.Name, settings)
			if rule.Own == nil {
				rule.Own = make(map[string]any)
			}
			rule.Own[m.Name] = settings
		}
	}
	return to
}

// into reads a mapping into a struct.
func (r *reader) into(n ast.Node, what string, to any) {
	of, settings := reflect.ValueOf(to).Elem(), make(fields)
	for name, f := range settingsIn(of) {
		settings[name] = r.setting(what+"."+name, f.Tag,
			of.FieldByIndex(f.Index).Addr().Interface())
	}
	before := len(r.errs)
	seen := r.mapping(n, what, settings)
	for name, f := range settingsIn(of) {
		if need := f.Tag.Get("need"); need != "" && len(seen) > 0 && seen[name] == nil &&
			len(r.errs) == before {
			r.fail(n, "%s has no %s: give %s", what, name, need)
		}
	}
	r.check(n, what, before, to)
}

// settingsIn are the settings of a struct by their names, those of embedded structs among them.
func settingsIn(of reflect.Value) iter.Seq2[string, reflect.StructField] {
	return func(yield func(string, reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(of.Type()) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.Anonymous && !yield(name, f) {
				return
			}
		}
	}
}

// check has a value checked, if nothing was wrong with it.
func (r *reader) check(n ast.Node, what string, before int, value any) {
	if c, can := value.(interface{ Check() error }); can && len(r.errs) == before {
		if err := c.Check(); err != nil {
			r.fail(n, "%s: %v", what, err)
		}
	}
}

// setting reads a value as its type and its tags say.
func (r *reader) setting(what string, tag reflect.StructTag, to any) func(ast.Node) {
	want := tag.Get("want")
	switch to := to.(type) {
	case *bool:
		return r.boolean(what, to)
	case *int:
		return integer(r, what, int64(bound(want, 0)), int64(bound(want, 1)), to)
	case *uint32:
		return integer(r, what, int64(bound(want, 0)), int64(bound(want, 1)), to)
	case *time.Duration:
		return r.span(what, want, to)
	case *rules.Duration:
		return r.span(what, want, (*time.Duration)(to))
	case *string:
		switch {
		case want == "file":
			return r.orNone(what, to)
		case want == "address":
			return r.addressOrNone(what, to)
		case want != "":
			return oneOf(r, what, to, strings.Split(want, " or ")...)
		}
		return r.str(what, to)
	case *Content:
		return r.text(what, func(n ast.Node, text string) {
			var err error
			if to.Text, err = r.tree.Content(n, text, int64(bound(want, 0))); err != nil {
				r.fail(n, "%s: %v", what, err)
			}
			to.File = text
		})
	case encoding.TextUnmarshaler:
		return r.text(what, func(n ast.Node, text string) {
			if text == "none" && want == "file" {
				return
			}
			if err := to.UnmarshalText([]byte(text)); err != nil {
				r.fail(n, "%s: %v", what, err)
			}
		})
	}
	switch of := reflect.ValueOf(to).Elem(); of.Kind() {
	case reflect.Slice:
		return func(n ast.Node) { r.slice(n, what, tag, of) }
	case reflect.Struct:
		return func(n ast.Node) { r.into(n, what, to) }
	}
	panic(fmt.Sprintf("config: %s: a module has a setting of the type %T", what, to))
}

// slice reads a list in place of the default one.
func (r *reader) slice(n ast.Node, what string, tag reflect.StructTag, to reflect.Value) {
	all := len(r.errs)
	to.SetZero()
	r.list(n, what, func(n ast.Node) {
		one, before := reflect.New(to.Type().Elem()), len(r.errs)
		if r.setting(what, tag, one.Interface())(n); len(r.errs) > before {
			return
		}
		if tag.Get("each") == "once" {
			for _, other := range to.Seq2() {
				if other.Equal(one.Elem()) {
					r.fail(n, "%s: %v is there twice: remove one", what, other)
				}
			}
		}
		to.Set(reflect.Append(to, one.Elem()))
		if c, can := to.Addr().Interface().(interface{ CheckLast() error }); can {
			if err := c.CheckLast(); err != nil {
				r.fail(n, "%s: %v", what, err)
			}
		}
	})
	r.check(n, what, all, to.Addr().Interface())
}

// bound is one of the two numbers of a range.
func bound(want string, i int) (n int) {
	if _, err := fmt.Sscan(ends(want)[i], &n); err != nil {
		panic(fmt.Sprintf("config: a module has a setting with the range %q: %v", want, err))
	}
	return n
}

// ends are both ends of a range.
func ends(want string) [2]string {
	low, high, _ := strings.Cut(strings.TrimPrefix(want, "0, or "), " to ")
	return [2]string{low, high}
}

// span reads a duration within a range.
func (r *reader) span(what, want string, to *time.Duration) func(ast.Node) {
	var least [2]time.Duration
	for i, text := range ends(want) {
		var err error
		if least[i], err = time.ParseDuration(text); err != nil {
			panic(fmt.Sprintf("config: %s: a module has a setting with the range %q", what, want))
		}
	}
	return r.duration(what, least[0], least[1], strings.HasPrefix(want, "0, or "), to)
}

// shownSettings adds the sections of modules to what operators see.
func (c *Config) shownSettings(to map[string]any) {
	for name, settings := range c.Settings {
		to[name] = shownValue(reflect.ValueOf(settings).Elem(), "")
	}
}

// shownStruct is a struct of settings with the values as files have them.
func shownStruct(of reflect.Value) map[string]any {
	all := make(map[string]any)
	for name, f := range settingsIn(of) {
		all[name] = shownValue(of.FieldByIndex(f.Index), f.Tag.Get("want"))
	}
	return all
}

func shownValue(of reflect.Value, want string) any {
	switch v := of.Interface().(type) {
	case time.Duration:
		return v.String()
	case json.Marshaler:
		return v
	}
	switch of.Kind() {
	case reflect.String:
		if (want == "file" || want == "address") && of.Len() == 0 {
			return "none"
		}
		return of.String()
	case reflect.Slice:
		list := []any{}
		for _, one := range of.Seq2() {
			list = append(list, shownValue(one, want))
		}
		return list
	case reflect.Struct:
		return shownStruct(of)
	}
	return of.Interface()
}

// running are the sections as they run once a configuration has replaced another.
func running(before, now *Config) map[string]any {
	if now.Settings == nil {
		return nil
	}
	all := make(map[string]any, len(now.Settings))
	for _, m := range now.Modules {
		from := now
		if m.AtStart && before.Settings[m.Name] != nil {
			from = before
		}
		if settings := from.Settings[m.Name]; settings != nil {
			all[m.Name] = settings
		}
	}
	return all
}
