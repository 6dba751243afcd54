package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Running is what runs once a configuration has replaced another while the edge goes on: what is
// read only at the start stays as it was. A list of nodes can change, but not go or come.
func Running(before, now *Config) *Config {
	c := *before
	reload(reflect.ValueOf(&c).Elem(), reflect.ValueOf(now).Elem())
	c.Modules, c.Settings = now.Modules, running(before, now)
	if len(before.PoP.Memcached) == 0 || len(now.PoP.Memcached) == 0 {
		c.PoP.Memcached = before.PoP.Memcached
	}
	c.Composed = Composed{now.Composed.Notes, joined(before.Composed.Hidden, now.Composed.Hidden)}
	return &c
}

// reload takes over what takes effect when the file is read again (reload:"yes").
func reload(to, now reflect.Value) {
	for _, f := range reflect.VisibleFields(to.Type()) {
		of, is := to.FieldByIndex(f.Index), now.FieldByIndex(f.Index)
		if f.Tag.Get("reload") == "yes" {
			of.Set(is)
		} else if of.Kind() == reflect.Struct {
			reload(of, is)
		}
	}
}

// Reloads reports whether a setting, by its name in the file, takes effect when the file is read
// again, and not at the next start only. It is what Running says of each; a list of nodes that
// comes or goes is its one exception.
func (c *Config) Reloads(field string) bool {
	top, _, _ := strings.Cut(field, ".")
	for _, m := range c.Modules {
		if m.Name == top {
			return !m.AtStart
		}
	}
	of := reflect.ValueOf(c).Elem()
	for part := range strings.SplitSeq(field, ".") {
		for name, f := range settingsIn(of) {
			if name == part && f.Tag.Get("reload") == "yes" {
				return true
			} else if name == part {
				of = of.FieldByIndex(f.Index)
				break
			}
		}
		if of.Kind() != reflect.Struct {
			break
		}
	}
	return false
}

// Wait is a setting whose value in the file differs from the running one, until the edge starts
// again.
type Wait struct {
	Field string `json:"field"` // as pop.name
	Runs  any    `json:"runs"`
	File  any    `json:"file"`
}

// Waiting is what differs between what runs and the file, except the rules.
func Waiting(running, file *Config) []Wait {
	c := Running(running, file)
	list := appendWaits([]Wait{}, "", plain(Shown(c)), plain(Shown(file)))
	// A password is not shown
	if c.Plans.Store != file.Plans.Store && redacted(c.Plans.Store) == redacted(file.Plans.Store) {
		list = append(list, Wait{"plans.store", "another", "not shown"})
	}
	return list
}

// Differing is what differs between two configurations, but for the rules: Runs is the running
// value, and File the file's.
func Differing(before, now *Config) []Wait {
	return appendWaits(nil, "", plain(Shown(before)), plain(Shown(now)))
}

// appendWaits adds those parts of a setting that differ.
func appendWaits(list []Wait, name string, runs, file any) []Wait {
	a, object := runs.(map[string]any)
	b, both := file.(map[string]any)
	switch {
	case object && both:
		for _, part := range slices.Sorted(maps.Keys(b)) {
			list = appendWaits(list, strings.TrimPrefix(name+"."+part, "."), a[part], b[part])
		}
	case !reflect.DeepEqual(runs, file):
		list = append(list, Wait{name, runs, file})
	}
	return list
}
