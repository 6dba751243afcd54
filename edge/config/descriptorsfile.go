package config

import (
	"cmp"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/edge/rules/descriptors"
	"sluice/edge/rules/match"
)

func (r *reader) descriptors(n ast.Node, m *match.Config) {
	const name = "match.descriptors"
	if s, ok := n.(*ast.StringNode); ok && s.Value == "none" {
		return
	}
	d := new(descriptors.Pattern)
	f := r.settings(name+".", d)
	f["entries"] = r.each(name+".entries", func(n ast.Node) {
		var e descriptors.Entry
		r.into(n, name+".entries", &e)
		d.Entries = append(d.Entries, e)
	})
	r.mapping(n, name, f)
	if err := d.Check(); err != nil {
		r.fail(n, "%s: %v", name, err)
	}
	m.Descriptors = d
}

// described returns what is wrong with a rule about descriptors: a descriptor has nothing of HTTP,
// and the proxy itself answers its client.
func (r *reader) described(n ast.Node, seen map[string]ast.Node, rule *rules.Config,
	others []rules.Config) {
	at := func(name string) ast.Node { return cmp.Or(seen[name], n) }
	alone := match.Config{Descriptors: rule.Match.Descriptors}
	if text(rule.Match) != text(alone) {
		r.fail(at("match"),
			"match.descriptors: a descriptor has no host, path, method, address, header, parameter or cookie: remove what is beside it")
	}
	if !slices.Equal(rule.Key, []string{"source"}) {
		r.fail(at("key"),
			"key: a rule about descriptors counts by the values that its entries leave open: remove key")
	}
	if len(rule.Count.Statuses) > 0 {
		r.fail(at("count"),
			"count.statuses: no proxy reports how a request was answered: remove it")
	}
	if rule.Action != rules.Refuse {
		r.fail(at("action"), "action: %s: the calling proxy answers its client: remove it",
			rule.Action)
		rule.Action = rules.Refuse // that was said
	}
	switch standard := rules.Default("", 0).Response.Status; {
	case rule.Response.Status != standard:
		r.fail(at("response"),
			"response.status: the calling proxy chooses the status (rate_limited_status of Envoy): remove it")
	case len(rule.Response.Bodies) > 0:
		r.fail(at("response"),
			"response.bodies: no proxy reports what its client accepts: keep one body")
	}
	switch {
	case len(rule.Windows) > 0:
		r.fail(at("windows"),
			"windows: the calling proxy gets one limit for each descriptor: remove them")
	case len(rule.Prefixes) > 0:
		r.fail(at("prefixes"),
			"prefixes: a rule about descriptors counts by the values that its entries leave open: remove them, and have the proxy send masked_remote_address")
	case rule.Cost.Is():
		r.fail(at("cost"),
			"cost: the calling proxy sends how many hits a request is (hits_addend): remove it")
	case rule.Check == limiter.Sync:
		r.fail(at("check"),
			"check: sync has the tier keep requests one by one, and a proxy may send many hits at once: take check: async")
	case rule.Algorithm != rules.Sliding && rule.Algorithm != rules.Fixed:
		r.fail(at("algorithm"),
			"algorithm: %s: the calling proxy gets a limit in a window: take sliding or fixed",
			rule.Algorithm)
	}
	for _, name := range []string{"priority", "queue"} {
		if rule.OrdersOrigin() && seen[name] != nil {
			r.fail(seen[name],
				"%s: the calling proxy sends the request to its origin, where no load is shed: remove it", name)
		}
	}
	if rule.Mode == rules.Off {
		return
	}
	for i := range others {
		if o := &others[i]; o.Mode != rules.Off && o.Match.Descriptors != nil &&
			o.Match.Descriptors.Same(rule.Match.Descriptors) {
			r.fail(at("match"),
				"match.descriptors: rule %s is about the same: keep one, or say mode: off", o.Name)
		}
	}
}
