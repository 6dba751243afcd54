package command

import (
	"strings"
	"testing"
	"time"

	"sluice/cmd/sluice/internal/settings"
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
		a, err := parseWhy(settings.Reader{}, strings.Fields(test.line))
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
		a, err := parseWhy(settings.Reader{}, []string{test.question})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.about(test.source, new(control.Looked)); got != test.want {
			t.Errorf("asked about %s, an event of %q: %t", test.question, test.source, got)
		}
	}
}

// What an edge knows is told a line a rule and a line an event, and what others wrote is made printable.
func TestWhyTellsWhatAnEdgeKnows(t *testing.T) {
	at := time.Date(2026, 5, 4, 14, 5, 0, 0, time.UTC)
	until := at.Add(time.Hour)
	for _, test := range []struct {
		looked   control.Looked
		happened []events.Event
		edge     control.State
		want     string
	}{
		{control.Looked{Source: "192.0.2.7", Denied: true, Asked: true}, nil, control.State{}, `192.0.2.7
always refused, by the list deny (sluice deny and sluice config show it)
no event about it is among the latest of this edge
`},
		{control.Looked{Source: "192.0.2.7", Allowed: true, Rules: []control.SourceState{
			{Rule: "login", Policy: "login/1h", Limit: 20, Estimate: 12.3456, Remaining: 7},
			{Rule: "inflight", Places: &control.Places{Held: 3, Here: 1, Limit: 4}, OutsideShare: true},
		}}, nil, control.State{LearningUntil: &until}, `192.0.2.7
never limited, by the list allow (sluice allow and sluice config show it)
rule login/1h: 12.35 of 20 requests, 7 left
rule inflight: 3 of 4 in flight, 1 of them here; not about this source, by its share
(as this edge alone knows: it has no memcached nodes, or they have not answered)
(it has started lately, and may not know until 2026-05-04 15:05:00Z whom others had blocked before)
no event about it is among the latest of this edge
`},
		{control.Looked{Source: "192.0.2.7", Asked: true, Rules: []control.SourceState{
			{Rule: "r", Source: "192.0.2.7", Limit: 3, Block: &control.Mitigation{Rule: "*", Source: "192.0.2.0/24", Start: at, End: until, By: "admin", Reason: "a\x1b[31m",
				Kernel: &control.Kernel{Since: at, Attempts: 1234}}},
			{Rule: "s", Source: "192.0.2.7", Limit: 3, Block: &control.Mitigation{Rule: "s", Source: "192.0.2.7", Start: at, End: until, By: "edge", Mode: "shadow"}},
		}}, []events.Event{
			{Time: at, Text: "blocked by this edge", Rule: "r", Until: until, Skipped: 2},
			{Time: until, Text: "lifted", Who: "ada", From: "192.0.2.1"},
		}, control.State{}, `192.0.2.7
rule r: 0 of 3 requests, 0 left; blocked by admin under every rule as 192.0.2.0/24 since 2026-05-04 14:05:00Z until 2026-05-04 15:05:00Z: a·[31m; refused by the kernel since 2026-05-04 14:05:00Z, 1234 attempts
rule s: 0 of 3 requests, 0 left; blocked by edge since 2026-05-04 14:05:00Z until 2026-05-04 15:05:00Z (shadow: nobody is refused)
2026-05-04 14:05:00Z  blocked by this edge, rule r, until 2026-05-04 15:05:00Z (2 such events before it are not kept)
2026-05-04 15:05:00Z  lifted, by ada from 192.0.2.1
`},
	} {
		var out strings.Builder
		if err := printWhy(&out, &test.looked, test.happened, &test.edge); err != nil {
			t.Fatal(err)
		}
		if out.String() != test.want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), test.want)
		}
	}
}
