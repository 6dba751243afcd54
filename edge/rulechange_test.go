package edge_test

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/edgetest"
	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/edge/rules/rulestest"
	"sluice/mitigation"
)

// TestFieldsOfARuleChanged: each field of a rule, changed under traffic and back: either the rule goes on counting, and who was blocked stays
// blocked unless more is allowed, or it begins afresh, and nobody is blocked for numbers that meant something else.
func TestFieldsOfARuleChanged(t *testing.T) {
	fields := rulestest.Parts(reflect.TypeFor[rules.Config](), "")
	for _, field := range slices.Concat(slices.Collect(maps.Keys(rulestest.Changes)), slices.Collect(maps.Keys(furtherChanges))) {
		if !slices.Contains(fields, field) {
			t.Errorf("%s is no field of a rule", field)
		}
	}
	for _, field := range fields {
		if rulestest.Changes[field] == nil && furtherChanges[field] == nil {
			t.Errorf("%s: say in rulestest.Changes what becomes of counts and blocks when it is changed", field)
		}
		for _, change := range rulestest.Changes[field] {
			t.Run(field, func(t *testing.T) { testChange(t, change) })
		}
	}
}

func testChange(t *testing.T, f rulestest.Change) {
	before := rules.Default("r", 4)
	before.MitigationTimeout = rules.Duration(10 * time.Minute)
	if f.From != nil {
		f.From(&before)
	}
	after := before
	f.To(&after)
	s := edgetest.NewServer(t, edgetest.Parse(t, "origins: [{servers: ['http://127.0.0.1:9']}]\nplans: {key: header:x-api-key, default: free, store: sqlite:"+t.TempDir()+"/plans.db}\nrules: []"))
	apply := func(r rules.Config) {
		t.Helper()
		c := *s.Config()
		c.Rules = []rules.Config{r}
		edgetest.Must(t, s.Apply(&c))
	}
	of := func(addr string) counter.Source { return s.Sources().Of(netip.MustParseAddr(addr)) }
	active, busy, late := of("192.0.2.1"), of("192.0.2.2"), of("192.0.2.3")
	now := time.Now()
	ask := func(source counter.Source) bool {
		r := s.RuleSet().Rules[0]
		var d limiter.Decision
		d.Add(&r.Rule, source)
		s.Limiter().Decide(&d, now)
		return d.Verdict == limiter.Passed
	}
	stands := func(what string, counts, busyIs, lateIs bool) {
		t.Helper()
		list := s.RuleSet().Rules
		if len(list) == 0 { // off
			list = []*rules.Rule{{Rule: limiter.Rule{Rule: mitigation.Rule{Counter: new(algorithm.Spec)}}}}
		}
		v, _ := s.Limiter().Counters.Peek(list[0].Counter, active, now)
		if want := map[bool]float64{true: 3}[counts]; v.Estimate < want-0.1 || v.Estimate > want {
			t.Errorf("%s: %v of the 3 requests count, want %v", what, v.Estimate, want)
		}
		blocked := func(source counter.Source) bool {
			return !s.Limiter().Blocks.Until(mitigation.Key{Rule: list[0].Counter.ID, Source: source}, now).IsZero()
		}
		if got := [2]bool{blocked(busy), blocked(late)}; got != [2]bool{busyIs, lateIs} {
			t.Errorf("%s: blocked are %t, want %t", what, got, [2]bool{busyIs, lateIs})
		}
		reported := len(s.Mitigations(now))
		if want := map[bool]int{true: 1}[busyIs] + map[bool]int{true: 1}[lateIs]; reported != want {
			t.Errorf("%s: %d blocks are sent, want %d", what, reported, want)
		}
	}
	apply(before)
	for range 3 {
		if !ask(active) {
			t.Fatal("refused within the limit")
		}
	}
	for range 6 {
		ask(busy)
	}
	stands("before", true, true, false)
	apply(after)
	stands("changed", !f.Afresh, !f.Afresh && !f.Lifts, false)
	blocks := after.MitigationTimeout > 0 && !f.Afresh
	if blocks { // a verdict under the changed rule
		for range 6 {
			ask(late)
		}
		stands("blocked under the change", true, !f.Lifts, true)
	}
	apply(before)
	stands("and back", true, !f.Afresh && !f.Lifts, blocks && !f.Tightens)
	if !ask(active) || ask(active) {
		t.Error("after the way back, of two requests not the first alone is within the limit")
	}
}

