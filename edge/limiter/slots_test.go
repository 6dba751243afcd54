package limiter

import (
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/inflight"
	"sluice/mitigation"
)

func concurrency(n int32) func(*Rule) {
	return func(r *Rule) { r.InFlight = &inflight.Concurrency{Name: r.Counter.Name, Limit: n} }
}

func uncounted(r *Rule) { r.Uncounted = true }

// crowd is a bench whose tier has so many in flight beside those of this edge, and answers while requests wait, or is silent.
type crowd struct {
	*bench
	others uint64
	silent bool
	waits  int
	made   []*Decision
}

func newCrowd(tier bool, others uint64, rules ...*Rule) *crowd {
	c := &crowd{bench: newBench(rules...), others: others}
	c.InFlight = inflight.New(inflight.Options{Tier: tier})
	c.Wait = func([]<-chan struct{}) {
		if c.waits++; !c.silent {
			c.answer()
		}
	}
	return c
}

// answer carries out what is to be said, as a node does.
func (c *crowd) answer() {
	for _, x := range c.InFlight.Due(make([]*inflight.Exchange, 0, 8), second(0.5), false, func(counter.Source) int { return 0 }) {
		by, _ := c.InFlight.Held()
		for i := range x.Parts {
			c.InFlight.Answered(x, i, inflight.Counted, c.others+uint64(by[x.Rule]))
		}
	}
}

// decide is a decision that lives on.
func (c *crowd) decide() *Decision {
	d := new(Decision)
	begin(d, a, c.rules...)
	c.Decide(d, second(0))
	c.made = append(c.made, d)
	return d
}

// What becomes of the third of three requests that are under way at once, and what holds a place afterwards.
func TestConcurrency(t *testing.T) {
	slow := func(n int32, change ...func(*Rule)) *Rule {
		return newRule(t, "slow", 1_000_000, append(change, concurrency(n), uncounted)...)
	}
	limit := func(n uint32, change ...func(*Rule)) *Rule { return newRule(t, "limit", n, change...) }
	for _, test := range []struct {
		name    string
		tier    bool
		others  uint64
		silent  bool
		rules   []*Rule
		verdict Verdict
		skipped bool
		held    int     // by all that were admitted
		counted float64 // by the last rule
	}{
		{"room", false, 0, false, []*Rule{slow(3)}, Passed, false, 3, 0},
		{"none", false, 0, false, []*Rule{slow(2)}, Limited, false, 2, 0},
		{"a shadow refuses nobody", false, 0, false, []*Rule{slow(2, shadow)}, Shadowed, false, 2, 0},
		{"not counted by others", false, 0, false, []*Rule{slow(2), limit(9)}, Limited, false, 2, 2},
		{"but as an attempt", false, 0, false, []*Rule{slow(2), limit(9, attempts)}, Limited, false, 2, 3},
		{"an attempt over the limit blocks", false, 0, false, []*Rule{slow(2), limit(2, attempts)}, Limited, false, 2, 3},
		{"another refuses", false, 0, false, []*Rule{slow(9), limit(2)}, Limited, false, 2, 2},
		{"both in one", false, 0, false, []*Rule{limit(9, concurrency(2))}, Limited, false, 2, 2},
		{"two concurrencies", false, 0, false, []*Rule{newRule(t, "wide", 1, concurrency(9), uncounted), slow(2)}, Limited, false, 4, 0},
		{"room in the PoP", true, 1, false, []*Rule{slow(4)}, Passed, false, 3, 0},
		{"none in the PoP", true, 1, false, []*Rule{slow(3)}, Limited, false, 2, 0},
		{"none in the PoP, a shadow", true, 1, false, []*Rule{slow(3, shadow)}, Shadowed, false, 2, 0},
		{"none in the PoP, and another", true, 1, false, []*Rule{slow(3), limit(9)}, Limited, false, 2, 2},
		{"silence, local", true, 9, true, []*Rule{slow(3)}, Passed, false, 3, 0},
		{"silence, local, and this edge is full", true, 9, true, []*Rule{slow(2)}, Limited, false, 2, 0},
		{"silence, open", true, 9, true, []*Rule{slow(9, posture(Open))}, Passed, true, 3, 0},
		{"silence, closed", true, 9, true, []*Rule{slow(9, posture(Closed)), limit(9)}, FailedClosed, true, 0, 0},
		{"silence, closed, in a shadow", true, 9, true, []*Rule{slow(9, posture(Closed), shadow)}, Shadowed, true, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCrowd(test.tier, test.others, test.rules...)
			c.silent = test.silent
			var d *Decision
			for range 3 {
				d = c.decide()
			}
			held := func() (n int) {
				by, _ := c.InFlight.Held()
				for _, k := range by {
					n += k
				}
				return n
			}
			last := test.rules[len(test.rules)-1]
			v, _ := c.Counters.Peek(last.Counter, a, second(0))
			if d.Verdict != test.verdict || d.Results[0].Skipped != test.skipped || held() != test.held || v.Estimate != test.counted {
				t.Errorf("%v, skipped %v, %d held, %v counted; want %v, %v, %d, %v", d.Verdict, d.Results[0].Skipped, held(), v.Estimate,
					test.verdict, test.skipped, test.held, test.counted)
			}
			if by := d.Reported; d.Refused() && by.Crowded && by.Wait != time.Second && !by.Rule.Refused {
				t.Errorf("wait of %v", by.Wait)
			}
			for _, r := range test.rules {
				if !c.Blocks.Until(mitigation.Key{Rule: r.Counter.ID, Source: a}, second(0)).IsZero() && r.InFlight != nil {
					t.Error("a mitigation has begun")
				}
			}
			for _, d := range c.made {
				c.Leave(d)
				c.Leave(d)
			}
			if held() != 0 {
				t.Errorf("%d are left", held())
			}
		})
	}
}

