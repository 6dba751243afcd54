//go:build !race

package edge_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/changes"
	"sluice/edge/edgetest"
	"sluice/edge/edgetest/golden"
	"sluice/edge/listen"
	"sluice/edge/modules/maintenance"
	"sluice/edge/modules/suggest"
	"sluice/edge/modules/try"
	"sluice/edge/upstream"
)

// TestRequestAllocations holds how often a request allocates on its whole way over connections in
// memory, rounded. The race detector empties pools at random, so with it there is nothing to hold.
func TestRequestAllocations(t *testing.T) {
	const requests = 5000
	answer := append([]byte(edgetest.BenchAnswer), bytes.Repeat([]byte("x"), 1000)...)
	var table strings.Builder
	observer := observed(func(*edge.Outcome) {})
	tried := try.Module()
	for _, test := range []struct {
		name, yaml string
		change     []func(*edge.Options)
	}{
		{"proxied, no rule", "rules: [{name: r, limit: 1000000000, mode: off}]", nil},
		{"proxied, one rule", "rules: [{name: r, limit: 1000000000}]", nil},
		{"proxied, by key", "rules: [{name: r, limit: 1000000000, key: 'header:User-Agent'}]", nil},
		{"proxied, three rules and two windows", "rules: [{name: s, limit: 1000000, key: host}, " +
			"{name: r, limit: 100000, windows: [{limit: 1000000, window: 1h}]}, " +
			"{name: t, limit: 1000000, match: {path: '/some/*'}}]", nil},
		{"proxied, cost in the answer", "rules: [{name: r, limit: 1000000000, cost: {json: a.b}}]", nil},
		{"refused by a limit", "rules: [{name: r, limit: 1, mitigation_timeout: 0}]", nil},
		{"refused by a block", "rules: [{name: r, limit: 1, mitigation_timeout: 1h}]", nil},
		{"refused by deny", "deny: [198.18.0.0/16]", nil},
		{"redirected by a rule", "rules: [{name: r, limit: 1, action: redirect, " +
			"response: {location: 'https://busy.example/'}}]", nil},
		{"checked", "check_path: /some/*\nrules: [{name: r, limit: 1000000000}]", nil},
		{"proxied, one rule, observed", "rules: [{name: r, limit: 1000000000}]",
			[]func(*edge.Options){observer}},
		{"proxied, one rule, sampled", "rules: [{name: r, limit: 1000000000}]",
			[]func(*edge.Options){edgetest.Using(suggest.Module())}},
		{"proxied, one rule, two tried", "rules: [{name: r, limit: 1000000000}]",
			[]func(*edge.Options){edgetest.Using(tried)}},
		{"proxied, one rule, no maintenance", "rules: [{name: r, limit: 1000000000}]",
			[]func(*edge.Options){edgetest.Using(maintenance.Module())}},
		{"refused by a limit, observed", "rules: [{name: r, limit: 1, mitigation_timeout: 0}]",
			[]func(*edge.Options){observer}},
	} {
		c := edgetest.Parse(t, "source: {trust: [0.0.0.0/0], trust_everybody: true}\n"+
			"origins: [{servers: ['http://127.0.0.1:9']}]\n"+test.yaml)
		s := edgetest.NewServer(t, c, test.change...)
		if strings.HasSuffix(test.name, "tried") {
			tried.Changes.Apply([]changes.Change{trying("a", 1), trying("b", 1_000_000)}, time.Now(),
				slog.New(slog.DiscardHandler))
		}
		o := s.Upstreams().All[0]
		serve := func() {
			link := &upstream.Link{Conn: &edgetest.Repeater{Text: answer}, Origin: o}
			link.Until = time.Now().Add(time.Hour)
			o.Idle = append(o.Idle[:0], link)
			crowd := &edgetest.Crowd{Requests: requests, Sources: 10}
			s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(crowd))
		}
		serve()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		serve()
		runtime.ReadMemStats(&after)
		if got := edgetest.Metrics(t, s)["sluice_received_total"]; got != 2*requests {
			t.Fatalf("%s: %v requests received", test.name, got)
		}
		each := float64(after.Mallocs-before.Mallocs) / requests
		fmt.Fprintf(&table, "%-38s %.0f\n", test.name, each)
	}
	golden.Check(t, "allocations.txt", []byte(table.String()))
}

// trying is a change by which a limit is tried.
func trying(name string, limit int) changes.Change {
	return changes.Read("try:"+name, 1, 1, time.Now(), fmt.Sprintf(
		`{"does":"try","rule":{"limit":%d},"until":"2100-01-01T00:00:00Z"}`, limit))
}
