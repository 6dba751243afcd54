package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/poptest"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

var began = time.Unix(1_700_000_000, 0)

var a, b = ip("192.0.2.1"), ip("192.0.2.2")

func ip(s string) counter.Source { return counter.SourceOf(netip.MustParseAddr(s), 32, 64) }

func newRule(t *testing.T, name string, limit uint32) limiter.Rule {
	t.Helper()
	r, err := algorithm.NewSliding(name, limit, time.Minute, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	return limiter.Rule{Rule: mitigation.Rule{Counter: r, Timeout: time.Minute}}
}

// newWorld is two edges and a node, a millisecond apart.
func newWorld(t *testing.T, wait time.Duration, rules ...limiter.Rule) *World {
	t.Helper()
	w, err := New(Config{Edges: 2, Nodes: 1, RTT: time.Millisecond, Wait: wait, Secret: secret.Of([]byte("test"))}, rules, began)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// twice is the verdicts on two requests.
func twice(e *Edge, r *limiter.Rule, source counter.Source) (v [2]limiter.Verdict) {
	for i := range v {
		v[i] = e.Request(r, source).Verdict
	}
	return v
}

func (w *World) after(d time.Duration) { w.Run(w.now.Add(d)) }

// One world is like another: what edges decide and what nodes are sent, in small tables that are full as well, and when nodes and edges
// go and come.
func TestWorldsRepeat(t *testing.T) {
	run := func() string {
		var story strings.Builder
		r := newRule(t, "page", 5)
		w, err := New(Config{
			Edges: 3, Nodes: 2, RTT: time.Millisecond, Counters: 100, Secret: secret.Of([]byte("test")),
			Carry: func(c wire.Command, node *poptest.Node, now time.Time) wire.Result {
				fmt.Fprintf(&story, "%v node %d %v %s %d %s\n", now.Sub(began), c.Node, c.Op, c.Key, c.Delta, c.Value)
				return node.Do(now, c)
			},
		}, []limiter.Rule{r}, began)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 1))
		for i := range 2000 {
			switch i {
			case 800:
				w.Kill(0)
			case 1000:
				err = w.Restart(0)
			case 1200:
				w.Stop(1, true)
			case 1300:
				err = w.Start(1)
			}
			if err != nil {
				t.Fatal(err)
			}
			if edge := rng.IntN(3); w.Runs(edge) {
				source := counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2 + byte(i%7/6), byte(rng.IntN(200))}), 32, 64)
				d := w.Edges[edge].Request(&r, source)
				fmt.Fprintf(&story, "edge %d %v %v\n", edge, source, d.Verdict)
			}
			w.after(10 * time.Millisecond)
		}
		return story.String()
	}
	first, second := strings.Split(run(), "\n"), strings.Split(run(), "\n")
	for i := range first {
		if i == len(second) || first[i] != second[i] {
			t.Fatalf("line %d of %d is %q, and of %d in another run %q", i, len(first), first[i], len(second), second[min(i, len(second)-1)])
		}
	}
}

// A login is counted by its answer, on one edge, and refused on the other.
func TestStatusesCountInThePoP(t *testing.T) {
	login := newRule(t, "login", 3)
	login.Statuses = []int{401}
	w := newWorld(t, 0, login)
	for _, status := range []int{200, 401, 0, 401, 200, 401} {
		d := w.Edges[0].Request(&login, a)
		if d.Refused() {
			t.Fatalf("refused before three logins have failed: %v", d.Verdict)
		}
		w.after(20 * time.Millisecond) // the origin's
		w.Edges[0].Settle(d, status)
		w.after(20 * time.Millisecond)
	}
	w.after(200 * time.Millisecond)
	if d := w.Edges[1].Request(&login, a); d.Verdict != limiter.Limited {
		t.Errorf("on the other edge: %v, want limited", d.Verdict)
	}
	w.after(200 * time.Millisecond)
	if d := w.Edges[0].Request(&login, a); d.Verdict != limiter.Mitigated {
		t.Errorf("and then on the first: %v, want mitigated", d.Verdict)
	}
}

// Two rules are asked together, and a shadow beside them refuses nobody.
func TestSeveralRules(t *testing.T) {
	tight, wide, shadow := newRule(t, "tight", 2), newRule(t, "wide", 100), newRule(t, "shadow", 1)
	shadow.Shadow = true
	w := newWorld(t, 0, tight, wide, shadow)
	var d limiter.Decision
	for i, want := range []limiter.Verdict{limiter.Passed, limiter.Shadowed, limiter.Limited, limiter.Mitigated} {
		d.Reset()
		for _, r := range []*limiter.Rule{&tight, &wide, &shadow} {
			d.Add(r, a)
		}
		if w.Edges[0].Decide(&d); d.Verdict != want {
			t.Fatalf("request %d: %v, want %v", i+1, d.Verdict, want)
		}
		w.after(time.Millisecond)
	}
	if v, _ := w.Edges[0].Counters.Peek(wide.Counter, a, w.Now()); v.Estimate != 2 {
		t.Errorf("the wide rule counts %v, want the two that were admitted", v.Estimate)
	}
}