// One rule that refuses for want of a place is enough, whatever others say before and after it: nobody else counts the request then, nor is the
// tier asked for what this edge can tell.
func TestOneHasNoSlot(t *testing.T) {
	full := func(name string, change ...func(*Rule)) *Rule {
		return newRule(t, name, 1, append(change, concurrency(2), uncounted)...)
	}
	wide := func() *Rule { return newRule(t, "wide", 1, concurrency(9), uncounted) }
	for _, test := range []struct {
		name   string
		others uint64 // in the tier
		rules  []*Rule
		waits  int
	}{
		{"and a shadow after it", 0, []*Rule{full("full"), full("shadow", shadow)}, 2},
		{"and a shadow before it", 0, []*Rule{full("shadow", shadow), full("full")}, 2},
		{"and one after it that has room", 0, []*Rule{full("full"), wide()}, 2},
		{"and one before it that has room", 0, []*Rule{wide(), full("full")}, 2},
		{"as the tier says", 1, []*Rule{newRule(t, "full", 1, concurrency(3), uncounted), wide()}, 3},
		{"as the tier says, after one that has room", 1, []*Rule{wide(), newRule(t, "full", 1, concurrency(3), uncounted)}, 3},
	} {
		limit := newRule(t, "limit", 9)
		c := newCrowd(true, test.others, append(test.rules, limit)...)
		for i := range 3 {
			if d := c.decide(); d.Refused() != (i == 2) || len(d.slots) != map[bool]int{false: 2}[d.Refused()] {
				t.Errorf("%s, request %d: %v, %d places", test.name, i, d.Verdict, len(d.slots))
			}
		}
		if v, _ := c.Counters.Peek(limit.Counter, a, second(0)); v.Estimate != 2 || c.waits != test.waits {
			t.Errorf("%s: %v counted, %d waited; want 2, %d", test.name, v.Estimate, c.waits, test.waits)
		}
	}
}

