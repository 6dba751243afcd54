package control

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/counter"
	"sluice/edge/rules/key"
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

// An overview says what is known of an address, and of a prefix only where it is one client's: a wider one may be anywhere.
func TestOverviewKnowsPlaces(t *testing.T) {
	c := newPlane(t, "rules: [{name: r, limit: 1}]")
	view := c.with.View()
	view.Facts = []*key.Fact{
		{Name: "country", Mark: "country:", Find: func(b []byte, v *key.View) []byte { return append(b, "DE"...) }},
		{Name: "asn", Mark: "asn:", Before: "AS ", Find: func(b []byte, v *key.View) []byte {
			if v.Client.Is4() {
				b = append(b, "64500"...)
			}
			return b
		}},
		{Name: "ja4", Find: func(b []byte, _ *key.View) []byte { return append(b, "of a request"...) }},
	}
	c.with.View = func() View { return view }
	now := time.Now()
	want := map[string]string{"192.0.2.7": "DE, AS 64500", "2001:db8::/64": "DE", "192.0.2.0/24": "", "#00000000000000000000000000000001": ""}
	for source := range want {
		src, err := counter.ParseSource(source)
		if err != nil {
			t.Fatal(err)
		}
		r := view.Rules.ByName("r")
		c.with.Limiter.Blocks.Start(mitigation.Key{Rule: r.Counter.ID, Source: src}, mitigation.Bit{Start: now, End: now.Add(time.Hour), Version: r.Version()}, now)
	}
	got := make(map[string]string)
	for _, m := range c.Overview(10, nil, now).Blocked.List {
		got[m.Source] = m.Known
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
