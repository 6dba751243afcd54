package design

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
)

// designCase is a rule of 4 in a second for a design in one place.
func designCase(counts func(rule) algorithm) *decider {
	r := rule{mode: judge.Deployed, limit: 4, window: int64(time.Second)}
	return &decider{rule: r, counts: counts(r)}
}

// TestAlgorithms asks each design about one source: at so many milliseconds, and what it says: the estimate, with an ! where
// the request is refused, which then does not count.
func TestAlgorithms(t *testing.T) {
	fixed := func(r rule) algorithm { return &fixedWindow{rule: r} }
	log := func(r rule) algorithm { return &slidingLog{rule: r} }
	two := func(r rule) algorithm { return &subWindows{rule: r, k: 1, weighed: true} }
	whole := func(r rule) algorithm { return &subWindows{rule: r, k: 4} }
	near := func(r rule) algorithm { return &subWindows{rule: r, k: 4, weighed: true, rounded: true} }
	tokens := func(r rule) algorithm { return &tokenBucket{rule: r, burst: r.limit} }
	leaky := func(r rule) algorithm { return &leakyBucket{rule: r, depth: 2} }
	cells := func(r rule) algorithm { return newGCRA(r, r.limit) }
	strict := func(r rule) algorithm { return newGCRA(r, 1) }
	f := func(name string, counts func(rule) algorithm, steps string) {
		t.Helper()
		p := designCase(counts)
		var got []string
		for _, step := range strings.Fields(steps) {
			var ms int64
			fmt.Sscanf(step, "%d:", &ms)
			d := p.decide(7, ms*1e6)
			said := "?"
			if !math.IsNaN(d.Estimate) {
				said = fmt.Sprintf("%.4g", d.Estimate)
			}
			if d.Verdict != judge.Admitted {
				said += "!"
			}
			got = append(got, fmt.Sprintf("%d:%s", ms, said))
		}
		if diff := cmp.Diff(strings.Join(strings.Fields(steps), " "), strings.Join(got, " ")); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	f("sliding log", log, "0:1 100:2 200:3 300:4 999:5! 1000:4 1001:5! 1100:4 2500:1")
	f("fixed window forgets at its end", fixed, "900:1 901:2 902:3 903:4 904:5! 1000:1 1001:2 1002:3 1003:4 1004:5!")
	f("two counters", two, "500:1 600:2 700:3 800:4 900:5! 1000:5! 1250:4 1300:4.8! 1500:4 1600:4.6! 2000:3")
	f("two counters after a pause", two, "0:1 1:2 2:3 3:4 2000:1")
	f("whole sub-windows leave the oldest out", whole, "200:1 240:2 600:3 999:4 1000:3 1001:4 1002:5! 1250:5! 1500:4")
	f("weighed and rounded", near, "0:1 1:2 600:3 999:4 1000:5! 1025:4.8! 1125:4 1200:4.4 1225:5.2!")
	f("token bucket", tokens, "0:? 0:? 0:? 0:? 0:?! 249:?! 250:? 250:?! 1000:? 1000:? 1000:? 1000:?!")
	f("leaky bucket", leaky, "0:? 0:? 0:?! 249:?! 250:? 251:?! 749:? 750:? 751:?!")
	f("GCRA", cells, "0:? 0:? 0:? 0:? 0:?! 249:?! 250:? 250:?! 1000:? 1000:? 1000:? 1000:?!")
	f("GCRA without tolerance", strict, "0:? 1:?! 249:?! 250:? 499:?! 750:? 751:?! 1000:?")
}

func TestBlocks(t *testing.T) {
	p := designCase(func(r rule) algorithm { return &slidingLog{rule: r} })
	p.rule.timeout = int64(3 * time.Second)
	verdict := func(ms int64) string {
		d := p.decide(0, ms*1e6)
		return fmt.Sprintf("%d:%d/%v", ms, d.Verdict, d.Until)
	}
	var got []string
	for _, ms := range []int64{0, 0, 0, 0, 10, 20, 3009, 3010} {
		got = append(got, verdict(ms))
	}
	want := "0:0/0s 0:0/0s 0:0/0s 0:0/0s 10:1/3.01s 20:2/3.01s 3009:2/3.01s 3010:0/0s"
	if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
		t.Error(diff)
	}
	if d := p.decide(1, 3010e6); d.Verdict != judge.Admitted {
		t.Error("another source is blocked as well")
	}
}

// someTraffic is a few sources that are now under and now over a limit of some.
func someTraffic(t *rapid.T) *trace.Trace {
	traffic := &trace.Trace{Name: "drawn", Start: time.Unix(rapid.Int64Range(0, 100).Draw(t, "start"), 0), Sources: make([]trace.Source, 3)}
	at := time.Duration(0)
	for range rapid.IntRange(1, 150).Draw(t, "n") {
		at += time.Duration(rapid.IntRange(1, 400).Draw(t, "gap")) * time.Millisecond
		traffic.Requests = append(traffic.Requests, trace.Request{At: at, Source: int32(rapid.IntRange(0, 2).Draw(t, "source"))})
	}
	return traffic
}

