package edge

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
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
	s := newServer(t, parse(t, "origins: [{servers: ['http://127.0.0.1:9']}]\nplans: {key: header:x-api-key, default: free, store: sqlite:"+t.TempDir()+"/plans.db}\nrules: []"))
	apply := func(r rules.Config) {
		t.Helper()
		c := *s.Config()
		c.Rules = []rules.Config{r}
		must(t, s.Apply(&c))
	}
	of := func(addr string) counter.Source { return s.snap.Load().sources.Of(netip.MustParseAddr(addr)) }
	active, busy, late := of("192.0.2.1"), of("192.0.2.2"), of("192.0.2.3")
	now := time.Now()
	ask := func(source counter.Source) bool {
		r := s.snap.Load().rules.Rules[0]
		var d limiter.Decision
		d.Add(&r.Rule, source)
		s.limiter.Decide(&d, now)
		return d.Verdict == limiter.Passed
	}
	stands := func(what string, counts, busyIs, lateIs bool) {
		t.Helper()
		list := s.snap.Load().rules.Rules
		if len(list) == 0 { // off
			list = []*rules.Rule{{Rule: limiter.Rule{Rule: mitigation.Rule{Counter: new(algorithm.Spec)}}}}
		}
		v, _ := s.limiter.Counters.Peek(list[0].Counter, active, now)
		if want := map[bool]float64{true: 3}[counts]; v.Estimate < want-0.1 || v.Estimate > want {
			t.Errorf("%s: %v of the 3 requests count, want %v", what, v.Estimate, want)
		}
		blocked := func(source counter.Source) bool {
			return !s.limiter.Bits.Until(mitigation.Key{Rule: list[0].Counter.ID, Source: source}, now).IsZero()
		}
		if got := [2]bool{blocked(busy), blocked(late)}; got != [2]bool{busyIs, lateIs} {
			t.Errorf("%s: blocked are %t, want %t", what, got, [2]bool{busyIs, lateIs})
		}
		told := 0
		for _, m := range s.Mitigations(now) {
			if m.Mode != rules.Tried {
				told++
			}
		}
		if want := map[bool]int{true: 1}[busyIs] + map[bool]int{true: 1}[lateIs]; told != want {
			t.Errorf("%s: %d blocks are told of, want %d", what, told, want)
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
