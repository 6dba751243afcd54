package view

import (
	"fmt"
	"slices"
	"testing"

	"sluice/edge/control"
	"sluice/edge/top"
)

// Keys are added by what they are of and their digest; where one is not listed it may have the rest. What is known of one stays with it.
func TestTopKeys(t *testing.T) {
	key := func(of, source string, count uint64, rules ...string) control.HeavyKey {
		return control.HeavyKey{Heavy: top.Heavy{Source: source, Count: count, Error: 1}, Key: of, KeyStart: "k-" + source, Rules: rules}
	}
	list := func(rest uint64, keys ...control.HeavyKey) *Part {
		return &Part{Keys: map[string]control.KeyList{"requests": {Heavy: keys, Rest: rest}}}
	}
	p := parts(list(2, key("header:A", "#1", 10, "api"), key("header:B", "#1", 4, "other")), nil, list(3, key("header:A", "#1", 5, "api"), key("header:A", "#2", 7)))
	told := func(by, rule string, n int) (got []string) {
		for _, h := range p.TopKeys(by, n, rule) {
			got = append(got, fmt.Sprint(h.Key, h.Source, " ", h.KeyStart, " ", h.Count, "-", h.Error, " ", h.Rules, " ", h.Edges))
		}
		return got
	}
	first := "header:A#1 k-#1 15-2 [api] map[edge0:10 edge2:5]"
	want := []string{first, "header:A#2 k-#2 9-3 [] map[edge2:7]", "header:B#1 k-#1 7-4 [other] map[edge0:4]"}
	if got := told("requests", "", 9); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := told("requests", "api", 9); !slices.Equal(got, []string{first}) {
		t.Errorf("of a rule: %q", got)
	}
	if got := parts(list(0, key("header:X-A", "#1", 4)), list(0, key("header:x-a", "#1", 3))).TopKeys("requests", 9, ""); len(got) != 1 || got[0].Count != 7 || got[0].Key != "header:X-A" {
		t.Errorf("one header in two spellings: %+v", got)
	}
	if one, none := told("requests", "", 1), told("refused", "", 9); len(one) != 1 || len(none) != 0 {
		t.Errorf("one: %q; none: %q", one, none)
	}
	long := list(1, key("a", "#1", 9), key("a", "#2", 8), key("a", "#3", 7))
	if long.halve(); len(long.Keys["requests"].Heavy) != 1 || long.Keys["requests"].Rest != 8 {
		t.Errorf("halved: %+v", long.Keys)
	}
}
