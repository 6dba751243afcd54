package limiter

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/inflight"
	"sluice/mitigation"
)

// epoch is when the tests' time begins. It has no monotonic reading, so differences are exact.
var epoch = time.Unix(1_700_000_000, 0)

// second is an instant of a test.
func second(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

func ip(s string) counter.Source { return counter.SourceOf(netip.MustParseAddr(s), 32, 64) }

var a, b = ip("192.0.2.1"), ip("192.0.2.2")

// newRule is a rule of so many hits in ten seconds that mitigates for twenty, changed as the test needs it.
func newRule(t testing.TB, name string, limit uint32, change ...func(*Rule)) *Rule {
	t.Helper()
	c, err := algorithm.NewSliding(name, limit, 10*time.Second, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	r := &Rule{Rule: mitigation.Rule{Counter: c, Timeout: 20 * time.Second}}
	for _, c := range change {
		c(r)
	}
	return r
}

func shadow(r *Rule)                      { r.Shadow = true }
func throttle(r *Rule)                    { r.Timeout = 0 }
func attempts(r *Rule)                    { r.Refused = true }
func statuses(s ...int) func(*Rule)       { return func(r *Rule) { r.Statuses = s } }
func posture(p FailurePolicy) func(*Rule) { return func(r *Rule) { r.OnStoreFailure = p } }
func waits(r *Rule)                       { r.FirstSight = Wait }
func repeats(r *Rule) {
	r.Repeat = mitigation.Repeat{Timeouts: []time.Duration{40 * time.Second, 100 * time.Second}, Within: 30 * time.Second}
}
func newLimiter(tier bool) *Limiter {
	return &Limiter{Counters: counter.New(counter.Options{Counters: 1000, Tier: tier}), Blocks: mitigation.New(1000, nil)}
}

// bench is a limiter with rules, and a hand to use it.
type bench struct {
	*Limiter
	rules []*Rule
	d     Decision
}

func newBench(rules ...*Rule) *bench { return &bench{Limiter: newLimiter(false), rules: rules} }

// decide asks all rules about a source.
func (b *bench) decide(source counter.Source, at time.Time) *Decision {
	begin(&b.d, source, b.rules...)
	b.Decide(&b.d, at)
	return &b.d
}

func begin(d *Decision, source counter.Source, rules ...*Rule) {
	d.Reset()
	for _, r := range rules {
		d.Add(r, source)
	}
}

// step is a request at a second of the story, and what must become of it.
type step struct {
	at      float64
	source  counter.Source
	verdict Verdict
	rule    string // whose answer the client gets; "": no matter
	wait    time.Duration
}

func TestDecide(t *testing.T) {
	repeat := func(n int, s step) (list []step) { return slices.Repeat([]step{s}, n) }
	rule := func(name string, limit uint32, change ...func(*Rule)) *Rule {
		return newRule(t, name, limit, change...)
	}
	for _, story := range []struct {
		name  string
		rules []*Rule
		steps []step
	}{
		{"a mitigation starts with the first request over the limit and ends when it said", []*Rule{rule("r", 2)},
			[]step{{0, a, Passed, "r", 0}, {0, a, Passed, "r", 0}, {1, a, Limited, "r", 20 * time.Second}, {2, b, Passed, "r", 0},
				{20.9, a, Mitigated, "r", 100 * time.Millisecond}, {21, a, Passed, "r", 0}}},
		{"a throttle has no bit, and admits again after its wait", []*Rule{rule("r", 2, throttle)},
			[]step{{0, a, Passed, "", 0}, {0, a, Passed, "", 0}, {1, a, Limited, "r", -1}, {2, a, Limited, "r", -1}, {11.5, a, Passed, "", 0}}},
		{"one refusal counts in no rule", []*Rule{rule("tight", 1, throttle), rule("wide", 3, throttle)},
			append([]step{{0, a, Passed, "tight", 0}}, append(repeat(5, step{1, a, Limited, "tight", -1}),
				step{11.8, a, Passed, "tight", 0})...)},
		{"the rule with the least left is reported", []*Rule{rule("wide", 100), rule("narrow", 5)},
			[]step{{0, a, Passed, "narrow", 0}}},
		{"the longest wait is reported", []*Rule{rule("short", 1, throttle), rule("long", 1)},
			[]step{{0, a, Passed, "", 0}, {1, a, Limited, "long", 20 * time.Second}, {2, a, Mitigated, "long", 19 * time.Second}}},
		{"a shadow refuses nobody, and its bit holds under the shadow alone", []*Rule{rule("r", 1, shadow)},
			[]step{{0, a, Passed, "", 0}, {1, a, Shadowed, "", 0}, {2, a, Shadowed, "", 0}, {22, a, Passed, "", 0}}},
		{"an enforcing rule beside a shadow is the one that is reported", []*Rule{rule("s", 1, shadow), rule("e", 3)},
			[]step{{0, a, Passed, "e", 0}, {1, a, Shadowed, "e", 0}, {1, a, Shadowed, "e", 0}, {1, a, Limited, "e", 20 * time.Second}}},
		{"who comes back is blocked for longer, and is forgotten in time", []*Rule{rule("r", 1, repeats)},
			[]step{{0, a, Passed, "", 0}, {0, a, Limited, "r", 20 * time.Second}, {20, a, Passed, "", 0}, {21, a, Limited, "r", 40 * time.Second}, {22, b, Passed, "", 0}, {23, b, Limited, "r", 20 * time.Second},
				{60, a, Mitigated, "r", time.Second}, {61, a, Passed, "", 0}, {62, a, Limited, "r", 100 * time.Second},
				{170, a, Passed, "", 0}, {171, a, Limited, "r", 100 * time.Second}, {301.5, a, Passed, "", 0}, {302, a, Limited, "r", 20 * time.Second}}},
		{"no rule says nothing", nil, repeat(3, step{0, a, Passed, "", 0})},
		{"attempts count where a rule says so", []*Rule{rule("r", 1, throttle, attempts)},
			[]step{{0, a, Passed, "", 0}, {5, a, Limited, "", -1}, {11.8, a, Limited, "", -1}, {18, a, Limited, "", -1}, {29.5, a, Passed, "", 0}}},
		{"attempts that count in a shadow are not reported", []*Rule{rule("e", 1), rule("s", 2, shadow, attempts, func(r *Rule) {
			r.Counter, _ = algorithm.NewSliding("s", 2, time.Minute, 12, algorithm.Nearest)
		})}, []step{{0, a, Passed, "e", 0}, {1, a, Limited, "e", 20 * time.Second}}},
	} {
		t.Run(story.name, func(t *testing.T) {
			bench := newBench(story.rules...)
			for i, s := range story.steps {
				d := bench.decide(s.source, second(s.at))
				if d.Verdict != s.verdict {
					t.Fatalf("step %d at %vs: verdict %v, want %v", i, s.at, d.Verdict, s.verdict)
				}
				if s.rule != "" && (d.Reported == nil || d.Reported.Rule.Counter.Name != s.rule) {
					t.Fatalf("step %d: reported %v, want %s", i, d.Reported, s.rule)
				}
				if s.rule != "" && s.wait >= 0 && d.Reported.Wait != s.wait {
					t.Fatalf("step %d: wait %v, want %v", i, d.Reported.Wait, s.wait)
				}
				if s.wait < 0 && d.Refused() && d.Reported.Wait <= 0 {
					t.Fatalf("step %d: refused without a wait", i)
				}
			}
		})
	}
}

// Whoever waits as long as a refusal says is admitted, whatever rule refused.
func TestRetryIsAdmitted(t *testing.T) {
	f := func(rules ...*Rule) {
		t.Helper()
		bench, at, retries := newBench(rules...), epoch, 0
		for i := range 300 {
			d := bench.decide(a, at)
			if !d.Refused() {
				at = at.Add(137 * time.Millisecond)
				continue
			}
			for range i % 4 { // in vain, and counted where attempts count
				at = at.Add(71 * time.Millisecond)
				d = bench.decide(a, at)
			}
			if !d.Refused() {
				continue
			}
			wait := d.Reported.Wait
			at = at.Add(wait)
			if d := bench.decide(a, at); d.Refused() {
				r := d.Reported.Rule
				t.Fatalf("limit %d in %v, %d sub-windows, %v, timeout %v: refused after its wait of %v, now for %v", r.Counter.Limit, r.Counter.Window,
					r.Counter.SubWindows, r.Counter.Estimate, r.Timeout, wait, d.Reported.Wait)
			}
			retries++
		}
		if retries < 5 {
			t.Fatalf("%d retries, and the test shows nothing", retries)
		}
	}
	rule := func(name string, limit uint32, window time.Duration, sub int, e algorithm.Estimate, timeout time.Duration, refused bool) *Rule {
		c, err := algorithm.NewSliding(name, limit, window, sub, e)
		if err != nil {
			t.Fatal(err)
		}
		return &Rule{Rule: mitigation.Rule{Counter: c, Timeout: timeout}, Refused: refused}
	}
	for _, refused := range []bool{false, true} {
		for _, limit := range []uint32{1, 2, 3, 7, 20} {
			for _, window := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
				for _, sub := range []int{1, 2, 4, 8, 12} {
					for _, e := range []algorithm.Estimate{algorithm.Nearest, algorithm.Lower} {
						for _, timeout := range []time.Duration{0, time.Second, 20 * time.Second} {
							if window/time.Duration(limit) < 137*time.Millisecond {
								continue // never over
							}
							f(rule("r", limit, window, sub, e, timeout, refused))
						}
					}
				}
			}
		}
	}
	// What one rule refuses another may count, and its turn comes later.
	f(rule("short", 1, time.Second, 12, algorithm.Nearest, 0, false), rule("long", 3, 10*time.Second, 12, algorithm.Nearest, 0, true))
	f(rule("short", 1, time.Second, 12, algorithm.Lower, 0, true), rule("long", 3, 10*time.Second, 4, algorithm.Lower, 0, true))
}

func TestPostures(t *testing.T) {
	down := ip("192.0.2.9")
	for _, test := range []struct {
		posture FailurePolicy
		source  counter.Source
		want    [3]Verdict
		skipped int
	}{
		{"", down, [3]Verdict{Passed, Limited, Mitigated}, 0},
		{Local, down, [3]Verdict{Passed, Limited, Mitigated}, 0},
		{Open, down, [3]Verdict{Passed, Passed, Passed}, 3},
		{Closed, down, [3]Verdict{FailedClosed, FailedClosed, FailedClosed}, 3},
		{Open, a, [3]Verdict{Passed, Limited, Mitigated}, 0},
		{Closed, a, [3]Verdict{Passed, Limited, Mitigated}, 0},
	} {
		bench := newBench(newRule(t, "r", 1, posture(test.posture)))
		bench.Up = func(s counter.Source) bool { return s != down }
		var got [3]Verdict
		skipped := 0
		for i := range got {
			d := bench.decide(test.source, second(float64(i)))
			if got[i] = d.Verdict; d.Results[0].Skipped {
				skipped++
			}
		}
		if got != test.want || skipped != test.skipped {
			t.Errorf("%q, source %v: %v and %d skipped, want %v and %d", test.posture, test.source, got, skipped, test.want, test.skipped)
		}
	}
}

// A shadow that would fail closed refuses nobody.
func TestShadowFailsClosed(t *testing.T) {
	bench := newBench(newRule(t, "r", 1, shadow, posture(Closed)))
	bench.Up = func(counter.Source) bool { return false }
	if d := bench.decide(a, epoch); d.Verdict != Shadowed || d.Refused() || d.Reported != nil {
		t.Errorf("verdict %v, reported %v", d.Verdict, d.Reported)
	}
}

// A source that was mitigated before its node went down stays refused with 429, whatever the failure policy.
func TestMitigatedStaysMitigatedWithoutTier(t *testing.T) {
	for _, p := range []FailurePolicy{Local, Open, Closed} {
		up := true
		bench := newBench(newRule(t, "r", 1, posture(p)))
		bench.Up = func(counter.Source) bool { return up }
		bench.decide(a, epoch)
		bench.decide(a, epoch)
		up = false
		if d := bench.decide(a, second(1)); d.Verdict != Mitigated {
			t.Errorf("%s: %v, want mitigated", p, d.Verdict)
		}
	}
}

func TestCountByStatus(t *testing.T) {
	bench := newBench(newRule(t, "login", 2, statuses(401, 403)))
	for i, s := range []struct {
		status int
		want   Verdict
	}{{200, Passed}, {200, Passed}, {200, Passed}, {401, Passed}, {0, Passed}, {403, Passed}, {200, Limited}} {
		d := bench.decide(a, epoch)
		if got := d.Verdict; got != s.want {
			t.Fatalf("try %d: %v, want %v", i, got, s.want)
		}
		bench.Settle(d, s.status, epoch)
		bench.Settle(d, s.status, epoch) // changes nothing
	}
}

// TestParallelLogins: requests that are still under way hold their places, so that not all of a thousand in parallel pass. One that finds
// no place is refused, but nobody is mitigated: the others may turn out not to count.
func TestParallelLogins(t *testing.T) {
	for _, refused := range []bool{false, true} {
		login := newRule(t, "login", 5, statuses(401), func(r *Rule) { r.Refused = refused })
		l := newLimiter(false)
		var tries [6]Decision
		for i := range tries {
			begin(&tries[i], a, login)
			l.Decide(&tries[i], epoch)
			if refused := i == 5; tries[i].Refused() != refused {
				t.Fatalf("try %d of 6: %v", i+1, tries[i].Verdict)
			}
		}
		reported := tries[5].Reported
		if tries[5].Verdict != Limited || reported.Wait < time.Second || !reported.Until.IsZero() {
			t.Errorf("the sixth: %v, wait of %v, blocked until %v", tries[5].Verdict, reported.Wait, reported.Until)
		}
		if until := l.Blocks.Until(reported.key(), epoch); !until.IsZero() {
			t.Errorf("blocked until %v though nothing has counted", until)
		}
		for i := range tries[:5] {
			l.Settle(&tries[i], 200, second(0.1))
		}
		begin(&tries[0], a, login)
		if l.Decide(&tries[0], second(0.2)); tries[0].Verdict != Passed {
			t.Errorf("after five logins that succeeded: %v", tries[0].Verdict)
		}
		l.Settle(&tries[0], 0, second(0.3))
	}
}

// Logins that fail do count: the one after the limit starts a mitigation.
func TestFailedLogins(t *testing.T) {
	bench := newBench(newRule(t, "login", 5, statuses(401)))
	for range 5 {
		bench.Settle(bench.decide(a, epoch), 401, epoch)
	}
	if d := bench.decide(a, second(1)); d.Verdict != Limited || !d.Reported.Until.Equal(second(21)) {
		t.Errorf("the sixth: %v, blocked until %v", d.Verdict, d.Reported.Until)
	}
}

// TestRefusedHoldsNoSlot: what another rule refuses counts as an attempt where attempts count, and waits for no answer.
func TestRefusedHoldsNoSlot(t *testing.T) {
	tight, login := newRule(t, "tight", 1, throttle), newRule(t, "login", 5, statuses(401), attempts)
	bench := newBench(tight, login)
	bench.Settle(bench.decide(a, epoch), 200, epoch)
	for range 3 {
		if d := bench.decide(a, epoch); !d.Refused() || d.Held {
			t.Fatalf("verdict %v, held %v", d.Verdict, d.Held)
		}
	}
	if v, _ := bench.Counters.Peek(login.Counter, a, second(30)); v.Estimate != 0 {
		t.Errorf("thirty seconds later %v hits are left of those refused", v.Estimate)
	}
}

// Of a request that is refused before any counter is asked, none counts anything, whichever rule refuses; and where a shadow or a tag has
// something against it, the others count it all the same.
func TestRefusedWithoutTheTier(t *testing.T) {
	block := func(b *bench, r *Rule) {
		b.Blocks.Start(mitigation.Key{Rule: r.Counter.ID, Source: a}, mitigation.Bit{Start: epoch, End: second(9), By: mitigation.ByPoP}, epoch)
	}
	for _, test := range []struct {
		name    string
		first   *Rule
		blocked bool // before
		learns  bool // that it is while it waits
		up      bool
		verdict Verdict
		counted float64 // by another rule
		asked   int     // questions for the other rule, which waits as well
	}{
		{"blocked", newRule(t, "first", 9), true, false, true, Mitigated, 0, 0},
		{"blocked in a shadow", newRule(t, "first", 9, shadow), true, false, true, Shadowed, 1, 1},
		{"blocked in a shadow that waits", newRule(t, "first", 9, shadow, waits), true, false, true, Shadowed, 1, 1},
		{"blocked where it is tagged", newRule(t, "first", 9, tags), true, false, true, Tagged, 1, 1},
		{"blocked, as the tier says", newRule(t, "first", 9, waits), false, true, true, Mitigated, 0, 2},
		{"blocked in a shadow, as the tier says", newRule(t, "first", 9, waits, shadow), false, true, true, Shadowed, 1, 2},
		{"not blocked", newRule(t, "first", 9, waits), false, false, true, Passed, 1, 2},
		{"closed", newRule(t, "first", 9, posture(Closed)), false, false, false, FailedClosed, 0, 0},
		{"closed, with a tier", newRule(t, "first", 9, posture(Closed)), false, false, true, Passed, 1, 1},
		{"closed in a shadow", newRule(t, "first", 9, posture(Closed), shadow), false, false, false, Shadowed, 1, 0},
		{"closed in a shadow that blocks", newRule(t, "first", 9, posture(Closed), shadow), true, false, false, Shadowed, 1, 0},
		{"open", newRule(t, "first", 9, posture(Open)), false, false, false, Passed, 1, 0},
	} {
		for _, order := range []string{"first", "last"} {
			other := newRule(t, "other", 9, waits)
			bench := newBench(test.first, other)
			if order == "last" {
				slices.Reverse(bench.rules)
			}
			tier := bench.withTier(func() {
				if test.learns {
					block(bench, test.first)
				}
			})
			bench.Up = func(counter.Source) bool { return test.up }
			if test.blocked {
				block(bench, test.first)
			}
			d := bench.decide(a, epoch)
			v, _ := bench.Counters.Peek(other.Counter, a, epoch)
			refused := test.verdict == Mitigated || test.verdict == FailedClosed
			if d.Verdict != test.verdict || d.Refused() != refused || v.Estimate != test.counted || tier.asked != test.asked {
				t.Errorf("%s, %s: %v, %v counted, %d questions; want %v, %v, %d", test.name, order, d.Verdict, v.Estimate, tier.asked, test.verdict, test.counted, test.asked)
			}
			for i := range d.Results {
				r := &d.Results[i]
				if skipped := !test.up && (r.Rule.OnStoreFailure == Open || r.Rule.OnStoreFailure == Closed && !test.blocked); r.Skipped != skipped {
					t.Errorf("%s, %s: skipped %v", test.name, r.Rule.Counter.Name, r.Skipped)
				}
			}
		}
	}
}

// A block refuses, whatever else is in force beside it.
func TestBlockedTwice(t *testing.T) {
	for _, rules := range [][]*Rule{{newRule(t, "first", 9), newRule(t, "second", 9, shadow)}, {newRule(t, "first", 9, tags), newRule(t, "second", 9)}} {
		other := newRule(t, "other", 9)
		bench := newBench(append(rules, other)...)
		for _, r := range rules {
			bench.Blocks.Start(mitigation.Key{Rule: r.Counter.ID, Source: a}, mitigation.Bit{Start: epoch, End: second(9), By: mitigation.ByPoP}, epoch)
		}
		if d := bench.decide(a, epoch); d.Verdict != Mitigated || d.Results[2].Reservation != nil {
			t.Errorf("%v, and the other rule was asked: %v", d.Verdict, d.Results[2].Reservation != nil)
		}
	}
}

// What operators say under a rule holds under its variants, and what they say of all that a source is in; the latest
// end is returned.
func TestOperatorsAndVariants(t *testing.T) {
	wider := counter.SourceOf(netip.MustParseAddr("192.0.2.0"), 24, 64)
	base, variant := newRule(t, "base", 9), newRule(t, "variant", 9)
	variant.VariantOf = base.Counter.ID
	type said struct {
		rule   *Rule
		source counter.Source
		by     mitigation.By
		until  float64
	}
	for _, test := range []struct {
		name  string
		said  []said
		until float64 // 0: it passes
	}{
		{"nothing", nil, 0},
		{"under the rule", []said{{base, a, mitigation.ByAdmin, 5}}, 5},
		{"a verdict under the rule is of another limit", []said{{base, a, mitigation.ByPoP, 5}}, 0},
		{"of all around", []said{{base, wider, mitigation.ByAdmin, 5}}, 5},
		{"a verdict under the variant, which ends later", []said{{base, a, mitigation.ByAdmin, 5}, {base, wider, mitigation.ByAdmin, 6}, {variant, a, mitigation.ByEdge, 7}}, 7},
		{"of all around, which ends later", []said{{base, a, mitigation.ByAdmin, 5}, {variant, a, mitigation.ByEdge, 6}, {base, wider, mitigation.ByAdmin, 7}}, 7},
		{"of the source, which ends later", []said{{base, wider, mitigation.ByAdmin, 5}, {variant, a, mitigation.ByEdge, 6}, {base, a, mitigation.ByAdmin, 7}}, 7},
	} {
		b := newBench(variant)
		for _, s := range test.said {
			b.Blocks.Start(mitigation.Key{Rule: s.rule.Counter.ID, Source: s.source}, mitigation.Bit{Start: epoch, End: second(s.until), By: s.by}, epoch)
		}
		begin(&b.d, a, variant)
		b.d.WiderPrefixes = b.Blocks.WiderPrefixes(netip.MustParsePrefix("192.0.2.1/32"), nil)
		b.Decide(&b.d, epoch)
		switch d := &b.d; {
		case test.until == 0 && d.Verdict != Passed, test.until > 0 && (d.Verdict != Mitigated || !d.Reported.Until.Equal(second(test.until))):
			t.Errorf("%s: %v, %+v; want until %v", test.name, d.Verdict, d.Reported, test.until)
		}
	}
}

// A throttle returns the time until there is room, also if that is short: only for requests that are still under way it
// is unknown.
func TestThrottleReportsShortWaits(t *testing.T) {
	bench := newBench(newRule(t, "r", 2, throttle))
	bench.decide(a, epoch)
	bench.decide(a, epoch)
	at := epoch
	for range 20 {
		d := bench.decide(a, at)
		if !d.Refused() {
			t.Fatalf("admitted after %v, without a wait of less than a second", at.Sub(epoch))
		}
		if d.Reported.Wait < time.Second {
			if again := bench.decide(a, at.Add(d.Reported.Wait)); again.Refused() {
				t.Errorf("wait of %v, and refused then", d.Reported.Wait)
			}
			return
		}
		at = at.Add(700 * time.Millisecond)
	}
	t.Error("no wait of less than a second")
}

// TestCombine: one verdict of all rules, and which of them the client's headers report.
func TestCombine(t *testing.T) {
	type expected struct {
		name    string
		verdict Verdict
		wait    time.Duration
		left    uint32
		delay   time.Duration
		change  func(*Rule)
	}
	pass := func(name string, left uint32, delay time.Duration) expected {
		return expected{name, Passed, 0, left, delay, func(*Rule) {}}
	}
	no := func(name string, v Verdict, wait time.Duration) expected {
		return expected{name, v, wait, 0, 0, func(*Rule) {}}
	}
	spares := func(change func(*Rule), s expected) expected { s.change = change; return s }
	for _, test := range []struct {
		name            string
		say             []expected
		verdict         Verdict
		reported, cause string
		wait, delay     time.Duration
	}{
		{"the least left", []expected{pass("a", 3, 0), pass("b", 2, 0), pass("c", 2, 0)}, Passed, "b", "b", 0, 0},
		{"the longest delay", []expected{pass("a", 1, 1), pass("b", 2, 3), pass("c", 3, 2)}, Passed, "a", "a", 0, 3},
		{"no delay longer than the longest", []expected{pass("a", 1, time.Hour)}, Passed, "a", "a", 0, MaxDelay},
		{"nor one by a shadow", []expected{pass("a", 1, 1), spares(shadow, pass("b", 0, 5))}, Passed, "a", "a", 0, 1},
		{"a shadow alone", []expected{spares(shadow, pass("a", 1, 0))}, Passed, "", "a", 0, 0},
		{"the longest shadow", []expected{pass("a", 1, 2), no("b", Shadowed, 1), no("c", Shadowed, 3), no("d", Shadowed, 2), no("e", Shadowed, 3)}, Shadowed, "a", "c", 3, 2},
		{"the longest tag, before a shadow", []expected{no("a", Shadowed, 9), no("b", Tagged, 1), no("c", Tagged, 3), no("d", Tagged, 3), pass("e", 1, 0)}, Tagged, "e", "c", 3, 0},
		{"the longest refusal, before all", []expected{pass("a", 1, 5), no("b", Shadowed, 9), no("c", Tagged, 9), no("d", Limited, 1), no("e", Mitigated, 3), no("f", FailedClosed, 3)}, Mitigated, "e", "e", 3, 0},
		{"until all admit a retry", []expected{spares(attempts, no("a", Passed, 7)), no("b", Limited, 1), no("c", Limited, 3)}, Limited, "c", "c", 7, 0},
	} {
		var d Decision
		for _, s := range test.say {
			d.Add(newRule(t, s.name, 9, s.change), a)
		}
		for i, s := range test.say {
			r := &d.Results[i]
			r.Verdict, r.Wait, r.Reservation = s.verdict, s.wait, &counter.Reservation{Verdict: counter.Verdict{Remaining: s.left, Delay: s.delay}}
		}
		d.combine()
		name := func(r *RuleResult) string {
			if r == nil {
				return ""
			}
			return r.Rule.Counter.Name
		}
		if d.Verdict != test.verdict || name(d.Reported) != test.reported || name(d.Cause) != test.cause || d.Cause.Wait != test.wait || d.Delay != test.delay {
			t.Errorf("%s: %v, reported %s, cause %s, wait %v, delay %v; want %+v", test.name, d.Verdict, name(d.Reported), name(d.Cause), d.Cause.Wait, d.Delay, test)
		}
	}
}

// TestBlocks: a block is one that refuses, while it is in force.
func TestBlocks(t *testing.T) {
	bench := newBench(newRule(t, "r", 1))
	bench.decide(a, epoch)
	if r := bench.rules[0]; bench.IsBlocked(r, a, nil, epoch) {
		t.Error("a source within its limit is blocked")
	} else if bench.decide(a, epoch); !bench.IsBlocked(r, a, nil, epoch) || bench.IsBlocked(r, b, nil, epoch) || bench.IsBlocked(r, a, nil, second(20)) {
		t.Error("a source over its limit is not blocked, or another is, or it is at the end")
	}
}

// tier is a tier that a test plays: it is asked, and answers when a request waits.
type tier struct {
	asked  int
	waited int
	answer func()
}

func (b *bench) withTier(answer func()) *tier {
	t := &tier{answer: answer}
	b.Counters = counter.New(counter.Options{Counters: 1000, Tier: true})
	b.Fetch = func(*algorithm.Spec, counter.Source) { t.asked++ }
	b.Wait = func(replies []<-chan struct{}) {
		t.waited += len(replies)
		if t.answer != nil {
			t.answer()
		}
	}
	return t
}

// TestFirstSightWaits: a request of a source that nobody here knows is decided on what the tier answers.
func TestFirstSightWaits(t *testing.T) {
	r := newRule(t, "r", 5, waits)
	bench := newBench(r)
	var replies []<-chan struct{}
	tier := bench.withTier(nil)
	bench.Wait = func(channels []<-chan struct{}) {
		replies = slices.Clone(channels)
		oldest, newest := bench.Counters.Reports().Groups(r.Counter, epoch, 0)
		bench.Counters.Reports().Apply(counter.Counter{Rule: r.Counter, Source: a}, newest, append([]uint64{5}, make([]uint64, newest-oldest)...), 0, epoch)
	}
	if d := bench.decide(a, epoch); d.Verdict != Limited || tier.asked != 1 || len(replies) != 1 {
		t.Fatalf("verdict %v after %d questions and waiting for %d counters, want limited after 1", d.Verdict, tier.asked, len(replies))
	}
	select {
	case <-replies[0]:
	default:
		t.Error("the reply woke no request")
	}
}

// TestFirstSightAsksTogether: a request waits once for all its counters.
func TestFirstSightAsksTogether(t *testing.T) {
	bench := newBench(newRule(t, "a", 5, waits), newRule(t, "b", 5), newRule(t, "c", 5, waits), newRule(t, "d", 5, waits, posture(Open)))
	tier, waits := bench.withTier(nil), 0
	tier.answer = func() { waits++ }
	if d := bench.decide(a, epoch); d.Verdict != Passed || tier.asked != 3 || tier.waited != 3 || waits != 1 {
		t.Errorf("verdict %v, %d questions, %d waits for %d answers", d.Verdict, tier.asked, waits, tier.waited)
	}
	bench.Up = func(counter.Source) bool { return false }
	if d := bench.decide(b, epoch); d.Verdict != Passed || tier.asked != 3 {
		t.Errorf("without a tier: verdict %v, %d questions", d.Verdict, tier.asked-3)
	}
}

// TestFirstSightIsOnce: of a source that the tier has answered about, requests are decided without it.
func TestFirstSightIsOnce(t *testing.T) {
	r := newRule(t, "r", 5, waits)
	bench := newBench(r)
	tier := bench.withTier(func() {
		oldest, newest := bench.Counters.Reports().Groups(r.Counter, epoch, 0)
		bench.Counters.Reports().Apply(counter.Counter{Rule: r.Counter, Source: a}, newest, append([]uint64{2}, make([]uint64, newest-oldest)...), 0, epoch)
	})
	for i, want := range []Verdict{Passed, Passed, Passed, Limited} {
		if d := bench.decide(a, epoch); d.Verdict != want {
			t.Errorf("request %d: %v, want %v", i, d.Verdict, want)
		}
	}
	if tier.asked != 1 || tier.waited != 1 {
		t.Errorf("%d questions, %d waited; want one for the first request", tier.asked, tier.waited)
	}
}

// TestFirstSightWithoutAnswer: as long as the tier has not answered about a source, each of its requests waits; without
// a tier, none does.
func TestFirstSightWithoutAnswer(t *testing.T) {
	bench := newBench(newRule(t, "r", 5, waits))
	tier := bench.withTier(nil)
	for n := range 3 {
		if d := bench.decide(a, epoch); d.Verdict != Passed || tier.waited != n+1 {
			t.Errorf("request %d: %v, %d waited", n, d.Verdict, tier.waited)
		}
	}
	bench.Wait = nil
	if d := bench.decide(b, epoch); d.Verdict != Passed || tier.asked != 1 {
		t.Errorf("%v, %d questions though nobody waits", d.Verdict, tier.asked)
	}
	alone := newBench(newRule(t, "r", 5, waits))
	alone.Wait = func([]<-chan struct{}) { t.Error("waits for nobody") }
	if d := alone.decide(a, epoch); d.Verdict != Passed {
		t.Error(d.Verdict)
	}
}

// TestFirstSightLearnsOfABlock: the tier's answer may bring a bit, and then no counter is asked.
func TestFirstSightLearnsOfABlock(t *testing.T) {
	for _, is := range []func(*Rule){waits, shadow} {
		r := newRule(t, "r", 5, waits, is)
		bench := newBench(r)
		bench.withTier(func() {
			bench.Blocks.Start(mitigation.Key{Rule: r.Counter.ID, Source: a}, mitigation.Bit{Start: epoch, End: second(9), By: mitigation.ByPoP}, epoch)
		})
		want := Mitigated
		if r.Shadow {
			want = Shadowed
		}
		d := bench.decide(a, epoch)
		if d.Verdict != want || d.Cause.Wait != 9*time.Second || d.Cause.Reservation != nil {
			t.Errorf("verdict %v for %v, counter asked: %v; want %v for 9s", d.Verdict, d.Cause.Wait, d.Cause.Reservation != nil, want)
		}
		if n := bench.Counters.Stats().Counters; n != 0 {
			t.Errorf("%d counters were made", n)
		}
	}
}

// TestFirstSightAsksOnce: of several requests that wait for one counter, the first asks.
func TestFirstSightAsksOnce(t *testing.T) {
	bench := newBench(newRule(t, "r", 5, waits))
	tier := bench.withTier(nil)
	others := make([]Decision, 3)
	tier.answer = func() {
		if len(others) > 0 { // while the first waits, the next comes
			d := &others[0]
			others = others[1:]
			begin(d, a, bench.rules...)
			bench.Decide(d, epoch)
		}
	}
	bench.decide(a, epoch)
	if tier.asked != 1 || tier.waited != 4 {
		t.Errorf("%d questions for %d requests that waited, want 1 for 4", tier.asked, tier.waited)
	}
}

// What is decided again does not know of what was before.
func TestReset(t *testing.T) {
	bench := newBench(newRule(t, "r", 1))
	bench.decide(a, epoch)
	bench.decide(a, epoch)
	bench.d.Reset()
	if d := &bench.d; d.Refused() || d.Reported != nil || d.Cause != nil || len(d.Results) != 0 {
		t.Errorf("after Reset: %+v", d)
	}
	for _, r := range bench.d.Results[:cap(bench.d.Results)] {
		if r.Rule != nil {
			t.Errorf("rule %s lives on", r.Rule.Counter.Name)
		}
	}
	// What is used again without being written whole is clear.
	slow := newBench(newRule(t, "slow", 9, concurrency(5)))
	slow.InFlight = inflight.New(inflight.Options{})
	d := slow.decide(a, epoch)
	d.Reset()
	for _, ask := range d.reservations[:cap(d.reservations)] {
		if ask != (counter.Reservation{}) {
			t.Errorf("%+v lives on", ask)
		}
	}
	for _, reply := range d.replies[:cap(d.replies)] {
		if reply != nil {
			t.Error("a reply lives on")
		}
	}
	if len(d.reservations)+len(d.replies)+len(d.slots)+len(d.kept) > 0 || d.inFlight {
		t.Error("something is left")
	}
}

// Deciding allocates nothing for a source that is known, admitted, refused or mitigated.
func TestDecideAllocatesNothing(t *testing.T) {
	for _, rules := range [][]*Rule{
		{newRule(t, "r", 1_000_000)},
		{newRule(t, "a", 1_000_000), newRule(t, "b", 10_000), newRule(t, "c", 1_000_000, throttle)},
		{newRule(t, "r", 1)},
		{newRule(t, "r", 1, throttle)},
		{newRule(t, "r", 1, throttle, attempts), newRule(t, "s", 1000, attempts)},
		{newRule(t, "r", 1, shadow)},
		{newRule(t, "r", 1_000_000, statuses(401))},
	} {
		bench, at := newBench(rules...), epoch
		for range 10 {
			bench.Settle(bench.decide(a, at), 401, at)
		}
		if n := testing.AllocsPerRun(1000, func() {
			at = at.Add(time.Microsecond)
			bench.Settle(bench.decide(a, at), 200, at)
		}); n != 0 {
			t.Errorf("%d rules, %s: %v allocations", len(rules), bench.d.Verdict, n)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	const sources = 100_000
	list := make([]counter.Source, sources)
	for i := range list {
		list[i] = counter.SourceOf(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32, 64)
	}
	run := func(name string, l *bench, rounds int, gap time.Duration) {
		b.Run(name, func(b *testing.B) {
			l.Counters, l.Blocks = counter.New(counter.Options{Counters: 1 << 20}), mitigation.New(1<<20, nil)
			at := epoch
			for range rounds {
				for _, s := range list {
					l.decide(s, at)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				at = at.Add(gap)
				l.decide(list[i%sources], at)
			}
		})
	}
	var rules []*Rule
	for i := range 3 {
		rules = append(rules, newRule(b, fmt.Sprint("r", i), 10_000))
	}
	run("sources=100000/rules=1", newBench(rules[:1]...), 1, time.Microsecond)
	run("sources=100000/rules=3", newBench(rules...), 1, time.Microsecond)
	run("sources=100000/tags", newBench(newRule(b, "r", 10_000, tags)), 1, time.Microsecond)
	run("sources=100000/costs", newBench(newRule(b, "r", 10_000, costs)), 1, time.Microsecond)
	run("sources=100000/mitigated", newBench(newRule(b, "r", 1)), 3, 0)
}

// What operators say of a source, or of a prefix around it, under a rule holds for its variants; a verdict by the rule's own limit does not.
func TestVariant(t *testing.T) {
	r := newRule(t, "r", 1)
	v := newRule(t, "r limit 5", 5, func(v *Rule) { v.VariantOf = r.Counter.ID })
	x := newBench(v)
	key := mitigation.Key{Rule: r.Counter.ID, Source: a}
	x.Blocks.Start(key, mitigation.Bit{Start: epoch, End: second(20), By: mitigation.ByEdge}, epoch)
	if d := x.decide(a, second(1)); d.Refused() {
		t.Errorf("refused for what it did under another limit: %+v", d.Reported)
	}
	x.Blocks.Start(key, mitigation.Bit{Start: epoch, End: second(30), By: mitigation.ByAdmin}, second(1))
	if d := x.decide(a, second(2)); d.Verdict != Mitigated || !d.Reported.Until.Equal(second(30)) {
		t.Errorf("%v until %v, want what the operator said", d.Verdict, d.Reported.Until)
	}
	if d := x.decide(b, second(2)); d.Refused() {
		t.Error("another source is refused")
	}
	wider := counter.SourceOf(netip.MustParseAddr("192.0.2.0"), 24, 64)
	x.Blocks.Start(mitigation.Key{Rule: r.Counter.ID, Source: wider}, mitigation.Bit{Start: epoch, End: second(40), By: mitigation.ByAdmin}, second(3))
	begin(&x.d, b, v)
	x.d.WiderPrefixes = []counter.Source{wider}
	if x.Decide(&x.d, second(4)); x.d.Verdict != Mitigated || !x.d.Reported.Until.Equal(second(40)) {
		t.Errorf("%v, want the block of its prefix", x.d.Verdict)
	}
	if d := x.decide(a, second(31)); d.Refused() {
		t.Error("refused after the end of the block")
	}
}
