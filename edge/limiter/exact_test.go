package limiter

import (
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/exact"
	"sluice/mitigation"
)

// kept is a bench whose tier keeps requests while they wait for it.
type kept struct {
	*bench
	t      *testing.T
	now    time.Time
	values map[uint32][]byte
	silent bool
	asked  int // reads
}

func newExact(t *testing.T, name string, limit uint32, change ...func(*Rule)) *Rule {
	t.Helper()
	c, err := algorithm.NewExact(name, limit, 10*time.Second, 12)
	if err != nil {
		t.Fatal(err)
	}
	r := &Rule{Rule: mitigation.Rule{Counter: c}}
	for _, change := range change {
		change(r)
	}
	r.Exact = exact.NewSpec(c, r.OnStoreFailure == Closed, len(r.Statuses) > 0)
	return r
}

func newKept(t *testing.T, rules ...*Rule) *kept {
	k := &kept{bench: newBench(rules...), t: t, now: second(-100), values: make(map[uint32][]byte)}
	k.Exact = exact.New(exact.Options{Bucket: func(counter.Source) uint32 { return 7 }})
	k.Fetch = func(*algorithm.Spec, counter.Source) {}
	k.Wait = func([]<-chan struct{}) { k.answer() }
	k.values[7] = exact.Fresh(k.now)
	return k
}

// answer carries out what is due. All rules share the buckets here, and are distinguished by their tags.
func (k *kept) answer() {
	tag := func(r *exact.Spec, s counter.Source) uint64 {
		return uint64(len(r.ID))<<8 + uint64(r.ID[0]) + uint64(len(s.String()))<<16
	}
	for !k.silent && k.Exact.In(1, k.now) == 0 {
		for _, x := range k.Exact.Due(make([]*exact.Exchange, 0, 8), k.now, func(*exact.Spec, uint32) int { return 0 }) {
			k.asked++
			value, there := k.values[x.Bucket]
			if write := k.Exact.Read(x, value, there, true, tag, k.now); write != nil {
				k.values[x.Bucket] = write
				k.Exact.Written(x, exact.Stored, k.now)
			}
		}
	}
}

func (k *kept) at(s float64) *Decision {
	k.now = second(s)
	d := k.decide(a, k.now)
	k.answer() // what is taken back
	return d
}

// has checks how many requests the tier has of a under a rule.
func (k *kept) has(r *Rule, want int) {
	k.t.Helper()
	k.Exact.Look(r.Exact, a)
	k.answer()
	if v, _ := k.Limiter.Peek(r, a, k.now); int(v.Estimate) != want {
		k.t.Errorf("the tier has %v, want %d", v.Estimate, want)
	}
}

// Exactly the limit passes, a refused client gets when there is room, and its counter is not read.
func TestKept(t *testing.T) {
	r := newExact(t, "pay", 3)
	k := newKept(t, r)
	for i, want := range []Verdict{Passed, Passed, Passed, Limited, Limited} {
		d := k.at(float64(i))
		if d.Verdict != want || d.Reported == nil || d.Reported.Reservation == nil || want == Passed && d.Reported.Reservation.Remaining != uint32(2-i) {
			t.Fatalf("request %d: %v, %+v", i, d.Verdict, d.Reported)
		}
		if want == Limited && d.Reported.Wait != 11*time.Second-time.Duration(i)*time.Second {
			t.Errorf("request %d is to wait for %v", i, d.Reported.Wait)
		}
		k.Leave(d)
	}
	asked := k.asked
	if d := k.at(4.5); d.Verdict != Limited || k.asked != asked {
		t.Errorf("%v, having asked the tier %d times more", d.Verdict, k.asked-asked)
	}
	if d := k.at(11); d.Verdict != Passed {
		t.Errorf("when there is room: %v", d.Verdict)
	}
	if _, there := k.Counters.Peek(r.Counter, a, k.now); there {
		t.Error("its counter has counted")
	}
}

// A rule that mitigates blocks who is over its limit, and then nobody asks the tier.
func TestKeptMitigates(t *testing.T) {
	k := newKept(t, newExact(t, "pay", 1, func(r *Rule) { r.Timeout = time.Minute }))
	k.Leave(k.at(0))
	if d := k.at(1); d.Verdict != Limited || d.Reported.Until != second(61) {
		t.Errorf("%v until %v", d.Verdict, d.Reported.Until)
	}
	asked := k.asked
	if d := k.at(30); d.Verdict != Mitigated || k.asked != asked {
		t.Errorf("%v, having asked %d times more", d.Verdict, k.asked-asked)
	}
}

// What another rule refuses is not kept: a counter that is full as far as is known keeps the tier from being asked, and of two rules that are kept
// neither has what the other refuses.
func TestKeptBesideOthers(t *testing.T) {
	one, two, page := newExact(t, "one", 5), newExact(t, "other", 1), newRule(t, "page", 2, throttle)
	k := newKept(t, one, page)
	for i := range 3 {
		k.at(float64(i))
	}
	if k.d.Verdict != Limited || k.d.Reported.Rule != page || k.asked != 2 {
		t.Errorf("%v by %s, having asked %d times", k.d.Verdict, k.d.Reported.Rule.Counter.Name, k.asked)
	}
	k.has(one, 2)
	k = newKept(t, one, two, newRule(t, "wide", 100))
	k.at(0)
	k.at(1)
	if k.d.Verdict != Limited || k.d.Reported.Rule != two {
		t.Errorf("%v by %s", k.d.Verdict, k.d.Reported.Rule.Counter.Name)
	}
	k.has(one, 1)
	k.has(two, 1)
	if v, _ := k.Counters.Peek(k.rules[2].Counter, a, k.now); v.Estimate != 1 {
		t.Errorf("the rule beside has counted %v", v.Estimate)
	}
}

