package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Running is what runs once a configuration has taken the place of another while the edge goes on: what is read at the start only stays as it
// was. A list of nodes can change, but not go or come.
func Running(before, now *Config) *Config {
	c := *now
	for _, f := range atStart {
		f(&c, before)
	}
	if len(before.PoP.Memcached) > 0 && len(now.PoP.Memcached) > 0 {
		c.PoP.Memcached = now.PoP.Memcached
	}
	c.PoP.PeersOff = now.PoP.PeersOff
	return &c
}

// atStart are the settings that are read at the start only, by their names in the file: each is put back to what was.
var atStart = map[string]func(c, was *Config){
	"listen":             func(c, was *Config) { c.Listen = was.Listen },
	"listen_tls":         func(c, was *Config) { c.ListenTLS = was.ListenTLS },
	"listen_sockets":     func(c, was *Config) { c.ListenSockets = was.ListenSockets },
	"tls":                func(c, was *Config) { c.TLS = was.TLS },
	"admin":              func(c, was *Config) { c.Admin = was.Admin },
	"admin_hosts":        func(c, was *Config) { c.AdminHosts = was.AdminHosts },
	"admin_token_file":   func(c, was *Config) { c.AdminTokenFile = was.AdminTokenFile },
	"admin_insecure":     func(c, was *Config) { c.AdminInsecure = was.AdminInsecure },
	"metrics_token":      func(c, was *Config) { c.MetricsToken = was.MetricsToken },
	"edge_id":            func(c, was *Config) { c.EdgeID = was.EdgeID },
	"state_dir":          func(c, was *Config) { c.StateDir = was.StateDir },
	"pop":                func(c, was *Config) { c.PoP = was.PoP },
	"etcd":               func(c, was *Config) { c.Etcd = was.Etcd },
	"table":              func(c, was *Config) { c.Counters = was.Counters },
	"access_log":         func(c, was *Config) { c.AccessLog = was.AccessLog },
	"audit_one_in":       func(c, was *Config) { c.AuditOneIn = was.AuditOneIn },
	"limits":             func(c, was *Config) { c.Limits = was.Limits },
	"http2":              func(c, was *Config) { c.HTTP2 = was.HTTP2 },
	"plans":              func(c, was *Config) { c.Plans.Store, c.Plans.Refresh = was.Plans.Store, was.Plans.Refresh },
	"rate_limit_service": func(c, was *Config) { c.RateLimitService = was.RateLimitService },
}

// Wait is a setting that the file says otherwise than it runs, until the edge starts again.
type Wait struct {
	Field string `json:"field"` // as pop.name
	Runs  any    `json:"runs"`
	File  any    `json:"file"`
}

// Waiting is what differs between what runs and what the file says, but for the rules.
func Waiting(running, file *Config) []Wait {
	list := []Wait{}
	if running == file {
		return list
	}
	runs, says := plain(Shown(running)), plain(Shown(file))
	for _, name := range slices.Sorted(maps.Keys(atStart)) {
		c := *file
		if atStart[name](&c, running); reflect.DeepEqual(c, *file) {
			continue
		}
		before := len(list)
		list = appendWaits(list, name, runs[name], says[name])
		if len(list) == before && name == "plans" { // a password is not shown
			list = append(list, Wait{"plans.store", "another", "not shown"})
		}
	}
	return list
}

// Differing is what differs between two configurations, but for the rules: Runs is what the first says, and File the second.
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
