//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/edge/modules/try"
	"sluice/edge/view"
)

// Over two edges that share a node a rule is tried by a key, beside one in force: what it would have refused is held against an exact count of what was
// sent, key by key. It refuses nobody, no header names it, and it is stopped from the other edge.
func TestTry(t *testing.T) {
	t.Parallel()
	edges := startPoP(t, writePoP(t, 2), startMemcached(t))
	const limit, each = 10, 30
	code, out, wrong := sluice("try", fmt.Sprintf("limit=%d window=1h mitigation_timeout=0s key=header:X-Api-Key", limit), "--for", "10m", "--detach", "--admin", edges[0].back)
	if code != 0 || !strings.Contains(out, "try-1 is tried for 10m on all 2 edges of the PoP") {
		t.Fatalf("%d %s %s", code, out, wrong)
	}
	// One key is sent to each edge in turn, with time for what is counted to arrive; others stay within the limit.
	send := func(key string, n int) {
		t.Helper()
		for i := range n {
			p := edges[i%2]
			resp, _ := p.request("GET", p.front, "/", "", "X-Api-Key", key)
			if policy := resp.Header.Get("RateLimit-Policy"); resp.StatusCode != 200 || strings.Contains(policy, "try") {
				t.Fatalf("%s: %d, policy %q", key, resp.StatusCode, policy)
			}
		}
	}
	requests, refused := 0, 0 // exactly
	for i, n := range []int{each, 3, each, limit, 1} {
		send(fmt.Sprint("key-", i), n)
		requests, refused = requests+n, refused+max(n-limit, 0)
	}
	var shown struct {
		Ended  bool
		Result try.Result
		Edges  []view.Edge
	}
	look := func(p *process, method string) {
		t.Helper()
		status, body := p.admin(method, "/v1/tries/try-1?scope=pop")
		if err := json.Unmarshal([]byte(body), &shown); err != nil || status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	look(edges[1], "GET")
	r := &shown.Result
	if int(r.Requests) != requests || r.Sources != (try.Number{N: 5}) || r.RefusedSources != (try.Number{N: 2}) || r.Honest != (try.Number{N: 2}) || r.Known != r.Refused || r.Well != r.Refused || missing(shown.Edges) != "" {
		t.Errorf("%+v %v", r, shown.Edges)
	}
	// An edge knows of what another admitted a round trip later, and more is waited for far below a limit.
	if off := refused - int(r.Refused); off < -2 || off > 6 {
		t.Errorf("%d would be refused, exactly %d", r.Refused, refused)
	}
	if len(r.Heavy) != 2 || !strings.HasPrefix(r.Heavy[0].Source, "#") || r.Commands == 0 || int(r.Commands) > 3*requests {
		t.Errorf("%+v", r)
	}
	for _, path := range []string{"/v1/rules", "/v1/config", "/metrics", "/v1/mitigations"} {
		if _, body := edges[0].admin("GET", path); strings.Contains(body, "try-1") || strings.Contains(body, "try:") {
			t.Errorf("%s shows it", path)
		}
	}
	look(edges[1], "DELETE")
	if !shown.Ended || int(r.Requests) != requests {
		t.Errorf("stopped: %+v", shown)
	}
	send("key-0", 2)
	look(edges[0], "GET")
	if !shown.Ended || int(r.Requests) != requests {
		t.Errorf("it goes on: %+v", shown)
	}
	for args, want := range map[string]string{
		"try list":                         "TRY    STATE  REQUESTS HERE",
		"try show try-1":                   "try-1 (10 in 1h by header:X-Api-Key), begun at edge0",
		"try show other":                   "no such try",
		"try stop try-1":                   "no such try",
		"try limt=5":                       "limt",
		"try limit=5 key=jwt:sub":          "key: jwt:sub: nothing says which tokens are believed: give jwt: {keys_file: FILE}",
		"try limit=5 plans.pro=3":          "plans",
		"try limit=5 --for 1000h":          "--for",
		"try window=1m":                    "limit",
		"try limit":                        "no FIELD=VALUE",
		"try":                              "nothing is to be tried",
		"try show":                         "want try FIELD=VALUE",
		"try limit=5 --file /no/such/file": "/no/such/file",
	} {
		code, out, wrong := sluice(append(strings.Fields(args), "--admin", edges[0].back)...)
		if !strings.Contains(out+wrong, want) || (code == 0) != (args == "try list" || args == "try show try-1") {
			t.Errorf("%s: %d %s%s, want %q", args, code, out, wrong, want)
		}
	}
	// Two operators at two edges in the same instant: both are tried, under names of their own. Of two that want one name, one is told.
	for round := range 3 {
		for _, name := range []string{"", fmt.Sprint("both-", round)} {
			codes, texts := atOnce(edges, "try", "limit=1000", "--for", "10m", "--detach", "--name", name)
			var first, second string
			_, _ = fmt.Sscan(texts[0], &first)
			_, _ = fmt.Sscan(texts[1], &second)
			switch {
			case name == "" && (codes != [2]int{} || first == second):
				t.Errorf("without names: %v %q", codes, texts)
			case name != "" && (codes[0]+codes[1] != 1 || !strings.Contains(texts[0]+texts[1], "a try of that name runs already")):
				t.Errorf("of one name: %v %q", codes, texts)
			}
			for name := range map[string]bool{first: true, second: true, name: true} {
				if name != "" && name != "sluice" {
					edges[0].admin("DELETE", "/v1/tries/"+name)
				}
			}
		}
	}
	// One that is begun and waited for ends by itself, also where the edge that began it is gone.
	began := time.Now()
	if code, out, wrong := sluice("try", "limit=1", "--for", "2s", "--name", "short", "--admin", edges[1].back); code != 0 || !strings.Contains(out, "ended after 2s") {
		t.Errorf("%d %s %s", code, out, wrong)
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it took %v", took)
	}
	_, _, _ = sluice("try", "limit=1", "--for", "3s", "--name", "orphan", "--detach", "--admin", edges[1].back)
	must(t, edges[1].cmd.Process.Kill())
	edges[0].until("ending it", func() bool {
		_, body := edges[0].admin("GET", "/v1/tries/orphan")
		return strings.Contains(body, `"ended": true`)
	})
}

// atOnce runs a command at two edges in the same instant.
func atOnce(edges []*process, args ...string) (codes [2]int, texts [2]string) {
	var both sync.WaitGroup
	for i := range codes {
		both.Go(func() {
			code, out, wrong := sluice(append(slices.Clone(args), "--admin", edges[i].back)...)
			codes[i], texts[i] = code, out+wrong
		})
	}
	both.Wait()
	return codes, texts
}
