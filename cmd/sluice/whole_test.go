//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/view"
)

// whole asks an edge for the whole PoP.
func whole[T any](p *process, path string) (all struct {
	Edges  []view.Edge
	List   []T
	Source control.Looked
	Each   []view.Answered[control.Looked]
}) {
	p.t.Helper()
	status, body := p.admin("GET", path)
	if err := json.Unmarshal([]byte(body), &all); err != nil || status != 200 {
		p.t.Fatalf("%s: %d %s", path, status, body)
	}
	return all
}

// missing are the edges that are not shown, and why.
func missing(edges []view.Edge) string {
	var list []string
	for _, e := range edges {
		if e.Missing != "" {
			list = append(list, e.Name+": "+e.Missing)
		}
	}
	return strings.Join(list, "\n")
}

// Any edge of three answers for all of them: what clients asked of each, whom each has blocked, and what happened, once. One that is killed and one that
// hangs are missing within seconds, and the third still answers.
func TestWholePoP(t *testing.T) {
	t.Parallel()
	edges := startPoP(t, writePoP(t, 3), startMemcached(t))
	for i, p := range edges {
		for range 3 * (i + 1) {
			p.get()
		}
	}
	asked := edges[1]
	if heavy := whole[view.Heavy](asked, "/v1/top?scope=pop"); missing(heavy.Edges) != "" || len(heavy.Edges) != 3 || heavy.Edges[0].Name != "edge1" || heavy.Edges[0].Age != 0 ||
		len(heavy.List) != 1 || heavy.List[0].Count != 18 || heavy.List[0].Error != 0 || fmt.Sprint(heavy.List[0].Edges) != "map[edge0:3 edge1:6 edge2:9]" {
		t.Errorf("heaviest: %+v", heavy)
	}
	_, said := edges[2].say("PUT", "*/192.0.2.9", `{"for":"10m","reason":"scraper"}`)
	edges[0].until("seeing the block once, on all edges", func() bool {
		list := whole[view.Block](edges[0], "/v1/mitigations?scope=pop").List
		return len(list) == 1 && list[0].Source == "192.0.2.9" && list[0].Reason == "scraper" && len(list[0].On) == 3 && list[0].NotOn == nil
	})
	edges[0].until("hearing once of the block", func() bool {
		var told []view.Event
		for _, e := range whole[view.Event](edges[0], "/v1/events?scope=pop&since="+said.Start.Add(-time.Minute).Format(time.RFC3339)).List {
			if e.Source == "192.0.2.9" {
				told = append(told, e)
			}
		}
		return len(told) == 1 && len(told[0].Edges) == 3
	})
	source := whole[int](asked, "/v1/sources/127.0.0.1?scope=pop")
	if len(source.Each) != 3 || missing(source.Edges) != "" || !source.Source.Asked {
		t.Errorf("one source: %+v", source)
	}
	for _, test := range []struct{ args, want string }{
		{"top --pop", "SOURCE REQUESTS EDGES\n127.0.0.1 18 edge2 9, edge1 6, edge0 3\nof 3 of 3 edges: edge1, edge0 ("},
		{"blocked --pop", "SOURCE RULE MODE ACTION BY UNTIL LEFT REASON\n192.0.2.9 * enforce refuse admin"},
		{"blocked --pop --by edge", "nobody is blocked, or nobody like that\nof 3 of 3 edges: "},
		{"events --pop --since 10m", "blocked for 10m: scraper"},
		{"status --pop", "EDGE AGE VERSION REQUESTS REFUSED CONNECTIONS BLOCKED STATE\nedge1 0.0 s devel 6 0 "},
		{"why --pop 127.0.0.1", "\nedge edge1 by itself: "},
	} {
		code, out, wrong := sluice(append(strings.Fields(test.args), "--admin", asked.back)...)
		if code != 0 || !strings.Contains(squeezed(out), test.want) {
			t.Errorf("%s: %d %s\n%s\nwant %q", test.args, code, wrong, squeezed(out), test.want)
		}
	}

	must(t, edges[0].cmd.Process.Kill())
	must(t, edges[2].cmd.Process.Signal(syscall.SIGSTOP))
	defer edges[2].cmd.Process.Signal(syscall.SIGCONT)
	began := time.Now()
	asked.until("missing both", func() bool {
		gone := missing(whole[view.Heavy](asked, "/v1/top?scope=pop").Edges)
		return strings.Contains(gone, "edge0: ") && strings.Contains(gone, "edge2: ")
	})
	if took := time.Since(began); took > 20*time.Second { // five seconds on a machine with nothing else to do
		t.Errorf("after %v", took)
	}
	if heavy := whole[view.Heavy](asked, "/v1/top?scope=pop").List; len(heavy) != 1 || heavy[0].Count != 6 {
		t.Errorf("of the one that is left: %+v", heavy)
	}
	if _, out, _ := sluice("status", "--pop", "--admin", asked.back); !strings.Contains(out, "MISSING: ") || !strings.Contains(out, "without 2 edges that are missing") {
		t.Error(out)
	}
	must(t, edges[2].cmd.Process.Signal(syscall.SIGCONT))
	asked.until("seeing it again", func() bool {
		return !strings.Contains(missing(whole[view.Heavy](asked, "/v1/top?scope=pop").Edges), "edge2")
	})
}
