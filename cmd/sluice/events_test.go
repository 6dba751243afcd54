//go:build system

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sluice/edge/events"
)

// eventList is what operators did, as an edge tells it after an event: what, of which rule and source, by whom, and at which edge; the oldest first.
func (p *process) eventList() (list []string) {
	p.t.Helper()
	var all []events.Event
	must(p.t, json.Unmarshal([]byte(p.api("GET", "/v1/events", "").text), &all))
	for _, e := range slices.Backward(all) {
		if e.Kind != events.Operator && e.Kind != events.Rule {
			continue
		}
		address, at, elsewhere := strings.Cut(e.From, " at ")
		if !strings.HasPrefix(address, "127.0.0.1:") || elsewhere != (at != "") {
			p.t.Errorf("from %q: want the address of the operator", e.From)
		}
		list = append(list, strings.Join([]string{e.Text, e.Rule, e.Source, e.Who, at}, "|"))
	}
	return list
}

// What operators do at one edge is told at all of them, with who and where from, once, and in its order; an edge that comes later is told
// nothing of what was before it, and an edge that was there hears what is said at the new one.
func TestOperatorEventsOverThePoP(t *testing.T) {
	t.Parallel()
	files, nodes, site := writePoP(t, 3), startMemcached(t)+","+startMemcached(t), origin(t)
	edges := []*process{start(t, site, "--config", files[0], "--memcached", nodes), start(t, site, "--config", files[1], "--memcached", nodes)}
	meet(edges...)
	done := []struct{ method, path, body, who, reported string }{
		{"PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"1h","reason":"scraper"}`, "ada", "blocked for 1h: scraper|login|192.0.2.1|ada"},
		{"PUT", "/v1/mitigations/*/192.0.2.0/24", `{"for":"10m"}`, "bob", "blocked for 10m|*|192.0.2.0/24|bob"},
		{"DELETE", "/v1/mitigations/login/192.0.2.1", "", "bob", "lifted|login|192.0.2.1|bob"},
		{"PUT", "/v1/allow/198.51.100.0/24", `{"for":"10m","reason":"a fair"}`, "ada", "allowed for 10m: a fair||198.51.100.0/24|ada"},
		{"PUT", "/v1/deny/203.0.113.7", `{"for":"10m"}`, "ada", "denied for 10m||203.0.113.7|ada"},
		{"DELETE", "/v1/allow/198.51.100.0/24", "", "ada", "allowed no more||198.51.100.0/24|ada"},
		{"DELETE", "/v1/deny/203.0.113.7", "", "", "denied no more||203.0.113.7|"},
		{"PATCH", "/v1/rules/login", `{"limit":7}`, "ada", "changed a rule, at another edge|login||ada"},
		{"PUT", "/v1/rules/new", `{"limit":9}`, "ada", "added a rule, at another edge|new||ada"},
		{"DELETE", "/v1/rules/new", "", "bob", "removed a rule, at another edge|new||bob"},
		{"POST", "/v1/rules/login/rollback", `{"to":0}`, "bob", "rolled a rule back, at another edge|login||bob"},
	}
	var here, there []string
	for _, d := range done {
		var by []string
		if d.who != "" {
			by = []string{"X-Operator", d.who}
		}
		if a := edges[0].api(d.method, d.path, d.body, by...); a.status != 200 || a.Edges == nil || a.Edges.Have != 2 {
			t.Fatalf("%s %s: %d %s", d.method, d.path, a.status, a.text)
		}
		here, there = append(here, strings.Replace(d.reported, ", at another edge", "", 1)+"|"), append(there, d.reported+"|edge0")
	}
	if got := edges[0].eventList(); !slices.Equal(got, here) {
		t.Errorf("where it was said:\n got %q\nwant %q", got, here)
	}
	if !everywhere(edges[1:], func(p *process) bool { return slices.Equal(p.eventList(), there) }) {
		t.Errorf("at the other edge:\n got %q\nwant %q", edges[1].eventList(), there)
	}

	third := start(t, site, "--config", files[2], "--memcached", nodes)
	edges = append(edges, third)
	meet(edges...)
	if a := third.api("PUT", "/v1/mitigations/login/192.0.2.9", `{"for":"1h"}`, "X-Operator", "cyd"); a.status != 200 || a.Edges.Have != 3 {
		t.Errorf("%d %s", a.status, a.text)
	}
	there = append(there, "blocked for 1h|login|192.0.2.9|cyd|edge2")
	if !everywhere(edges[1:2], func(p *process) bool { return slices.Equal(p.eventList(), there) }) {
		t.Errorf("after the third edge's word:\n got %q\nwant %q", edges[1].eventList(), there)
	}
	if got := third.eventList(); slices.ContainsFunc(got, func(line string) bool {
		return strings.Contains(line, "192.0.2.1|") || strings.Contains(line, "198.51.100")
	}) {
		t.Errorf("the third edge tells of what was before it: %q", got)
	}
	for _, p := range edges {
		p.stop(syscall.SIGTERM)
	}
}
