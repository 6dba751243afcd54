package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/address"
	"sluice/edge/config"
	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// newPlane is the control plane of an edge that counts alone, with this configuration.
func newPlane(t *testing.T, yaml string) *Plane {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(c.Rules, c.RuleDefaults(), func(string) *rules.Tally { return new(rules.Tally) })
	if err != nil {
		t.Fatal(err)
	}
	view := View{Rules: set, Sources: address.NewSources(c.Source), Deny: address.NewPrefixes(c.Deny), Allow: address.NewPrefixes(c.Allow)}
	l := &limiter.Limiter{Counters: counter.New(counter.Options{Counters: 1 << 10}), Bits: mitigation.New(1<<10, nil)}
	return New(Options{Limiter: l, View: func() View { return view }})
}

// A block says why it refuses nobody, or how much more it refuses than was written.
func TestBlockWarnings(t *testing.T) {
	for _, test := range []struct {
		rule, source string
		d            time.Duration
		warning      string // a part of it; "": there is none
		err          string // a part of it; "": there is none
	}{
		{"r", "192.0.2.7", time.Hour, "", ""},
		{AllRules, "192.0.2.0/24", time.Hour, "", ""},
		{"shadow", "192.0.2.7", time.Hour, "is a shadow", ""},
		{"tag", "192.0.2.7", time.Hour, "only tags", ""},
		{"r", "198.51.100.7", time.Hour, "allowed, which goes before", ""},
		{AllRules, "203.0.113.1", time.Hour, "trusted proxy", ""},
		{AllRules, "192.0.2.1/24", time.Hour, "bits behind its length: this blocks all of 192.0.2.0/24", ""},
		{"r", "2001:db8::1", time.Hour, "told apart by /64: this blocks all of 2001:db8::/64", ""},
		{"none", "192.0.2.7", time.Hour, "", "none"},
		{"off", "192.0.2.7", time.Hour, "", ErrOff.Error()},
		{AllRules, "0.0.0.0/7", time.Hour, "", "too wide"},
		{"r", "192.0.2.7", 0, "", "want more than 0"},
		{"r", "192.0.2.7", mitigation.MaxBlock + 1, "", "at most"},
	} {
		t.Run(test.rule+" "+test.source, func(t *testing.T) {
			c := newPlane(t, `
source: {trust: [203.0.113.1]}
allow: [198.51.100.0/24]
rules:
- {name: r, limit: 1}
- {name: shadow, limit: 1, mode: shadow}
- {name: tag, limit: 1, action: tag}
- {name: off, limit: 1, mode: "off"}
`)
			now := time.Now()
			m, err := c.Block(test.rule, test.source, test.d, "", Operator{}, now)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || len(c.Mitigations(now)) > 0 {
					t.Errorf("%v, want an error of %q; in force: %+v", err, test.err, c.Mitigations(now))
				}
				return
			}
			if err != nil || !strings.Contains(m.Warning, test.warning) || test.warning == "" && m.Warning != "" {
				t.Errorf("%v, warns %q, want %q", err, m.Warning, test.warning)
			}
			if list := c.Mitigations(now.Add(time.Hour - 1)); len(list) != 1 || list[0].Rule != test.rule || list[0].By != "admin" {
				t.Errorf("in force: %+v", list)
			}
			if list := c.Mitigations(now.Add(time.Hour)); len(list) > 0 {
				t.Errorf("after its end: %+v", list)
			}
		})
	}
}

