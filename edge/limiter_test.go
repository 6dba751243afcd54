package edge

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"sluice/counter"
	"sluice/mitigation"
)

// epoch is when the tests' time begins. It has no monotonic reading, so differences are exact.
var epoch = time.Unix(1_700_000_000, 0)

// bench is a limiter with rules, and a hand to use it without HTTP.
type bench struct {
	limiter limiter
	rules   *ruleset
	d       decision

	host, path, method []byte
}

func newBench(t testing.TB, tier Tier, rules ...RuleConfig) *bench {
	t.Helper()
	stats := newStats()
	set, err := newRuleset(&Config{Rules: rules}, stats.tally)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{rules: set, host: []byte("example.com"), path: []byte("/"), method: []byte("GET"), limiter: limiter{
		table: counter.New(counter.Options{Counters: 1 << 18, Tier: tier.Up != nil || tier.Ask != nil}),
		bits:  mitigation.New(1<<16, nil), tier: tier, budget: 50 * time.Millisecond,
	}}
	return b
}

// decide asks all rules about a source.
func (b *bench) decide(source counter.Source, at time.Time) *decision {
	b.d.reset()
	b.d.found = b.rules.match(b.d.found[:0], b.host, b.path, b.method)
	for _, r := range b.d.found {
		b.d.add(r, source)
	}
	b.limiter.decide(&b.d, at)
	return &b.d
}

func ip(s string) counter.Source { return counter.SourceOf(netip.MustParseAddr(s), 32, 64) }

// ruleOf is a rule of so many hits in ten seconds, changed as the test needs it.
func ruleOf(name string, limit uint32, change ...func(*RuleConfig)) RuleConfig {
	r := DefaultRule(name, limit)
	r.Window, r.MitigationTimeout = Duration(10*time.Second), Duration(20*time.Second)
	for _, c := range change {
		c(&r)
	}
	return r
}

func shadow(r *RuleConfig)   { r.Mode = Shadow }
func throttle(r *RuleConfig) { r.MitigationTimeout = 0 }

func posture(p Posture) func(*RuleConfig) { return func(r *RuleConfig) { r.OnStoreFailure = p } }

// step is a request at a second of the story, and what must become of it.
type step struct {
	at      float64 // seconds
	source  string
	verdict Verdict
	rule    string // whose answer the client gets; "": no matter
	wait    time.Duration
}

func TestDecide(t *testing.T) {
	const a, b = "192.0.2.1", "192.0.2.2"
	repeat := func(n int, s step) (list []step) {
		for range n {
			list = append(list, s)
		}
		return list
	}
	stories := []struct {
		name  string
		rules []RuleConfig
		steps []step
	}{
		{"a mitigation starts with the first request over the limit and ends when it said", []RuleConfig{ruleOf("r", 2)},
			[]step{{0, a, Passed, "r", 0}, {0, a, Passed, "r", 0}, {1, a, Limited, "r", 20 * time.Second}, {2, b, Passed, "r", 0},
				{20.9, a, Mitigated, "r", 100 * time.Millisecond}, {21, a, Passed, "r", 0}}},
		{"a throttle has no bit, and admits again when told", []RuleConfig{ruleOf("r", 2, throttle)},
			[]step{{0, a, Passed, "", 0}, {0, a, Passed, "", 0}, {1, a, Limited, "r", -1}, {2, a, Limited, "r", -1}, {11.5, a, Passed, "", 0}}},
		{"one refusal counts in no rule", []RuleConfig{ruleOf("tight", 1, throttle), ruleOf("wide", 3, throttle)},
			append([]step{{0, a, Passed, "tight", 0}}, append(repeat(5, step{1, a, Limited, "tight", -1}),
				step{11.8, a, Passed, "tight", 0})...)},
		{"the rule with the least left is told", []RuleConfig{ruleOf("wide", 100), ruleOf("narrow", 5)},
			[]step{{0, a, Passed, "narrow", 0}}},
		{"the longest wait is told", []RuleConfig{ruleOf("short", 1, throttle), ruleOf("long", 1)},
			[]step{{0, a, Passed, "", 0}, {1, a, Limited, "long", 20 * time.Second}, {2, a, Mitigated, "long", 19 * time.Second}}},
		{"a shadow refuses nobody, and its bit holds under the shadow alone", []RuleConfig{ruleOf("r", 1, shadow)},
			[]step{{0, a, Passed, "", 0}, {1, a, Shadowed, "", 0}, {2, a, Shadowed, "", 0}, {22, a, Passed, "", 0}}},
		{"an enforcing rule beside a shadow is the one that is told", []RuleConfig{ruleOf("s", 1, shadow), ruleOf("e", 3)},
			[]step{{0, a, Passed, "e", 0}, {1, a, Shadowed, "e", 0}, {1, a, Shadowed, "e", 0}, {1, a, Limited, "e", 20 * time.Second}}},
		{"a rule that is off says nothing", []RuleConfig{ruleOf("r", 1, func(r *RuleConfig) { r.Mode = Off })},
			repeat(3, step{0, a, Passed, "", 0})},
		{"attempts count where a rule says so", []RuleConfig{ruleOf("r", 1, throttle, func(r *RuleConfig) { r.Count.Refused = true })},
			[]step{{0, a, Passed, "", 0}, {5, a, Limited, "", -1}, {11.8, a, Limited, "", -1}, {18, a, Limited, "", -1}, {29.5, a, Passed, "", 0}}},
	}
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			bench := newBench(t, Tier{}, story.rules...)
			for i, s := range story.steps {
				d := bench.decide(ip(s.source), epoch.Add(time.Duration(s.at*float64(time.Second))))
				if d.Verdict != s.verdict {
					t.Fatalf("step %d at %vs: verdict %v, want %v", i, s.at, d.Verdict, s.verdict)
				}
				if s.rule != "" && (d.Rule == nil || d.Rule.rule.config.Name != s.rule) {
					t.Fatalf("step %d: told of %v, want %s", i, d.Rule, s.rule)
				}
				if s.rule != "" && s.wait >= 0 && d.Rule.wait != s.wait {
					t.Fatalf("step %d: wait %v, want %v", i, d.Rule.wait, s.wait)
				}
				if s.wait < 0 && d.refused() && d.Rule.wait <= 0 {
					t.Fatalf("step %d: refused without a wait", i)
				}
			}
		})
	}
}