// Who is given another limit has used of it what it had used of the other.
func TestKeptByAnotherLimit(t *testing.T) {
	few, many := newExact(t, "pay", 3), newExact(t, "pay limit 5", 5)
	many.Exact = few.Exact.By(many.Counter)
	k := newKept(t, few)
	for i := range 4 {
		k.at(float64(i))
		k.Leave(&k.d)
	}
	k.rules = []*Rule{many}
	for i, want := range []Verdict{Passed, Passed, Limited} {
		if d := k.at(float64(5 + i)); d.Verdict != want {
			t.Errorf("request %d by the higher limit: %v", i, d.Verdict)
		}
		k.Leave(&k.d)
	}
	k.rules = []*Rule{few}
	if d := k.at(9); d.Verdict != Limited {
		t.Errorf("by the lower one: %v", d.Verdict)
	}
}

// Who was refused by a lower limit than the one in force now is within that: it is not refused by what the tier said of the lower one, nor blocked.
func TestKeptLoosened(t *testing.T) {
	long := func(r *Rule) { r.Timeout = time.Minute }
	few, many := newExact(t, "pay", 1), newExact(t, "pay", 5, long)
	k := newKept(t, few)
	for i, want := range []Verdict{Passed, Limited} {
		if d := k.at(float64(i)); d.Verdict != want {
			t.Errorf("request %d by the lower limit: %v", i, d.Verdict)
		}
		k.Leave(&k.d)
	}
	k.rules = []*Rule{many}
	if d := k.at(1.1); d.Verdict != Passed {
		t.Errorf("by the higher limit: %v until %v", d.Verdict, d.Reported.Until)
	}
	k.Leave(&k.d)
	k.rules = []*Rule{few}
	if d := k.at(1.2); d.Verdict != Limited {
		t.Errorf("by the lower limit again: %v", d.Verdict)
	}
}

// What the answer says does not count is taken back.
func TestKeptByTheAnswer(t *testing.T) {
	for status, want := range map[int]int{200: 0, 401: 1} {
		r := newExact(t, "login", 3, statuses(401))
		k := newKept(t, r)
		d := k.at(0)
		if !d.Held {
			t.Error("it does not wait for the answer")
		}
		k.Settle(d, status, k.now)
		k.Leave(d)
		k.has(r, want)
	}
}

// Requests under way, which may turn out not to count, block nobody, however many there are; what has stood for a while does.
func TestKeptUnderWayBlocksNobody(t *testing.T) {
	for _, status := range []int{200, 401} {
		r := newExact(t, "login", 5, statuses(401), func(r *Rule) { r.Timeout = time.Minute })
		k := newKept(t, r)
		k.now = second(0)
		var open [6]Decision
		for i := range open {
			begin(&open[i], a, r)
			k.Decide(&open[i], k.now)
		}
		if d := &open[5]; d.Verdict != Limited || !d.Reported.Until.IsZero() {
			t.Errorf("the sixth: %v until %v", d.Verdict, d.Reported.Until)
		}
		for i := range open[:5] {
			k.Settle(&open[i], status, k.now)
			k.Leave(&open[i])
		}
		k.answer()
		for _, test := range []struct {
			at     float64
			want   Verdict
			blocks bool
		}{{0.9, Limited, false}, {2, Limited, true}, {3, Mitigated, true}} {
			if status == 200 {
				test.want, test.blocks = Passed, false
			}
			d := k.at(test.at)
			if d.Verdict != test.want || d.Reported != nil && test.blocks == d.Reported.Until.IsZero() {
				t.Errorf("after %d: %v at %v s", status, d.Verdict, test.at)
			}
			k.Settle(d, status, k.now)
			k.Leave(d)
			k.answer()
		}
	}
}

// In doubt a closed rule refuses until it is over, and others go on; where the tier does not answer each goes by its failure policy.
func TestKeptInDoubt(t *testing.T) {
	for _, test := range []struct {
		posture      FailurePolicy
		shadow       bool
		lost, silent Verdict
	}{
		{Closed, false, FailedClosed, FailedClosed}, {Closed, true, Shadowed, Shadowed}, {Open, false, Passed, Passed}, {Local, false, Passed, Limited},
	} {
		r := newExact(t, "pay", 1, posture(test.posture))
		r.Shadow = test.shadow
		k := newKept(t, r)
		clear(k.values)
		d := k.at(0)
		if d.Verdict != test.lost || d.Verdict == FailedClosed && d.Reported.Wait != 11*time.Second {
			t.Errorf("%v: %v when all was lost, to wait for %v", test.posture, d.Verdict, d.Reported.Wait)
		}
		k.Leave(d)
		if d := k.at(11.1); d.Verdict != Passed {
			t.Errorf("%v: %v when that is over", test.posture, d.Verdict)
		}
		k.Leave(&k.d)
		k.silent = true
		if d := k.at(13); d.Verdict != test.silent {
			t.Errorf("%v: %v in silence", test.posture, d.Verdict)
		}
		k.Leave(&k.d)
	}
}

// BenchmarkKept is a refusal from memory, and a decision without waiting for the tier.
func BenchmarkKept(b *testing.B) {
	c, err := algorithm.NewExact("pay", 3, time.Hour, 12)
	if err != nil {
		b.Fatal(err)
	}
	r := &Rule{Rule: mitigation.Rule{Counter: c}}
	r.Exact = exact.NewSpec(c, false, false)
	k := newKept(nil, r)
	for i := range 4 {
		k.at(float64(i))
		k.Leave(&k.d)
	}
	b.ReportAllocs()
	for range b.N {
		if k.decide(a, k.now).Verdict != Limited {
			b.Fatal(k.d.Verdict)
		}
	}
}
