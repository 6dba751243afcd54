package limiter

import (
	"cmp"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
)

// ranks is a bench whose tier answers while requests wait: it counts hits of a, apart from this edge's, and says how many there are.
type ranks struct {
	*bench
	total  uint32 // hits that the tier has, none of them of this edge
	silent bool
}

func syncs(r *Rule) { r.Counter.Sync = true }

func newRanks(total uint32, rules ...*Rule) *ranks {
	b := newBench(rules...)
	b.Counters = counter.New(counter.Options{Counters: 1000, Tier: true})
	r := &ranks{bench: b, total: total}
	b.Fetch = func(*algorithm.Spec, counter.Source) {}
	b.Wait = func([]<-chan struct{}) { r.answer(second(0)) }
	return r
}

// answer carries out what is to be reported, as a node does.
func (r *ranks) answer(now time.Time) {
	for _, c := range r.Counters.Reports().Dirty(nil, 100) {
		rep, ok := r.Counters.Reports().Take(c, now)
		if !ok || r.silent {
			continue
		}
		for _, p := range rep.Parts[:rep.N] {
			r.Counters.Reports().Counted(c, p, p.Hits*uint64(1+r.total), now) // one hit: in the same lane
		}
		if rep.Past {
			r.Counters.Reports().Learn(c, rep.Newest-1, make([]uint64, rep.Newest-rep.Oldest), 0, now)
		}
	}
}

func (r *ranks) backs() (n int) { return len(r.Counters.Reports().TakeBacks(nil)) }

// What a rank says of one rule decides about all: nothing counts in any that is refused.
func TestRank(t *testing.T) {
	login := func(limit uint32, change ...func(*Rule)) *Rule {
		return newRule(t, "login", limit, append(change, syncs)...)
	}
	for _, test := range []struct {
		name    string
		total   uint32 // in the tier
		silent  bool
		rules   []*Rule
		verdict Verdict
		skipped bool
		left    uint32 // of 100 that another rule has, afterwards
		backs   int
		blocked bool
	}{
		{"within", 2, false, []*Rule{login(3, throttle)}, Passed, false, 99, 0, false},
		{"beyond", 3, false, []*Rule{login(3, throttle)}, Limited, false, 100, 1, false},
		{"beyond, and blocked", 3, false, []*Rule{login(3, func(r *Rule) { r.Timeout = time.Second })}, Limited, false, 100, 1, true},
		{"a block outlives what is beyond", 3, false, []*Rule{login(3)}, Limited, false, 100, 0, true},
		{"by status, nothing that is beyond is kept", 3, false, []*Rule{login(3, statuses(401))}, Limited, false, 100, 1, true},
		{"attempts count", 3, false, []*Rule{login(3, throttle, attempts)}, Limited, false, 100, 0, false},
		{"a shadow refuses nobody", 3, false, []*Rule{login(3, throttle, shadow)}, Shadowed, false, 99, 1, false},
		{"what another refuses is taken back", 2, false, []*Rule{login(3, throttle), newRule(t, "other", 2, throttle, syncs)}, Limited, false, 100, 2, false},
		{"silence, local", 9, true, []*Rule{login(3, throttle)}, Passed, false, 99, 0, false},
		{"silence, open", 9, true, []*Rule{login(3, throttle, posture(Open))}, Passed, true, 99, 0, false},
		{"silence, closed", 9, true, []*Rule{login(3, throttle, posture(Closed))}, FailedClosed, true, 100, 0, false},
		{"silence, closed, in a shadow", 9, true, []*Rule{login(3, throttle, posture(Closed), shadow)}, Shadowed, true, 99, 0, false},
	} {
		other := newRule(t, "beside", 100, throttle)
		b := newRanks(test.total, append(test.rules, other)...)
		b.silent = test.silent
		d := b.decide(a, second(0))
		v, _ := b.Counters.Peek(other.Counter, a, second(0))
		until := b.Bits.Until(mitigation.Key{Rule: test.rules[0].Counter.ID, Source: a}, second(0))
		if backs := b.backs(); d.Verdict != test.verdict || d.Results[0].Skipped != test.skipped || v.Remaining != test.left ||
			backs != test.backs || until.IsZero() == test.blocked {
			t.Errorf("%s: %v, skipped %v, %d left beside, %d taken back, blocked until %v; want %+v", test.name, d.Verdict, d.Results[0].Skipped, v.Remaining, backs, until, test)
		}
		if d.Verdict == FailedClosed && d.Reported.Wait != closedRetry {
			t.Errorf("%s: wait of %v", test.name, d.Reported.Wait)
		}
		if v, _ := b.Counters.Peek(other.Counter, a, second(60)); v.Estimate != 0 {
			t.Errorf("%s: a minute later %v hits are held beside", test.name, v.Estimate)
		}
	}
}

