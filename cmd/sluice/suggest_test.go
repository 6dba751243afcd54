//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/edge/modules/suggest"
	"sluice/edge/view"
)

// Over two edges that share a node, keys send bursts of known lengths, each to one edge, and some a request to the other as well. What either edge suggests
// for the PoP is the limit that the lengths say, counted here, and each source is one.
func TestSuggest(t *testing.T) {
	t.Parallel()
	edges := startPoP(t, writePoP(t, 2), startMemcached(t))
	code, out, wrong := sluice("rules", "set", "all", "limit=1000", "window=5s", "key=[header:X-Api-Key]", "algorithm=sliding", "--admin", edges[0].back)
	if code != 0 || !strings.Contains(out, "all 2 edges") {
		t.Fatalf("%d %s %s", code, out, wrong)
	}
	send := func(at int, key string, n, status int) {
		t.Helper()
		for range n {
			if got := edges[at%2].with("X-Api-Key", key); got != status {
				t.Fatalf("%s: %d, want %d", key, got, status)
			}
		}
	}
	const keys, share = 80, 0.05
	var lengths []int
	for i := range keys {
		n := 3 + i%10
		if i%20 == 0 {
			n = 20
		}
		send(i, fmt.Sprint("key-", i), n, 200)
		if lengths = append(lengths, n); n == 3 {
			send(i+1, fmt.Sprint("key-", i), 1, 200)
		}
	}
	slices.Sort(lengths)
	want := uint64(lengths[keys-1-int(keys*share)]) // it refuses four of them, the 20s
	for i, p := range edges {
		var s struct {
			suggest.Suggestion
			Edges []view.Edge
		}
		p.until("suggesting", func() bool {
			_, body := p.admin("GET", fmt.Sprintf("/v1/rules/all/suggestion?scope=pop&refuse=%v", share))
			s.Edges, s.Suggestion = nil, suggest.Suggestion{}
			must(t, json.Unmarshal([]byte(body), &s))
			return s.Missing == "" && missing(s.Edges) == ""
		})
		if s.Limit != want || s.AtLeast || s.Honest != keys || s.Sources != keys || s.Low > want || s.High != 20 || s.Refused != 0 || len(s.Edges) != 2 {
			t.Errorf("edge %d: %+v, want %d", i, s, want)
		}
		if _, body := p.admin("GET", "/v1/rules/all/suggestion?refuse=0.05"); !strings.Contains(body, `"missing": `) || strings.Contains(body, `"edges"`) {
			t.Errorf("of edge %d alone: %s", i, body)
		}
	}
	for args, want := range map[string]string{
		"suggest all --refuse 5%":  fmt.Sprintf("suggested  limit=%d: at most 5 %% of the sources that look honest would have been refused", want),
		"suggest all":              "not enough was seen yet of sources: 80 look honest, want 368",
		"suggest other":            "no such rule: other",
		"suggest all --refuse 0":   "want a share in percent, such as 1%",
		"suggest all --refuse 90%": "want 0.4% to 50%",
		"suggest":                  "want sluice suggest RULE",
	} {
		code, out, wrong := sluice(append(strings.Fields(args), "--admin", edges[1].back)...)
		if !strings.Contains(out+wrong, want) || (code == 0) != strings.Contains(out, "suggested") {
			t.Errorf("%s: %d %s%s, want %q", args, code, out, wrong, want)
		}
	}
}
