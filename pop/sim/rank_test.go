package sim

import (
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/mitigation"
)

// newLogin is a rule that asks the tier before each decision, and counts what the origin answers with 401.
func newLogin(t *testing.T, limit uint32) limiter.Rule {
	r := newRule(t, "login", limit)
	r.Counter.Sync, r.Statuses = true, []int{401}
	return r
}

// unanswered decides about a request, whose answer is still to come.
func (e *Edge) unanswered(r *limiter.Rule, source counter.Source) *limiter.Decision {
	d := new(limiter.Decision)
	d.Add(r, source)
	e.Decide(d)
	return d
}

// Places that requests hold in the tier until they are answered refuse more of them, and block nobody; what counts does.
func TestSlotsUnderWayBlockNothing(t *testing.T) {
	for _, status := range []int{200, 401} {
		r := newLogin(t, 3)
		w := newWorld(t, 100*time.Millisecond, r)
		w.after(time.Second)
		var held []*limiter.Decision
		for i := range 3 {
			held = append(held, w.Edges[i%2].unanswered(&r, a))
		}
		for i, e := range w.Edges {
			d := e.unanswered(&r, a)
			w.after(300 * time.Millisecond)
			if until := e.Bits.Until(mitigation.Key{Rule: r.Counter.ID, Source: a}, e.clock()); d.Verdict != limiter.Limited || !until.IsZero() {
				t.Errorf("edge %d: %v with three under way, blocked until %v", i, d.Verdict, until)
			}
		}
		for i, d := range held {
			w.Edges[i%2].Settle(d, status)
		}
		w.after(300 * time.Millisecond)
		want := map[int]limiter.Verdict{200: limiter.Passed, 401: limiter.Limited}[status]
		e := w.Edges[0]
		if d := e.unanswered(&r, a); d.Verdict != want || (want == limiter.Limited) == d.Reported.Until.IsZero() {
			t.Errorf("all answered %d: %v, blocked until %v", status, d.Verdict, d.Reported.Until)
		}
	}
}

// A place is given back before the next request asks for one.
func TestSlotsAreGivenBackFirst(t *testing.T) {
	r := newLogin(t, 1)
	w := newWorld(t, 100*time.Millisecond, r)
	w.after(time.Second)
	e := w.Edges[0]
	for n := range 5 {
		d := e.unanswered(&r, a)
		if d.Verdict != limiter.Passed {
			t.Fatalf("request %d: %v", n, d.Verdict)
		}
		e.limiter.Settle(d, 200, e.clock()) // and the edge sends it together with what comes next
	}
}

// A place that is given back when its group has ended counts at no edge that has seen it, once that looks again.
func TestSlotsThatAreGivenBackLate(t *testing.T) {
	for _, late := range []time.Duration{time.Second, 25 * time.Second} { // in the group in which it has looked, and in the next
		givenBackLate(t, late)
	}
}

func givenBackLate(t *testing.T, late time.Duration) {
	r := newLogin(t, 2)
	w := newWorld(t, 100*time.Millisecond, r)
	w.after(time.Second)
	d := w.Edges[1].unanswered(&r, a)
	w.after(25 * time.Second)
	e := w.Edges[0]
	e.Settle(e.unanswered(&r, a), 200)
	w.Edges[1].Settle(d, 200)
	w.after(late)
	for n := range 2 {
		if d := e.unanswered(&r, a); d.Verdict != limiter.Passed {
			t.Errorf("request %d: %v, %+v", n, d.Verdict, d.Reported.Reservation)
		}
	}
}

// What is taken back of a number that was made anew meanwhile, without it, is not taken from other sub-windows.
func TestSlotsOfALostNode(t *testing.T) {
	r := newLogin(t, 5)
	w := newWorld(t, 100*time.Millisecond, r)
	w.after(time.Second)
	d := w.Edges[0].unanswered(&r, a)
	w.Kill(0)
	w.after(2 * time.Second)
	if err := w.Restart(0); err != nil {
		t.Fatal(err)
	}
	w.after(7 * time.Second)
	for range 2 {
		w.Edges[1].Settle(w.Edges[1].unanswered(&r, a), 401)
	}
	w.after(time.Second)
	w.Edges[0].Settle(d, 200)
	w.after(time.Second)
	for i, e := range w.Edges {
		d := e.unanswered(&r, a)
		if d.Verdict != limiter.Passed || d.Reported.Reservation.Remaining != uint32(2-i) {
			t.Errorf("edge %d: %v after two of five, %+v", i, d.Verdict, d.Reported.Reservation)
		}
		e.Settle(d, 401)
	}
}