// Who was refused because the tier answered too late does not count once it has: a tier that is slow uses up nobody's limit.
func TestTooLateCountsNobody(t *testing.T) {
	r := newRule(t, "login", 3, syncs, posture(Closed))
	b := newRanks(0, r)
	var late []func()
	b.Wait = func([]<-chan struct{}) {
		for _, c := range b.Counters.Reports().Dirty(nil, 100) {
			if rep, ok := b.Counters.Reports().Take(c, second(0)); ok {
				late = append(late, func() { b.Counters.Reports().Counted(c, rep.Parts[0], rep.Parts[0].Hits, second(0)) })
				late = append(late, func() {
					b.Counters.Reports().Learn(c, rep.Newest-1, make([]uint64, rep.Newest-rep.Oldest), 0, second(0))
				})
			}
		}
	}
	for range 5 {
		if d := b.decide(a, second(0)); d.Verdict != FailedClosed {
			t.Error(d.Verdict)
		}
		for _, answer := range late {
			answer()
		}
		late = nil
	}
	if v, _ := b.Counters.Peek(r.Counter, a, second(0)); v.Estimate != 0 || b.backs() != 5 {
		t.Errorf("%v count", v.Estimate)
	}
}

// While the tier is silent a rule that counts every attempt counts those that it refuses, too.
func TestAttemptsCountInSilence(t *testing.T) {
	r := newRule(t, "login", 3, throttle, syncs, attempts)
	b := newRanks(3, r)
	b.decide(a, second(0))
	b.silent = true
	for range 4 {
		if d := b.decide(a, second(1)); d.Verdict != Limited {
			t.Error(d.Verdict)
		}
	}
	if v, _ := b.Counters.Peek(r.Counter, a, second(1)); v.Estimate != 8 {
		t.Errorf("%v count, want 8", v.Estimate)
	}
}

// A request that has waited for one rule's count in vain does not wait for that again.
func TestRankWaitsForRanksAlone(t *testing.T) {
	b := newRanks(0, newRule(t, "page", 10, waits), newRule(t, "login", 3, syncs))
	var waited []int
	answer := b.Wait
	b.Wait = func(replies []<-chan struct{}) {
		if waited = append(waited, len(replies)); len(waited) == 2 {
			answer(replies)
		}
	}
	if d := b.decide(a, second(0)); d.Verdict != Passed || len(waited) != 2 || waited[1] != 1 {
		t.Errorf("%v, having waited for %v replies", d.Verdict, waited)
	}
}

// A rule that counts by the answer's status takes its place in the tier at once, and gives it back if the answer does not count.
func TestRankedHitsSettle(t *testing.T) {
	r := newRule(t, "login", 3, throttle, syncs, func(r *Rule) { r.Statuses = []int{401} })
	for status, backs := range map[int]int{200: 1, 401: 0} {
		b := newRanks(0, r)
		if d := b.decide(a, second(0)); d.Verdict != Passed || !d.Held {
			t.Fatalf("%v, held %v", d.Verdict, d.Held)
		}
		b.Settle(&b.d, status, second(1))
		b.Settle(&b.d, status, second(1))
		if got := b.backs(); got != backs {
			t.Errorf("status %d: %d taken back, want %d", status, got, backs)
		}
	}
}

// A source that is blocked in the PoP, of which this edge has not learned, is refused with the answer. A block that
// begins beside a request that the limit has room for does not concern it.
func TestRankBringsABlock(t *testing.T) {
	for _, test := range []struct {
		ago    time.Duration
		change func(*Rule)
		want   Verdict
	}{{time.Minute, syncs, Mitigated}, {0, syncs, Passed}, {time.Minute, shadow, Shadowed}, {0, shadow, Passed}} {
		ago, want := test.ago, test.want
		r := newRule(t, "login", 3, syncs, test.change)
		b := newRanks(0, r)
		b.Wait = func([]<-chan struct{}) {
			b.Bits.Start(mitigation.Key{Rule: r.Counter.ID, Source: a}, mitigation.Bit{Start: second(0).Add(-ago), End: second(100), By: mitigation.ByPoP}, second(0))
			b.answer(second(0))
		}
		if d := b.decide(a, second(0)); d.Verdict != want {
			t.Errorf("blocked %v ago: %v, want %v", ago, d.Verdict, want)
		}
	}
}