func drawnRule(t *rapid.T) judge.Options {
	return judge.Options{
		Limit:   uint32(rapid.IntRange(1, 6).Draw(t, "limit")),
		Window:  time.Duration(rapid.IntRange(1, 5).Draw(t, "window")) * time.Second,
		Timeout: time.Duration(rapid.SampledFrom([]int{0, 500, 2000, 9000}).Draw(t, "timeout")) * time.Millisecond,
	}
}

func drawnOptions(o judge.Options, t *trace.Trace, mode judge.Mode) Options {
	return Options{Mode: mode, Limit: o.Limit, Window: o.Window, Timeout: o.Timeout, Start: t.Start, Edges: 3}
}

func runDesign(t testing.TB, list []Design, name string, trace *trace.Trace, mode judge.Mode, o judge.Options) judge.Figures {
	t.Helper()
	for _, c := range list {
		if c.Name == name {
			d, err := c.Run(context.Background(), trace, mode, o, judge.VirtualOptions{Edges: 3, PerConnection: 2, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			return d.Figures
		}
	}
	t.Fatalf("no design %q", name)
	return judge.Figures{}
}

// TestSlidingLogIsExact: what counts every request errs nowhere, in either mode, and the judge says so.
func TestSlidingLogIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		trace, o := someTraffic(rt), drawnRule(rt)
		for _, mode := range []judge.Mode{judge.Estimator, judge.Deployed} {
			f := runDesign(t, All(drawnOptions(o, trace, mode)), "sliding log", trace, mode, o)
			if f.Wrong != 0 || f.WronglyMitigated != 0 || f.MeanGap != 0 || f.FalseNegativeSources+f.FalsePositiveSources != 0 || f.Overshoot.Max != 0 {
				rt.Fatalf("%v: %+v", mode, f)
			}
		}
	})
}

// decisions is what a design says to each request, whichever edge it meets.
func decisions(c coordination, edges int, trace *trace.Trace) (said []judge.Decision) {
	l, _ := start(c)
	for i := range trace.Requests {
		l.Advance(trace.Requests[i].At)
		d := l.Decide(i%edges, trace.Requests[i].Source)
		d.Estimate = 0
		said = append(said, d)
	}
	return said
}

// TestLikeTheStore: a lease of one request at a time, over no distance, is to ask the store; and an edge that is the only one
// needs no store to know all, however seldom it syncs and however far that is.
func TestLikeTheStore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		trace, o := someTraffic(rt), drawnRule(rt)
		roundTrip := rapid.Int64Range(0, 3000).Draw(rt, "round trip") * 1e6
		interval := rapid.Int64Range(1, 3000).Draw(rt, "interval") * 1e6
		d := drawnOptions(o, trace, judge.Deployed)
		rule := d.complete()
		counter := func() *subWindows { return &subWindows{rule: rule, k: 12, weighed: true, rounded: true} }
		want := decisions(&central{store: decider{rule: rule, counts: counter()}}, 3, trace)
		if diff := cmp.Diff(want, decisions(newLeases(rule, counter(), 3, 0, 1), 3, trace)); diff != "" {
			rt.Fatalf("leases of one:\n%s", diff)
		}
		if diff := cmp.Diff(want, decisions(newPeriodic(rule, counter(), 1, roundTrip, interval), 1, trace)); diff != "" {
			rt.Fatalf("sync of one edge:\n%s", diff)
		}
	})
}

// TestTwoOfAKind: designs that are said to decide alike do.
func TestTwoOfAKind(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		trace, o := someTraffic(rt), drawnRule(rt)
		o.Limit = []uint32{1, 2, 4, 5, 5, 5}[o.Limit-1] // intervals of whole nanoseconds
		for _, mode := range []judge.Mode{judge.Estimator, judge.Deployed} {
			base, _ := judge.Baseline(trace, mode, o)
			f := runDesign(t, All(drawnOptions(o, trace, mode)), "two counters", trace, mode, o)
			if f.WronglyAllowed != base.WronglyAllowed || f.WronglyLimited != base.WronglyLimited || math.Abs(f.MeanGap-base.MeanGap) > 1e-9 || f.Refused != base.Refused {
				rt.Fatalf("%v: the design gives %+v, the baseline %+v", mode, f, base)
			}
		}
		list := All(drawnOptions(o, trace, judge.Deployed))
		tokens := runDesign(t, list, "token bucket", trace, judge.Deployed, o)
		cells := runDesign(t, list, "GCRA", trace, judge.Deployed, o)
		if tokens.Refused != cells.Refused || tokens.Wrong != cells.Wrong {
			rt.Fatalf("token bucket %+v, GCRA %+v", tokens, cells)
		}
	})
}