// While no node answers, each rule does what its posture says; afterwards all count together again.
func TestPostures(t *testing.T) {
	for posture, want := range map[limiter.FailurePolicy][2]limiter.Verdict{
		limiter.Local:  {limiter.Passed, limiter.Limited},
		limiter.Open:   {limiter.Passed, limiter.Passed},
		limiter.Closed: {limiter.FailedClosed, limiter.FailedClosed},
	} {
		r := newRule(t, "r", 1)
		r.OnStoreFailure = posture
		w := newWorld(t, 0, r)
		e := w.Edges[0]
		w.Hang(0)
		w.after(3 * time.Second)
		if e.Machine.Nodes.Up() {
			t.Fatal("a hung node is still up after three seconds")
		}
		if got := twice(e, &r, a); got != want {
			t.Errorf("%s: %v without a tier, want %v", posture, got, want)
		}
		w.Resume(0)
		w.after(3 * time.Second)
		if got := twice(e, &r, b); got != [2]limiter.Verdict{limiter.Passed, limiter.Limited} {
			t.Errorf("%s: %v with the tier back", posture, got)
		}
	}
}

// A request that waits at first sight is decided on what the PoP knows, a round trip later; one that does not is admitted on nothing.
func TestFirstSight(t *testing.T) {
	for _, test := range []struct {
		sight   limiter.FirstSight
		blocked bool // the other edge has refused, too
		hang    bool
		verdict limiter.Verdict
		took    time.Duration
	}{
		{sight: limiter.Go, verdict: limiter.Passed},
		{sight: limiter.Wait, verdict: limiter.Limited, took: time.Millisecond},
		{sight: limiter.Wait, blocked: true, verdict: limiter.Mitigated, took: time.Millisecond},
		{sight: limiter.Wait, hang: true, verdict: limiter.Passed, took: 5 * time.Millisecond},
	} {
		r := newRule(t, "r", 3)
		r.FirstSight = test.sight
		w := newWorld(t, 5*time.Millisecond, r)
		for range 3 {
			w.Edges[0].Request(&r, a)
		}
		w.after(2 * time.Second)
		w.Stop(1, false) // so that it knows nothing
		if test.blocked {
			w.Edges[0].Request(&r, a)
			w.after(2 * time.Second)
		}
		if err := w.Start(1); err != nil {
			t.Fatal(err)
		}
		if test.hang {
			w.Hang(0)
		}
		asked := w.Now()
		d := w.Edges[1].Request(&r, a)
		if took := w.Now().Sub(asked); d.Verdict != test.verdict || took != test.took {
			t.Errorf("%+v: %v after %v", test, d.Verdict, took)
		}
	}
}

// An edge that idles is one of the PoP all the same, whether the others have something to do, now and then, or nobody; one that was
// killed is not.
func TestIdleEdgesArePresent(t *testing.T) {
	r := newRule(t, "r", 100)
	w, err := New(Config{Edges: 8, Nodes: 3, RTT: time.Millisecond, Secret: secret.Of([]byte("test")), Learn: true}, []limiter.Rule{r}, began)
	if err != nil {
		t.Fatal(err)
	}
	w.Hang(0) // and so all are stepped until each has a place
	w.after(time.Second)
	w.Resume(0)
	w.after(10 * time.Second)
	know := func(want int, pauses ...time.Duration) {
		t.Helper()
		for _, pause := range pauses {
			w.after(pause)
			for _, e := range w.Edges[:7] {
				e.Request(&r, a)
				w.after(5 * time.Millisecond)
			}
			w.after(10 * time.Second) // in which all have been reported
			for i, e := range w.Edges[:7] {
				if got := e.Machine.Stats().Edges; got != want {
					t.Fatalf("after %v, edge %d knows of %d edges, want %d", pause, i, got, want)
				}
			}
		}
	}
	quarters := slices.Repeat([]time.Duration{15 * time.Second}, 4)
	know(8, quarters...)
	know(8, slices.Repeat([]time.Duration{700 * time.Millisecond}, 80)...)
	know(8, time.Hour)
	w.Stop(7, false)
	know(7, quarters...)
	if err := w.Start(7); err != nil {
		t.Fatal(err)
	}
	know(8, quarters...)
}

// An estimator counts every request and refuses none, and says what it would have.
func TestEstimator(t *testing.T) {
	r := newRule(t, "r", 5)
	r.Shadow, r.Refused, r.Timeout = true, true, 0
	w := newWorld(t, 0, r)
	for i := range 20 {
		d := w.Edges[0].Request(&r, a)
		if over := i >= 5; d.Refused() || d.Results[0].Reservation.Over != over || d.Results[0].Reservation.Estimate != float64(i+1) {
			t.Fatalf("request %d: %v, estimate %v", i+1, d.Verdict, d.Results[0].Reservation.Estimate)
		}
		w.after(300 * time.Millisecond)
	}
}