// A request that goes over its limit while the tier is asked, and whose source gets another block or lift meanwhile,
// gets what is in force then; and to wait until its rule has room again, if that is later.
func TestRefusalReportsWhatIsInForce(t *testing.T) {
	for _, test := range []struct {
		name        string
		by          mitigation.By
		says        time.Duration // 0: that the source is lifted
		until, wait time.Duration // 0: there is no mitigation; it waits for room
	}{
		{"a longer block", mitigation.ByPoP, 100 * time.Second, 100 * time.Second, 100 * time.Second},
		{"a shorter one, which it prolongs", mitigation.ByPoP, time.Second, 20 * time.Second, 20 * time.Second},
		{"an operator's, which is shorter", mitigation.ByAdmin, 15 * time.Second, 15 * time.Second, 15 * time.Second},
		{"an operator's, which ends before there is room", mitigation.ByAdmin, time.Second, time.Second, 0},
		{"a lift", mitigation.ByAdmin, 0, 0, 0},
	} {
		r := newRule(t, "login", 3, syncs)
		b := newRanks(3, r)
		key := mitigation.Key{Rule: r.Counter.ID, Source: a}
		b.Wait = func([]<-chan struct{}) {
			if test.says == 0 {
				b.Bits.Lift(key, second(0))
			} else {
				b.Bits.Start(key, mitigation.Bit{Start: second(0), End: second(0).Add(test.says), By: test.by}, second(0))
			}
			b.answer(second(0))
		}
		d := b.decide(a, second(0))
		until := time.Time{}
		if test.until > 0 {
			until = second(0).Add(test.until)
		}
		wait := cmp.Or(test.wait, d.Results[0].Reservation.RetryAfter)
		if d.Verdict != Limited || !d.Reported.Until.Equal(until) || d.Reported.Wait != wait || wait <= time.Second {
			t.Errorf("%s: %v, wait of %v, blocked until %v; want %v and %v", test.name, d.Verdict, d.Reported.Wait, d.Reported.Until, wait, until)
		}
		if got := b.Bits.Until(key, second(0)); !got.Equal(until) {
			t.Errorf("%s: in force until %v, want %v", test.name, got, until)
		}
	}
}

// A rank is asked of a tier that answers for the source, and of no other.
func TestRankAsksWhoIsUp(t *testing.T) {
	for up, want := range map[bool]Verdict{true: Limited, false: Passed} {
		b := newRanks(3, newRule(t, "login", 3, throttle, syncs))
		waits, answer := 0, b.Wait
		b.Wait = func(replies []<-chan struct{}) { waits++; answer(replies) }
		b.Up = func(counter.Source) bool { return up }
		if d := b.decide(a, second(0)); d.Verdict != want || (waits == 1) != up {
			t.Errorf("up %v: %v after %d waits", up, d.Verdict, waits)
		}
	}
}

// A request that was just refused because nothing is left is not sent again.
func TestRankIsAskedOnce(t *testing.T) {
	b := newRanks(3, newRule(t, "login", 3, throttle, syncs))
	waits := 0
	b.Wait = func([]<-chan struct{}) { waits++; b.answer(second(0)) }
	for range 5 {
		if d := b.decide(a, second(0)); d.Verdict != Limited {
			t.Error(d.Verdict)
		}
	}
	if waits != 1 {
		t.Errorf("%d requests waited", waits)
	}
}

// BenchmarkCheck is a decision without a rule that asks the tier, and one with, beside the tier's own work.
func BenchmarkCheck(b *testing.B) {
	for name, change := range map[string]func(*Rule){"async": func(*Rule) {}, "sync": syncs} {
		b.Run(name, func(b *testing.B) {
			r := newRanks(0, newRule(b, "r", 15_000, throttle, change))
			now := second(0)
			r.Wait = func([]<-chan struct{}) { r.answer(now) }
			b.ReportAllocs()
			for i := range b.N {
				if now = second(float64(i) / 1000); i%8 == 0 && name == "async" {
					r.answer(now)
				}
				r.decide(a, now)
			}
		})
	}
}
