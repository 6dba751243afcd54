package design

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
)

const (
	owned1 = "owner per key"
	owned2 = "owner per key, one lost"
)

// While all owners run they decide as one place does: each source is counted in one.
func TestOwnersDecideAsOnePlace(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		traffic, o := someTraffic(rt), drawnRule(rt)
		mode := rapid.SampledFrom([]judge.Mode{judge.Deployed, judge.Estimator}).Draw(rt, "mode")
		list := All(drawnOptions(o, traffic, mode))
		got, want := runDesign(t, list, owned1, traffic, mode, o), runDesign(t, list, "synchronous central store", traffic, mode, o)
		if got.Wrong != want.Wrong || got.Admitted != want.Admitted || got.Refused != want.Refused || got.Blocks != want.Blocks {
			rt.Fatalf("%+v\nwant %+v", got, want)
		}
		if *got.AddedRoundTrips > 1 || *got.TierOpsPer1000 > 1000 {
			rt.Fatalf("%v trips, %v messages for 1,000 requests", *got.AddedRoundTrips, *got.TierOpsPer1000)
		}
	})
}

// When an edge is lost its sources move, and no others; and nobody goes on asking it once that is known.
func TestOwnersMoveWithTheLostOne(t *testing.T) {
	r := rule{mode: judge.Deployed, limit: 4, window: int64(time.Second)}
	o := newOwners(func() *decider {
		return &decider{rule: r, counts: &subWindows{rule: r, k: 12, weighed: true, rounded: true}}
	}, 4, 0, int64(10*time.Second))
	before, owns := make([]int, 400), make([]int, 4)
	for s := range before {
		before[s] = o.of(int32(s), 0)
		owns[before[s]]++
	}
	o.load[2] = 1 // the busiest
	o.pass(int64(10 * time.Second))
	for s, was := range before {
		switch is := o.of(int32(s), int64(12*time.Second)); {
		case was == 2 && is == 2, was != 2 && is != was:
			t.Errorf("source %d was owned by %d, and is by %d", s, was, is)
		}
		if still := o.of(int32(s), int64(10*time.Second+time.Millisecond)); still != was {
			t.Errorf("source %d moves from %d to %d before anybody can have noticed", s, was, still)
		}
	}
	for edge, n := range owns {
		if n < 60 || n > 140 {
			t.Errorf("edge %d owns %d sources of 400", edge, n)
		}
	}
}

// A source that is over goes free when its owner is lost: for the time until that is noticed, then for another limit. The same source makes its
// owner the only one that has anything to do.
func TestOwnerLost(t *testing.T) {
	traffic := &trace.Trace{Sources: make([]trace.Source, 1)}
	for at := time.Duration(0); at < 20*time.Second; at += 100 * time.Millisecond {
		traffic.Requests = append(traffic.Requests, trace.Request{At: at})
	}
	o := judge.Options{Limit: 5, Window: 10 * time.Second, Timeout: 10 * time.Second}
	options := Options{Mode: judge.Deployed, Limit: o.Limit, Window: o.Window, Timeout: o.Timeout, Edges: 3, LoseAt: 5 * time.Second}
	for _, d := range All(options) {
		if d.Name != owned1 && d.Name != owned2 {
			continue
		}
		r, err := d.Run(t.Context(), traffic, judge.Deployed, o, judge.VirtualOptions{Edges: 3, PerConnection: 5, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		switch got := *r.Owners; {
		case got.Hottest != 1 && d.Name == owned1:
			t.Errorf("%s: the busiest decided about a share of %v", d.Name, got.Hottest)
		case d.Name == owned1 && (r.Figures.Wrong > 0 || got.LostRequests > 0):
			t.Errorf("%s: %d wrong, lost %+v", d.Name, r.Figures.Wrong, got)
		case d.Name == owned2 && (got.LostRequests != 5 || got.LostSources != 1 || got.LostBlocks != 1 || got.Unanswered != 10 || r.Figures.WronglyAllowed < 10):
			t.Errorf("%s: %d let pass over, lost %+v", d.Name, r.Figures.WronglyAllowed, got)
		}
	}
	options.LoseAt, options.Edges = 0, 1
	for _, d := range All(options) {
		if d.Name == owned2 {
			t.Error("nobody is lost, and there is a row for it")
		}
	}
}
