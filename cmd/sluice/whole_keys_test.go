//go:build system

package main

import (
	"fmt"
	"strings"
	"testing"

	"sluice/edge/view"
)

// What a key asked of each edge is added as what an address did, for all rules or one, and it is shown as it is at one edge.
func TestKeysOfPoP(t *testing.T) {
	t.Parallel()
	file := write(t, "pop: {secret_file: "+write(t, popKey)+"}\nrules:\n  - {name: api, key: [\"header:X-Api-Key\"], limit: 1000, show_key: 6}\n  - {name: other, key: [\"header:X-Other\"], limit: 1000}\n")
	node, site := startMemcached(t), origin(t)
	var edges []*process
	for i := range 2 {
		edges = append(edges, start(t, site, "--config", withEdgeID(t, file, fmt.Sprint("edge", i)), "--memcached", node))
	}
	meet(edges...)
	for i, p := range edges {
		for range 3 * (i + 1) {
			p.request("GET", p.front, "/", "", "X-Api-Key", "secret-of-a-client", "X-Other", "something")
		}
	}
	keys := whole[view.HeavyKey](edges[0], "/v1/top?kind=key&scope=pop&rule=api")
	if len(keys.List) != 1 || missing(keys.Edges) != "" {
		t.Fatalf("%+v", keys)
	}
	if h := keys.List[0]; h.Count != 9 || h.Error != 0 || h.Key != "header:X-Api-Key" || h.KeyStart != "secret" || fmt.Sprint(h.Rules, h.Edges) != "[api] map[edge0:3 edge1:6]" {
		t.Errorf("%+v", h)
	}
	if all := whole[view.HeavyKey](edges[1], "/v1/top?kind=key&scope=pop").List; len(all) != 2 || all[0].Count != 9 || all[1].Count != 9 {
		t.Errorf("of all rules: %+v", all)
	}
	if _, out, _ := sluice("top", "--kind", "key", "--pop", "--rule", "api", "--admin", edges[1].back); !strings.Contains(squeezed(out), "secret… header:X-Api-Key 9 edge1 6, edge0 3\nof 2 of 2 edges: ") {
		t.Error(out)
	}
	if code, _, wrong := sluice("top", "--kind", "key", "--pop", "--rule", "none", "--admin", edges[1].back); code != 1 || !strings.Contains(wrong, "none") {
		t.Errorf("%d %s", code, wrong)
	}
}