// Whoever waits as long as a refusal says is admitted, whatever rule refused.
func TestRetryAfterIsHonest(t *testing.T) {
	for limit := uint32(1); limit <= 7; limit++ {
		for _, change := range []func(*RuleConfig){throttle, func(*RuleConfig) {}, func(r *RuleConfig) { r.MitigationTimeout = Duration(time.Second) }} {
			b := newBench(t, Tier{}, ruleOf("r", limit, change))
			at := epoch
			for i := range 200 {
				d := b.decide(ip("192.0.2.1"), at)
				if i > 0 && !d.refused() {
					at = at.Add(137 * time.Millisecond)
					continue
				}
				if d.refused() {
					at = at.Add(time.Duration(seconds(d.Rule.wait)) * time.Second)
					if d := b.decide(ip("192.0.2.1"), at); d.refused() {
						t.Fatalf("limit %d: refused after the time that it was told to wait: %v", limit, d.Rule.wait)
					}
				}
			}
		}
	}
}

func TestPostures(t *testing.T) {
	down := ip("192.0.2.9")
	for _, test := range []struct {
		posture Posture
		source  string
		want    [3]Verdict
		skipped uint64
	}{
		{Local, "192.0.2.9", [3]Verdict{Passed, Limited, Mitigated}, 0},
		{Open, "192.0.2.9", [3]Verdict{Passed, Passed, Passed}, 3},
		{Closed, "192.0.2.9", [3]Verdict{Shut, Shut, Shut}, 3},
		{Open, "192.0.2.1", [3]Verdict{Passed, Limited, Mitigated}, 0},
		{Closed, "192.0.2.1", [3]Verdict{Passed, Limited, Mitigated}, 0},
	} {
		tier := Tier{Up: func(s counter.Source) bool { return s != down }}
		b := newBench(t, tier, ruleOf("r", 1, posture(test.posture)))
		var got [3]Verdict
		for i := range got {
			got[i] = b.decide(ip(test.source), epoch.Add(time.Duration(i)*time.Second)).Verdict
		}
		tally := b.rules.rules[0].tally
		if skipped := tally.open.Load() + tally.closed.Load(); got != test.want || skipped != test.skipped {
			t.Errorf("%s, source %s: %v and %d skipped, want %v and %d", test.posture, test.source, got, skipped, test.want, test.skipped)
		}
	}
}

// A source that was mitigated before its node went down stays refused with 429, whatever the posture.
func TestMitigatedStaysMitigatedWithoutTier(t *testing.T) {
	for _, p := range []Posture{Local, Open, Closed} {
		up := true
		b := newBench(t, Tier{Up: func(counter.Source) bool { return up }}, ruleOf("r", 1, posture(p)))
		b.decide(ip("192.0.2.1"), epoch)
		b.decide(ip("192.0.2.1"), epoch)
		up = false
		if d := b.decide(ip("192.0.2.1"), epoch.Add(time.Second)); d.Verdict != Mitigated {
			t.Errorf("%s: %v, want mitigated", p, d.Verdict)
		}
	}
}