// TestLeases follows one source over two edges, with a round trip of 100 ms and three tokens to a lease.
func TestLeases(t *testing.T) {
	rule := rule{mode: judge.Deployed, limit: 8, window: int64(4 * time.Second), timeout: int64(10 * time.Second)}
	store := &subWindows{rule: rule, k: 4, weighed: true, rounded: true}
	l := newLeases(rule, store, 2, 100e6, 3)
	step := func(ms int64, edge int, verdict judge.Verdict, commands uint64, waited, held float64) {
		t.Helper()
		l.pass(ms * 1e6)
		d := l.decide(edge, 0, ms*1e6)
		got := []any{d.Verdict, l.cost().Commands, math.Round(100*l.cost().Waited) / 100, store.held(store.rings.Of(0), ms*1e6+50e6)}
		if diff := cmp.Diff([]any{verdict, commands, waited, held}, got); diff != "" {
			t.Errorf("at %d ms on edge %d:\n%s", ms, edge, diff)
		}
	}
	step(0, 0, judge.Admitted, 1, 1, 3)     // asks, and waits
	step(60, 0, judge.Admitted, 1, 1.4, 3)  // waits for the same answer
	step(200, 0, judge.Admitted, 1, 1.4, 3) // out of the lease
	step(210, 1, judge.Admitted, 2, 2.4, 6) // the other edge has none
	step(300, 0, judge.Admitted, 3, 3.4, 8) // all that is left: two
	step(310, 0, judge.Admitted, 3, 4.3, 8) // gets there at 400
	step(320, 0, judge.Limited, 4, 5.3, 8)
	step(330, 0, judge.Mitigated, 4, 5.3, 8)  // the edge knows
	step(340, 1, judge.Admitted, 4, 5.3, 8)   // what it has leased it has
	step(1320, 1, judge.Mitigated, 6, 6.3, 7) // its lease is over, one token went back; the store tells of the block
	step(10_320, 0, judge.Admitted, 7, 7.3, 3)
}

// TestPeriodic follows one source over two edges that sync every second, with a round trip of 100 ms.
func TestPeriodic(t *testing.T) {
	rule := rule{mode: judge.Deployed, limit: 4, window: int64(8 * time.Second)}
	p := newPeriodic(rule, &subWindows{rule: rule, k: 8, weighed: true, rounded: true}, 2, 100e6, 1e9)
	step := func(ms int64, edge int, verdict judge.Verdict, estimate float64, commands uint64) {
		t.Helper()
		p.pass(ms * 1e6)
		d := p.decide(edge, 0, ms*1e6)
		if diff := cmp.Diff([]any{verdict, estimate, commands}, []any{d.Verdict, d.Estimate, p.cost().Commands}); diff != "" {
			t.Errorf("at %d ms on edge %d:\n%s", ms, edge, diff)
		}
	}
	step(10, 0, judge.Admitted, 1, 0)
	step(20, 0, judge.Admitted, 2, 0)
	step(30, 1, judge.Admitted, 1, 0) // does not know
	step(40, 1, judge.Admitted, 2, 0)
	step(600, 1, judge.Admitted, 3, 1)  // has told at 500; the answer is there: nothing but its own
	step(1050, 0, judge.Admitted, 3, 2) // has told at 1000, and waits for the answer
	step(1100, 0, judge.Limited, 6, 2)  // now it knows of two more
	step(1400, 1, judge.Admitted, 4, 2) // knows nothing of the other edge yet
	step(1599, 1, judge.Limited, 5, 3)
	step(1600, 1, judge.Limited, 7, 3) // the edges together let six pass; one of them is not told yet
}

func TestCosts(t *testing.T) {
	traffic := &trace.Trace{Sources: make([]trace.Source, 2)}
	for i := range 10 {
		traffic.Requests = append(traffic.Requests, trace.Request{At: time.Duration(i) * time.Second, Source: int32(i / 8)})
	}
	o := judge.Options{Limit: 100, Window: time.Minute}
	list := All(Options{Mode: judge.Deployed, Limit: 100, Window: time.Minute, Edges: 3, RoundTrip: time.Millisecond, SyncEvery: 5 * time.Second, Lease: 4})
	f := func(name string, ops, trips, bytes float64) {
		t.Helper()
		got := runDesign(t, list, name, traffic, judge.Deployed, o)
		if diff := cmp.Diff([]float64{ops, trips, bytes}, []float64{*got.TierOpsPer1000, *got.AddedRoundTrips, got.BytesPerSource}); diff != "" {
			t.Errorf("%s (commands, round trips, bytes):\n%s", name, diff)
		}
	}
	f("sliding log", 0, 0, 8*5)
	f("fixed window", 0, 0, 8)
	f("two counters", 0, 0, 12)
	f("60 sub-windows", 0, 0, 244)
	f("12 sub-windows, rounded", 0, 0, 56)
	f("token bucket", 0, 0, 16)
	f("GCRA", 0, 0, 8)
	f("synchronous central store", 1000, 1, 56)
}

func TestRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trace := &trace.Trace{Sources: make([]trace.Source, 1), Requests: make([]trace.Request, 1)}
	d := Options{Limit: 1, Window: time.Second, Edges: 1}
	if _, err := All(d)[0].Run(ctx, trace, judge.Deployed, judge.Options{Limit: 1, Window: time.Second}, judge.VirtualOptions{Edges: 1}); err == nil {
		t.Error("it ran though its context was done")
	}
}
