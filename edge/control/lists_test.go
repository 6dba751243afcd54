package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/rules"
)

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
		{Allow, "192.0.2.7", false, ""}, // the longer prefix is right
		{Allow, "192.0.2.128/25", false, "denied, which goes before"},
		{Allow, "192.0.2.128/25", true, ""},
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
