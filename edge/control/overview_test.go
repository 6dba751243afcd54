package control

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/mitigation"
)

// An overview shows the blocks of operators first, then the newest, and counts those that it does not show.
func TestOverview(t *testing.T) {
	c := newPlane(t, "rules: [{name: r, limit: 1}, {name: s, limit: 1, mode: shadow}]")
	now := time.Now()
	start := func(rule, source string, ago time.Duration, by mitigation.By) {
		src, err := counter.ParseSource(source)
		if err != nil {
			t.Fatal(err)
		}
		r := c.with.View().Rules.ByName(rule)
		c.with.Limiter.Blocks.Start(mitigation.Key{Rule: r.Counter.ID, Source: src}, mitigation.Bit{Start: now.Add(-ago), End: now.Add(time.Hour), By: by, Version: r.Version()}, now)
	}
	for i := range 9 {
		start("r", fmt.Sprintf("192.0.2.%d", i), time.Duration(i)*time.Second, mitigation.ByEdge)
	}
	start("r", "198.51.100.1", time.Minute, mitigation.ByAdmin)
	start("s", "192.0.2.1", 0, mitigation.ByEdge)
	for _, test := range []struct {
		n                int
		match            func(*Mitigation) bool
		blocked, shadows string
		matching         int
	}{
		{3, nil, "198.51.100.1 192.0.2.0 192.0.2.1", "192.0.2.1", 10},
		{1, nil, "198.51.100.1", "192.0.2.1", 10},
		{20, (&Filter{By: "edge", Text: "192.0.2.8"}).Matches, "192.0.2.8", "", 1},
		{2, (&Filter{Rule: "r", By: "edge"}).Matches, "192.0.2.0 192.0.2.1", "", 9},
	} {
		o := c.Overview(test.n, test.match, now)
		if o.Blocked.InForce != 10 || o.Shadow.InForce != 1 || o.Blocked.Matching != test.matching {
			t.Errorf("%d: %d blocks, %d of shadows, %d match", test.n, o.Blocked.InForce, o.Shadow.InForce, o.Blocked.Matching)
		}
		if b, s := sourcesOf(o.Blocked), sourcesOf(o.Shadow); b != test.blocked || s != test.shadows {
			t.Errorf("%d: %q and %q, want %q and %q", test.n, b, s, test.blocked, test.shadows)
		}
	}
}

func sourcesOf(e Extract) string {
	var list []string
	for _, m := range e.List {
		list = append(list, m.Source)
	}
	return strings.Join(list, " ")
}
