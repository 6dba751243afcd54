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
	c.HSTS = now.HSTS
	c.Source, c.Deny, c.Allow, c.JWT = now.Source, now.Deny, now.Allow, now.JWT
	c.Lists, c.DenyLists, c.AllowLists = now.Lists, now.DenyLists, now.AllowLists
	c.DenyMarked, c.AllowMarked = now.DenyMarked, now.AllowMarked
	c.Rules, c.Estimate, c.Shadow, c.Shed = now.Rules, now.Estimate, now.Shadow, now.Shed
	c.Origins, c.CheckPath, c.VerdictHeader = now.Origins, now.CheckPath,
		now.VerdictHeader
	c.Plans = now.Plans
	c.Modules, c.Settings = now.Modules, running(before, now)
	c.Plans.Store, c.Plans.Refresh = before.Plans.Store, before.Plans.Refresh
	if len(before.PoP.Memcached) > 0 && len(now.PoP.Memcached) > 0 {
		c.PoP.Memcached = now.PoP.Memcached
	}
	c.PoP.PeersOff = now.PoP.PeersOff
	c.Composed = Composed{now.Composed.Notes, joined(before.Composed.Hidden, now.Composed.Hidden)}
	return &c
}

// Reloads reports whether a setting, by its name in the file, takes effect when the file is read
// again, and not at the next start only. It is what Running says of each; a list of nodes that
// comes or goes is its one exception.
func (c *Config) Reloads(field string) bool {
	switch field {
	case "plans.store", "plans.refresh":
		return false
	case "shed", "check_path", "verdict_header", "lists", "deny", "allow", "origins",
		"pop.memcached", "pop.peers_mode":
		return true
	}
	top, _, _ := strings.Cut(field, ".")
	for _, m := range c.Modules {
		if m.Name == top {
			return !m.AtStart
		}
	}
	return top == "source" || top == "jwt" || top == "plans" || top == "rules" || top == "hsts" ||
		top == "lists"
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
