package config

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/address"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

// A Module is what a feature adds to configuration files: a section, a field of rules, actions, and
// facts that rules may ask for.
//
// A section and a field of rules are read into structs, as settings.go says. A section may be a
// slice of them as well.
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
	// Files are those of the module's that are secret, or whose change is a reload; nil: none are.
	Files func(*Config) []File
	// Check returns what is wrong with a configuration as a whole; nil: nothing can be.
	Check func(*Config) error
	// Weaknesses are what will hurt one day, a sentence each; nil: nothing can.
	Weaknesses func(*Config) []string
}

// A File is one that a setting names.
type File struct {
	Setting, Path string // "": none is given
	Secret        bool   // sluice check says if others can read it
	Reloads       bool   // when it changes, the configuration is put in force anew
}

// Files are those of modules that are secret, or whose change is a reload.
func (c *Config) Files() (list []File) {
	for _, m := range c.Modules {
		if m.Files != nil {
			list = append(list, m.Files(c)...)
		}
	}
	return list
}

// A Content is a file that the configuration names, and what it says.
type Content struct {
	File string // as it is written
	Text []byte
}

// Facts and actions are those of all modules.
func Facts(modules []Module) (list []*key.Fact) {
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
	case slices.Contains(*to, before+values[0]) && f.Noun != "":
		r.fail(n, "%s: the %s %s is there twice: remove one", what, f.Noun, values[0])
	case slices.Contains(*to, before+values[0]):
		r.fail(n, "%s: %s is there twice: remove one", what, values[0])
	default:
		r.asked = append(r.asked, asked{n, what, f.Name, values[0]})
		*to = append(*to, before+values[0])
	}
}

// group reads prefixes, and behind their marks values of facts.
func (r *reader) group(what string, prefixes *[]netip.Prefix, marked *[]string) func(ast.Node) {
	return r.texts(what, func(n ast.Node, text string) {
		for _, f := range Facts(r.modules) {
			if value, is := strings.CutPrefix(text, f.Mark); is && f.Mark != "" {
				r.factValue(n, what, f, f.Mark, value, marked)
				return
			}
		}
		p, err := address.ParsePrefix(text)
		if err != nil {
			r.fail(n, "%s: %v", what, err)
			return
		}
		*prefixes = append(*prefixes, p)
	})
}

// shownGroup are prefixes and values of facts as a file has them.
func shownGroup(prefixes []netip.Prefix, marked []string) []string {
	list := []string{}
	for _, p := range prefixes {
		list = append(list, p.String())
	}
	return append(list, marked...)
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
