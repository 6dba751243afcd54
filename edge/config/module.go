package config

import (
	"encoding/json"
	"fmt"
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
//	string               words, "none or page"; "file": any, of which none is ""; without: any text
//	[]string             as string, each
//	a struct             its settings, within
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
	// Check returns what is wrong with a configuration as a whole; nil: nothing can be.
	Check func(*Config) error
	// Weaknesses are what will hurt one day, a sentence each; nil: nothing can.
	Weaknesses func(*Config) []string
}

// facts and actions are those of all modules.
func facts(modules []Module) (list []*key.Fact) {
	for _, m := range modules {
		list = append(list, m.Facts...)
	}
	return list
}

func actions(modules []Module) (list []rules.OwnAction) {
	for _, m := range modules {
		list = append(list, m.Actions...)
	}
	return list
}

// sections are the fields of a configuration that modules have.
func (r *reader) sections(c *Config, to fields) fields {
	c.Modules = r.modules
	for _, m := range r.modules {
		if m.Settings == nil {
			continue
		}
		settings := m.Settings()
		c.set(m.Name, settings)
		to[m.Name] = func(n ast.Node) { r.into(n, m.Name, settings) }
	}
	for name := range r.missing {
		if to[name] == nil && !strings.Contains(name, ".") {
			to[name] = func(ast.Node) {} // see without
		}
	}
	return to
}

// without are the sections of modules that the program was built without.
func (r *reader) without(seen map[string]ast.Node) (list []option) {
	for _, name := range slices.Sorted(maps.Keys(r.missing)) {
		list = append(list, option{name, !strings.Contains(name, ".") && seen[name] != nil})
	}
	return list
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
	for i := range of.NumField() {
		f := of.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		settings[name] = r.setting(what+"."+name, f.Tag.Get("want"), of.Field(i).Addr().Interface())
	}
	r.mapping(n, what, settings)
}

// setting reads a value as its type and the tag want say.
func (r *reader) setting(what, want string, to any) func(ast.Node) {
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
		case want != "":
			return oneOf(r, what, to, strings.Split(want, " or ")...)
		}
		return r.str(what, to)
	case *[]string:
		return r.texts(what, func(n ast.Node, _ string) {
			var one string
			r.setting(what, want, &one)(n)
			*to = append(*to, one)
		})
	}
	if reflect.TypeOf(to).Elem().Kind() == reflect.Struct {
		return func(n ast.Node) { r.into(n, what, to) }
	}
	panic(fmt.Sprintf("config: %s: a module has a setting of the type %T", what, to))
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
		to[name] = shownStruct(reflect.ValueOf(settings).Elem())
	}
}

// shownStruct is a struct of settings with the values as files have them.
func shownStruct(of reflect.Value) map[string]any {
	all := make(map[string]any)
	for i := range of.NumField() {
		f := of.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch v := of.Field(i).Interface().(type) {
		case time.Duration:
			all[name] = v.String()
		case string:
			if v == "" && f.Tag.Get("want") == "file" {
				v = "none"
			}
			all[name] = v
		case []string:
			all[name] = append([]string{}, v...)
		default:
			all[name] = v
			if _, text := v.(json.Marshaler); !text && of.Field(i).Kind() == reflect.Struct {
				all[name] = shownStruct(of.Field(i))
			}
		}
	}
	return all
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
