package limiter

import (
	"testing"
)

func tags(r *Rule)  { r.Tag = true }
func costs(r *Rule) { r.Costs = true }

// A rule that tags lets all go on, counts what is within its limit alone, and blocks as one does that refuses; what others count and refuse is
// as if it were not there.
func TestTagged(t *testing.T) {
	soft, hard := newRule(t, "soft", 2, tags), newRule(t, "hard", 5)
	l := newBench(soft, hard)
	for n, want := range []Verdict{Passed, Passed, Tagged, Tagged, Tagged, Limited, Mitigated} {
		d := l.decide(a, second(0))
		if d.Verdict != want || d.Refused() != (want == Limited || want == Mitigated) || d.Reported == nil || d.Reported.Rule != hard {
			t.Fatalf("request %d: %v, reported %+v, want %v", n, d.Verdict, d.Reported, want)
		}
		if r := &d.Results[0]; want != Passed && want != Mitigated && (r.Verdict != Tagged || r.Until != second(20) || (r.Reservation == nil) != (n > 2)) {
			t.Errorf("request %d: the rule says %v until %v", n, r.Verdict, r.Until)
		}
	}
	if v, _ := l.Counters.Peek(soft.Counter, a, second(0)); v.Estimate != 2 {
		t.Errorf("it has counted %v, want 2", v.Estimate)
	}
	if v, _ := l.Counters.Peek(hard.Counter, a, second(0)); v.Estimate != 5 {
		t.Errorf("the other has counted %v, want 5", v.Estimate)
	}
	if l.IsBlocked(soft, a, nil, second(0)) || !l.IsBlocked(hard, a, nil, second(0)) {
		t.Error("a rule that tags blocks, or one that refuses does not")
	}
	if d := l.decide(a, second(20.5)); d.Verdict != Passed {
		t.Errorf("after its mitigation: %v", d.Verdict)
	}
	alone := newBench(newRule(t, "alone", 1, tags))
	for n := range 2 {
		if d := alone.decide(a, second(0)); d.Reported != nil || d.Cause == nil {
			t.Errorf("request %d alone: the client gets %+v", n, d.Reported)
		}
	}
}

// A request takes what it costs; what is known only later is held as 1, and what comes out counts in its place.
func TestCosts(t *testing.T) {
	r, other := newRule(t, "r", 10, costs, throttle), newRule(t, "other", 100)
	l := newBench(r, other)
	ask := func(hits uint32, due bool) *Decision {
		begin(&l.d, a, l.rules...)
		l.d.Results[0].Hits, l.d.Results[0].Due = hits, due
		l.Decide(&l.d, second(0))
		return &l.d
	}
	counted := func(what string, want float64) {
		t.Helper()
		if v, _ := l.Counters.Peek(r.Counter, a, second(0)); v.Estimate != want {
			t.Errorf("%s: %v are counted, want %v", what, v.Estimate, want)
		}
	}
	if d := ask(7, false); d.Verdict != Passed || d.Held || d.Results[0].Reservation.Remaining != 3 {
		t.Errorf("7 of 10: %v, %+v", d.Verdict, d.Results[0].Reservation)
	}
	if d := ask(4, false); d.Verdict != Limited || d.Reported.Wait <= 0 {
		t.Errorf("4 more: %v", d.Verdict)
	}
	counted("what was refused costs nothing", 7)
	d := ask(1, true)
	if d.Verdict != Passed || !d.Held {
		t.Errorf("one that is due: %v, held %v", d.Verdict, d.Held)
	}
	counted("while it is due", 8)
	d.Results[0].Hits = 30
	l.Settle(d, 200, second(0))
	counted("when it is settled", 37)
	if a := d.Results[0].Reservation; a.Remaining != 0 || a.Estimate != 37 || d.Held {
		t.Errorf("settled: %+v, held %v", a, d.Held)
	}
	l.Settle(d, 200, second(0))
	counted("settled once more", 37)
	if d := ask(1, true); d.Verdict != Limited {
		t.Errorf("after that: %v", d.Verdict)
	}
	if v, _ := l.Counters.Peek(other.Counter, a, second(0)); v.Estimate != 2 {
		t.Errorf("the other rule has counted %v, want 2", v.Estimate)
	}
}
