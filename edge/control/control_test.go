package control

import (
	"cmp"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/address"
	"sluice/edge/config"
	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/mitigation"
)

// newPlane is the control plane of an edge that counts alone, with this configuration.
func newPlane(t *testing.T, yaml string) *Admin {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(c.Rules, c.RuleDefaults(), func(string) *rules.Tally { return new(rules.Tally) })
	if err != nil {
		t.Fatal(err)
	}
	view := View{Rules: set, Sources: address.NewSources(c.Source), Deny: address.NewGroup(c.Deny), Allow: address.NewGroup(c.Allow),
		Facts: []*key.Fact{{Name: "jwt", Argument: "CLAIM"}}}
	l := &limiter.Limiter{Counters: counter.New(counter.Options{Counters: 1 << 10}), Blocks: mitigation.New(1<<10, nil)}
	return New(Options{Limiter: l, View: func() View { return view }})
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
		{"r", "", mitigation.OrderBlock, false, "r: blocked for 1h; until 2026-05-04T15:05:00Z by admin"},
		{AllRules, "scraper", mitigation.OrderBlock, false, "*: blocked for 1h: scraper; until 2026-05-04T15:05:00Z by admin: scraper"},
		{Allow, "", mitigation.OrderBlock, false, "no rule: allowed for 1h; until 2026-05-04T15:05:00Z by admin"},
		{Deny, "", mitigation.OrderBlock, false, "no rule: denied for 1h; until 2026-05-04T15:05:00Z by admin"},
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