// Who is in flight is asked of a tier that answers for the source, and of no other.
func TestConcurrencyAsksWhoIsUp(t *testing.T) {
	for up, want := range map[bool]Verdict{true: Limited, false: Passed} {
		c := newCrowd(true, 2, newRule(t, "slow", 1, concurrency(2), uncounted))
		c.Up = func(counter.Source) bool { return up }
		if d := c.decide(); d.Verdict != want || (c.waits == 1) != up {
			t.Errorf("up %v: %v after %d waits", up, d.Verdict, c.waits)
		}
	}
}

// Who finds no place is counted where attempts count. There will be no answer by whose status it might be settled.
func TestNoSlotIsNotHeld(t *testing.T) {
	login := newRule(t, "login", 9, attempts, statuses(401))
	c := newCrowd(false, 0, newRule(t, "slow", 1_000_000, concurrency(2), uncounted), login)
	for range 3 {
		c.decide()
	}
	for i, d := range c.made {
		if want := i < 2; d.Held != want || d.Results[1].Reservation.Hold != want {
			t.Errorf("request %d: %v, held %v, its hit %v; want %v", i, d.Verdict, d.Held, d.Results[1].Reservation.Hold, want)
		}
		c.Settle(d, 200, second(0))
	}
	for at, want := range map[float64]float64{0: 1, 30: 0} {
		if v, _ := c.Counters.Peek(login.Counter, a, second(at)); v.Estimate != want {
			t.Errorf("at %v s %v count, want %v", at, v.Estimate, want)
		}
	}
}

// However many rules wait for the tier, a request does so once.
func TestConcurrencyIsAskedOnce(t *testing.T) {
	c := newCrowd(true, 0, newRule(t, "one", 1, concurrency(5), uncounted), newRule(t, "two", 1, concurrency(5), uncounted))
	if d := c.decide(); d.Verdict != Passed || c.waits != 1 {
		t.Errorf("%v after %d waits", d.Verdict, c.waits)
	}
}

// BenchmarkConcurrency is a decision of a rule with a limit, and of one with a concurrency as well.
func BenchmarkConcurrency(b *testing.B) {
	for name, change := range map[string][]func(*Rule){"without": {throttle}, "with": {throttle, concurrency(100)}} {
		b.Run(name, func(b *testing.B) {
			l := newBench(newRule(b, "r", 1_000_000, change...))
			l.InFlight = inflight.New(inflight.Options{})
			b.ReportAllocs()
			for i := range b.N {
				l.decide(a, second(float64(i)/1000))
				l.Leave(&l.d)
			}
		})
	}
}

// Who is over a limit as far as this edge knows costs the tier nothing, and holds no place of others while it would be asked.
func TestOverTheLimitTakesNoSlot(t *testing.T) {
	for _, test := range []struct {
		name  string
		rules []*Rule
		waits int // of six requests
	}{
		{"over", []*Rule{newRule(t, "slow", 1, concurrency(9), uncounted), newRule(t, "limit", 2, throttle)}, 2},
		{"over, in one rule", []*Rule{newRule(t, "limit", 2, throttle, concurrency(9))}, 2},
		{"over in a shadow", []*Rule{newRule(t, "slow", 1, concurrency(9), uncounted), newRule(t, "limit", 2, throttle, shadow)}, 6},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCrowd(true, 0, test.rules...)
			for i := range 6 {
				want := Passed
				if i >= 2 {
					want = map[bool]Verdict{true: Shadowed, false: Limited}[test.waits == 6]
				}
				if d := c.decide(); d.Verdict != want {
					t.Errorf("request %d: %v, want %v", i, d.Verdict, want)
				}
			}
			if c.waits != test.waits {
				t.Errorf("%d waited for the tier, want %d", c.waits, test.waits)
			}
			if by, _ := c.InFlight.Held(); by[test.rules[0].Counter.Name] != test.waits {
				t.Errorf("%v held, want %d", by, test.waits)
			}
		})
	}
}