func TestCountByStatus(t *testing.T) {
	b := newBench(t, Tier{}, ruleOf("login", 2, func(r *RuleConfig) { r.Count.Statuses = []int{401, 403} }))
	try := func(status int) Verdict {
		d := b.decide(ip("192.0.2.1"), epoch)
		b.limiter.settle(d, status, epoch)
		return d.Verdict
	}
	for i, s := range []struct {
		status int
		want   Verdict
	}{{200, Passed}, {200, Passed}, {200, Passed}, {401, Passed}, {0, Passed}, {403, Passed}, {200, Limited}} {
		if got := try(s.status); got != s.want {
			t.Fatalf("try %d: %v, want %v", i, got, s.want)
		}
	}
}

// Answers that are still to come hold their place: a thousand parallel tries cannot all pass.
func TestCountByStatusHolds(t *testing.T) {
	b := newBench(t, Tier{}, ruleOf("login", 2, func(r *RuleConfig) { r.Count.Statuses = []int{401} }))
	var open [3]decision
	for i := range open {
		open[i].add(b.rules.rules[0], ip("192.0.2.1"))
		b.limiter.decide(&open[i], epoch)
	}
	if open[1].Verdict != Passed || open[2].Verdict != Limited {
		t.Fatalf("verdicts %v, %v, %v", open[0].Verdict, open[1].Verdict, open[2].Verdict)
	}
}

func TestFirstSightWaits(t *testing.T) {
	var table *counter.Table
	asked := 0
	tier := Tier{
		Up: func(counter.Source) bool { return true },
		Ask: func(r *counter.Rule, s counter.Source) {
			asked++
			key := counter.Counter{Rule: r, Source: s}
			if report, ok := table.Take(key, epoch); ok { // the tier answers at once
				for i := range report.N {
					table.Counted(key, report.Parts[i], report.Parts[i].Hits, epoch)
				}
			}
		},
	}
	b := newBench(t, tier, ruleOf("r", 5, func(r *RuleConfig) { r.FirstSight = Wait }))
	table = b.limiter.table
	b.limiter.budget = time.Millisecond
	if d := b.decide(ip("192.0.2.1"), epoch); d.Verdict != Passed || asked != 1 {
		t.Fatalf("verdict %v after %d questions", d.Verdict, asked)
	}
}

func TestTalliesCountEachRequestInEachRule(t *testing.T) {
	b := newBench(t, Tier{}, ruleOf("a", 2), ruleOf("b", 100), ruleOf("s", 1, shadow))
	for i := range 10 {
		b.decide(ip("192.0.2.1"), epoch.Add(time.Duration(i)*time.Millisecond))
	}
	for _, r := range b.rules.rules {
		sum := uint64(0)
		for v := range verdicts {
			sum += r.tally.verdicts[v].Load()
		}
		if sum != 10 {
			t.Errorf("rule %s: %d requests, want 10", r.config.Name, sum)
		}
	}
}

// The request path allocates nothing for a source that it knows, admitted, refused or mitigated.
func TestDecideAllocatesNothing(t *testing.T) {
	for _, rules := range [][]RuleConfig{
		{ruleOf("r", 1_000_000)},
		{ruleOf("a", 1_000_000), ruleOf("b", 10_000), ruleOf("c", 1_000_000, throttle)},
		{ruleOf("r", 1)},
		{ruleOf("r", 1, throttle)},
		{ruleOf("r", 1, shadow)},
	} {
		b := newBench(t, Tier{}, rules...)
		at := epoch
		for range 10 {
			b.decide(ip("192.0.2.1"), at)
		}
		if n := testing.AllocsPerRun(1000, func() {
			at = at.Add(time.Microsecond)
			b.decide(ip("192.0.2.1"), at)
		}); n != 0 {
			t.Errorf("%d rules, %s: %v allocations", len(rules), b.d.Verdict, n)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, sources := range []int{100_000} {
		list := make([]counter.Source, sources)
		for i := range list {
			list[i] = counter.SourceOf(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32, 64)
		}
		for _, rules := range []int{1, 3} {
			b.Run(fmt.Sprintf("sources=%d/rules=%d", sources, rules), func(b *testing.B) {
				var configs []RuleConfig
				for i := range rules {
					configs = append(configs, ruleOf(fmt.Sprint("r", i), 10_000))
				}
				l := newBench(b, Tier{}, configs...)
				l.limiter.table = counter.New(counter.Options{Counters: 1 << 20})
				at := epoch
				for _, s := range list {
					l.decide(s, at)
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					at = at.Add(time.Microsecond)
					l.decide(list[i%sources], at)
				}
			})
		}
		b.Run(fmt.Sprintf("sources=%d/mitigated", sources), func(b *testing.B) {
			l := newBench(b, Tier{}, ruleOf("r", 1))
			l.limiter.bits = mitigation.New(1<<20, nil)
			for range 3 {
				for _, s := range list {
					l.decide(s, epoch)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				l.decide(list[i%sources], epoch)
			}
		})
	}
}