// furtherChanges are of fields of a rule's other limits, each of which has counters and blocks of its own.
var furtherChanges = map[string][]furtherChange{
	"Windows.Limit":   {{policy: "r/10s", to: func(c *rules.Config) { c.Windows[0].Limit = 6 }, lifts: true}, {policy: "r/10s", to: func(c *rules.Config) { c.Windows[0].Limit = 4 }}},
	"Windows.Window":  {{policy: "r/10s", to: func(c *rules.Config) { c.Windows[0].Window = rules.Duration(11 * time.Second) }, afresh: true}},
	"Prefixes.Limit":  {{policy: "r/24", to: func(c *rules.Config) { c.Prefixes[1].Limit = 40 }, lifts: true}, {policy: "r/24", to: func(c *rules.Config) { c.Prefixes[1].Limit = 31 }}},
	"Prefixes.Prefix": {{policy: "r/24", to: func(c *rules.Config) { c.Prefixes[1].Prefix = 23 }, afresh: true}},
	"Limit":           {{policy: "r/10s", to: func(c *rules.Config) { c.Limit = 21 }}, {policy: "r/24", to: func(c *rules.Config) { c.Limit = 19 }}},
	"MitigationTimeout": {
		{policy: "r/10s", to: func(c *rules.Config) { c.MitigationTimeout = rules.Duration(time.Minute) }, lifts: true},
		{policy: "r/24", to: func(c *rules.Config) { c.MitigationTimeout = 0 }, lifts: true},
	},
	"Match.Methods":  {{policy: "r/24", to: func(c *rules.Config) { c.Match.Methods = []string{"POST"} }, afresh: true}},
	"Count.Statuses": {{policy: "r/10s", to: func(c *rules.Config) { c.Count.Statuses = []int{401} }, afresh: true}},
}

type furtherChange struct {
	policy        string // of the limit that is looked at
	to            func(*rules.Config)
	afresh, lifts bool // as of a rulestest.Change
}

// TestFurtherLimitsChanged: a field of a rule with several limits, changed and changed back: a limit of it that means the same goes on counting, and its
// blocks stand unless it allows more; no other has its numbers or blocks.
func TestFurtherLimitsChanged(t *testing.T) {
	for field, changes := range furtherChanges {
		for _, change := range changes {
			t.Run(field, func(t *testing.T) { change.test(t) })
		}
	}
}

func (f *furtherChange) test(t *testing.T) {
	before := rules.Default("r", 20)
	before.MitigationTimeout = rules.Duration(10 * time.Minute)
	requests := 7
	if f.policy == "r/24" {
		before.Prefixes, requests = []rules.Prefix{{Prefix: 32}, {Prefix: 24, Limit: 32}}, 36
	} else {
		before.Windows = []rules.Window{{Limit: 5, Window: rules.Duration(10 * time.Second)}}
	}
	after := before
	after.Windows, after.Prefixes = append([]rules.Window(nil), before.Windows...), append([]rules.Prefix(nil), before.Prefixes...)
	f.to(&after)
	s := edgetest.NewServer(t, edgetest.Parse(t, "origins: [{servers: ['http://127.0.0.1:9']}]\nrules: []"))
	now := time.Now()
	apply := func(r rules.Config) *rules.Rule {
		t.Helper()
		c := *s.Config()
		c.Rules = []rules.Config{r}
		edgetest.Must(t, s.Apply(&c))
		return s.RuleSet().Rules[0]
	}
	ask := func(r *rules.Rule, addr string) bool {
		var d limiter.Decision
		client := netip.MustParseAddr(addr)
		for i := range r.Limits {
			if source, about := r.Limits[i].Of(s.Sources().Of(client), client); about {
				d.Add(r.Limits[i].Rule, source)
			}
		}
		s.Limiter().Decide(&d, now)
		return d.Verdict == limiter.Passed
	}
	r := apply(before)
	for range 3 {
		if !ask(r, "192.0.2.1") {
			t.Fatal("refused within the limits")
		}
	}
	for i := range requests { // of two addresses, so that neither is over the limit of one
		ask(r, []string{"198.51.100.1", "198.51.100.2"}[i%2*len(r.Config.Prefixes)/2])
	}
	stands := func(what string, r *rules.Rule, counts, blocked bool) {
		t.Helper()
		l := r.Limit(f.policy)
		if l == nil {
			l = &r.Limits[len(r.Limits)-1] // what has taken its place
		}
		of := func(addr string) counter.Source {
			client := netip.MustParseAddr(addr)
			source, _ := l.Of(s.Sources().Of(client), client)
			return source
		}
		v, _ := s.Limiter().Counters.Peek(l.Counter, of("192.0.2.1"), now)
		if want := map[bool]float64{true: 3}[counts]; v.Estimate != want {
			t.Errorf("%s: %v of the 3 requests count, want %v", what, v.Estimate, want)
		}
		if is := !s.Limiter().Blocks.Until(mitigation.Key{Rule: l.Counter.ID, Source: of("198.51.100.1")}, now).IsZero(); is != blocked {
			t.Errorf("%s: blocked is %t, want %t", what, is, blocked)
		}
		if reported, want := len(s.Mitigations(now)), map[bool]int{true: 1}[blocked]; reported != want {
			t.Errorf("%s: %d blocks are sent, want %d", what, reported, want)
		}
	}
	stands("before", r, true, true)
	stands("changed", apply(after), !f.afresh, !f.afresh && !f.lifts)
	stands("and back", apply(before), true, !f.afresh && !f.lifts)
}