// Who is on both lists is denied, and who is taken off one is told if it is on it all the same.
func TestLists(t *testing.T) {
	c := newPlane(t, "deny: [192.0.2.128/25]\nrules: [{name: r, limit: 1}]")
	now := time.Now()
	for i, step := range []struct {
		list, prefix string
		off          bool
		warning      string // a part of it; "": there is none
	}{
		{Deny, "192.0.2.0/24", false, ""},
		{Allow, "192.0.2.7", false, "denied, which goes before"},
		{Allow, "198.51.100.0/24", false, ""},
		{Allow, "198.51.100.7", false, ""},
		{Allow, "198.51.100.7", true, "allowed all the same"},
		{Allow, "198.51.100.0/24", true, ""},
		{Deny, "192.0.2.0/24", true, ""},
		{Deny, "192.0.2.200", true, "denied all the same"},
	} {
		var warning string
		var err error
		if step.off {
			var l Lifted
			l, err = c.Unlist(step.list, step.prefix, Operator{}, now)
			warning = l.Warning
		} else {
			var l Listed
			l, err = c.List(step.list, step.prefix, time.Hour, "", Operator{}, now)
			warning = l.Warning
		}
		if err != nil || !strings.Contains(warning, step.warning) || step.warning == "" && warning != "" {
			t.Errorf("step %d: %v, warns %q, want %q", i, err, warning, step.warning)
		}
	}
	var left []string
	for _, list := range []string{Allow, Deny} {
		for _, l := range c.Listed(list, now) {
			left = append(left, list+" "+l.Prefix)
		}
	}
	if !slices.Equal(left, []string{Allow + " 192.0.2.7"}) {
		t.Errorf("left on the lists: %q", left)
	}
}

// An overview shows the blocks of operators first, then the newest, and counts those that it does not show.
func TestOverview(t *testing.T) {
	c := newPlane(t, "rules: [{name: r, limit: 1}, {name: s, limit: 1, mode: shadow}]")
	now := time.Now()
	start := func(rule, source string, ago time.Duration, by mitigation.By) {
		src, err := counter.ParseSource(source)
		if err != nil {
			t.Fatal(err)
		}
		r := c.view().Rules.ByName(rule)
		c.limiter.Bits.Start(mitigation.Key{Rule: r.Counter.ID, Source: src}, mitigation.Bit{Start: now.Add(-ago), End: now.Add(time.Hour), By: by, Terms: r.Terms()}, now)
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

// Each field of a filter leaves out what it does not ask for.
func TestFilter(t *testing.T) {
	m := Mitigation{Rule: "login", Source: "192.0.2.0/24", Mode: rules.Enforce, By: "admin", Reason: "Scraper of prices"}
	source := func(text string) counter.Source {
		s, err := counter.ParseSource(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, test := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Rule: "login", Mode: rules.Enforce, By: "admin"}, true},
		{Filter{Rule: "r"}, false},
		{Filter{Mode: rules.Shadow}, false},
		{Filter{By: "edge"}, false},
		{Filter{Source: source("192.0.2.7")}, true},
		{Filter{Source: source("192.0.0.0/16")}, true},
		{Filter{Source: source("198.51.100.7")}, false},
		{Filter{Text: "PRICES"}, true},
		{Filter{Text: "log"}, true},
		{Filter{Text: "192.0.2.9"}, true},
		{Filter{Text: "192.0.3.9"}, false},
		{Filter{Text: "shop"}, false},
	} {
		if got := test.f.Matches(&m); got != test.want {
			t.Errorf("%+v: %t", test.f, got)
		}
	}
}

// An operator's order is told as what it did: to whom, for how long, until when and why.
func TestEvent(t *testing.T) {
	at := time.Date(2026, 5, 4, 14, 5, 0, 0, time.UTC)
	for _, test := range []struct {
		rule, reason string
		kind         mitigation.OrderKind
		idle         bool
		want         string
	}{
		{"r", "", mitigation.OrderBlock, false, "r: blocked for 1h0m0s; until 2026-05-04T15:05:00Z by admin"},
		{AllRules, "scraper", mitigation.OrderBlock, false, "*: blocked for 1h0m0s: scraper; until 2026-05-04T15:05:00Z by admin: scraper"},
		{Allow, "", mitigation.OrderBlock, false, "no rule: allowed for 1h0m0s; until 2026-05-04T15:05:00Z by admin"},
		{Deny, "", mitigation.OrderBlock, false, "no rule: denied for 1h0m0s; until 2026-05-04T15:05:00Z by admin"},
		{"r", "", mitigation.OrderLift, false, "r: lifted; "},
		{"r", "", mitigation.OrderLift, true, "r: lifted: nothing was in force here; "},
		{Deny, "", mitigation.OrderLift, false, "no rule: denied no more; "},
	} {
		e := Event(&mitigation.Order{Rule: test.rule, Kind: test.kind, Start: at, End: at.Add(time.Hour), Reason: test.reason}, test.idle, at)
		if got := cmp.Or(e.Rule, "no rule") + ": " + e.Text + "; " + e.New; got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
