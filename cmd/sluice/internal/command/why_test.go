package command

import (
	"strings"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/events"
)

// The question is about an address as it is counted, or about all of a prefix; a time of day is one of the latest day in the logs.
func TestWhyQuestion(t *testing.T) {
	for _, test := range []struct {
		line, source, at string
		clock            bool
	}{
		{"192.0.2.7", "192.0.2.7/32", "0001-01-01T00:00:00Z", false},
		{"::ffff:192.0.2.7", "192.0.2.7/32", "0001-01-01T00:00:00Z", false},
		{"2001:db8::1/64", "2001:db8::/64", "0001-01-01T00:00:00Z", false},
		{"192.0.2.7 --at 14:05 a.log b.log.gz", "192.0.2.7/32", "0000-01-01T14:05:00Z", true},
		{"192.0.2.7 --at 14:05:06 a.log", "192.0.2.7/32", "0000-01-01T14:05:06Z", true},
		{"192.0.2.7 --at 2026-05-04T16:05:00+02:00 a.log", "192.0.2.7/32", "2026-05-04T14:05:00Z", false},
	} {
		a, err := parseWhy(strings.Fields(test.line))
		if err != nil {
			t.Errorf("%s: %v", test.line, err)
			continue
		}
		if q := a.question; q.Source.String() != test.source || q.At.Format(time.RFC3339) != test.at || q.Clock != test.clock || q.Around != 10*time.Minute {
			t.Errorf("%s: %+v", test.line, q)
		}
		if want := strings.Count(test.line, ".log"); len(a.logs) != want {
			t.Errorf("%s: logs %q", test.line, a.logs)
		}
	}
}

// Of an edge's events those are about a source that name it, a prefix that holds it, or a part of the prefix that is asked about.
func TestEventsAboutTheSource(t *testing.T) {
	for _, test := range []struct {
		question, source string
		want             bool
	}{
		{"192.0.2.7", "192.0.2.7", true},
		{"192.0.2.7", "192.0.2.8", false},
		{"192.0.2.7", "192.0.2.0/24", true},
		{"192.0.2.0/24", "192.0.2.8", true},
		{"192.0.2.0/24", "192.0.0.0/16", true},
		{"192.0.2.0/24", "198.51.100.0/24", false},
		{"2001:db8::1", "2001:db8::/64", true},
		{"192.0.2.7", "#1a2b", false},
		{"192.0.2.7", "", false},
	} {
		a, err := parseWhy([]string{test.question})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.about(test.source); got != test.want {
			t.Errorf("asked about %s, an event of %q: %t", test.question, test.source, got)
		}
	}
}

// What an edge knows is told a line a rule and a line an event, and what others wrote is made printable.
func TestWhyTellsWhatAnEdgeKnows(t *testing.T) {
	at := time.Date(2026, 5, 4, 14, 5, 0, 0, time.UTC)
	block := &control.Mitigation{Rule: "*", Source: "192.0.2.0/24", Start: at, End: at.Add(time.Hour), By: "admin", Reason: "a\x1b[31m", Mode: "enforce"}
	rule := control.LookedRule{Mitigated: block}
	_ = rule
	for _, test := range []struct {
		looked   control.Looked
		happened []events.Event
		want     []string
	}{
		{control.Looked{Source: "192.0.2.7", Denied: true, Asked: true}, nil,
			[]string{"192.0.2.7", "always refused, by the list deny", "no event about it"}},
	} {
		var out strings.Builder
		if err := tell(&out, &test.looked, test.happened, &control.State{}); err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q, want %q", out.String(), want)
			}
		}
	}
}
