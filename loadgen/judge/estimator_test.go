package judge

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/loadgen/workload"
)

// naiveExact is exact(t) by counting them all.
func naiveExact(stamps []int64, now, window int64) (n uint32) {
	for _, at := range stamps {
		if at > now-window && at <= now {
			n++
		}
	}
	return n
}

func TestEstimatorJudgeAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := uint32(rapid.IntRange(1, 6).Draw(t, "limit"))
		window := int64(rapid.IntRange(1, 40).Draw(t, "window"))
		j := NewEstimatorJudge(Options{Limit: limit, Window: time.Duration(window)})

		stamps := map[int32][]int64{}
		most, said := map[int32]uint32{}, map[int32]int{}
		var want Figures
		gaps, now := 0.0, int64(0)
		for range rapid.IntRange(0, 200).Draw(t, "n") {
			now += int64(rapid.IntRange(0, 12).Draw(t, "step"))
			source := int32(rapid.IntRange(0, 3).Draw(t, "source"))
			estimate := float64(rapid.IntRange(0, 80).Draw(t, "estimate")) / 8
			over := estimate > float64(limit)

			stamps[source] = append(stamps[source], now)
			exact := naiveExact(stamps[source], now, window)
			most[source] = max(most[source], exact)
			gaps += math.Abs(estimate-float64(exact)) / float64(exact)
			want.Requests++
			if over {
				want.Refused++
				said[source]++
			}
			if over && exact <= limit {
				want.WronglyLimited++
			}
			if !over && exact > limit {
				want.WronglyAllowed++
			}
			if got := j.Observe(source, now, estimate, over); got != exact {
				t.Fatalf("at %d: exact %d, want %d", now, got, exact)
			}
		}
		for source, m := range most {
			want.Sources++
			switch {
			case m > limit && said[source] == 0:
				want.FalseNegativeSources++
				want.FalseNegativeMargin = max(want.FalseNegativeMargin, float64(m)/float64(limit)-1)
			case m <= limit && said[source] > 0:
				want.FalsePositiveSources++
				want.FalsePositiveMargin = max(want.FalsePositiveMargin, 1-float64(m)/float64(limit))
				want.RefusedOfInnocent += uint64(said[source])
			}
		}
		got := j.Figures()
		if math.Abs(got.MeanGap*float64(want.Requests)-gaps) > 1e-9 {
			t.Fatalf("mean gap %v, want %v", got.MeanGap, gaps/float64(want.Requests))
		}
		compare(t, want, got)
	})
}

// compare holds the counted figures against each other.
func compare(t *rapid.T, want, got Figures) {
	type counted struct {
		Requests, Allowed, Limited, Follow, Refused, Innocent, Blocks uint64
		Sources, Negative, Positive                                   int
		Over, Under                                                   float64
	}
	pick := func(f *Figures) counted {
		return counted{f.Requests, f.WronglyAllowed, f.WronglyLimited, f.WronglyMitigated, f.Refused, f.RefusedOfInnocent, f.Blocks,
			f.Sources, f.FalseNegativeSources, f.FalsePositiveSources, f.FalseNegativeMargin, f.FalsePositiveMargin}
	}
	if diff := cmp.Diff(pick(&want), pick(&got)); diff != "" {
		t.Fatal(diff)
	}
}

// TestEstimatorJudgeInParts judges by halves, and source by source, and finds the same.
func TestEstimatorJudgeInParts(t *testing.T) {
	trace, err := workload.Generate("distributed", workload.Options{Seed: 1, Limit: 20, Window: time.Second, Duration: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Limit: 20, Window: time.Second}
	b := NewTwoCounters(o, trace.Start)
	whole, parts := NewEstimatorJudge(o), [2]*EstimatorJudge{NewEstimatorJudge(o), NewEstimatorJudge(o)}
	for _, r := range trace.Requests {
		estimate, over := b.Estimate(r.Source, int64(r.At))
		whole.Observe(r.Source, int64(r.At), estimate, over)
		parts[r.Source%2].Observe(r.Source, int64(r.At), estimate, over)
	}
	parts[0].Add(parts[1])
	want, got := whole.Figures(), parts[0].Figures()
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Abs(a) }) // sums in another order
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Error(diff)
	}
	if want.Wrong == 0 || want.MeanGap == 0 {
		t.Error("nothing to compare")
	}
	if again := parts[0].Figures(); !cmp.Equal(got, again) {
		t.Error("figures change when asked for twice")
	}

	one := NewEstimatorJudge(o)
	b = NewTwoCounters(o, trace.Start)
	for s := range int32(len(trace.Sources)) {
		for _, r := range trace.Requests {
			if r.Source == s {
				estimate, over := b.Estimate(0, int64(r.At))
				one.Observe(0, int64(r.At), estimate, over)
			}
		}
		one.Done(0)
		b.Forget(0)
	}
	if diff := cmp.Diff(want, one.Figures(), near); diff != "" {
		t.Error(diff)
	}
	if len(one.states) > 1024 || len(one.spare) > 1 {
		t.Errorf("source by source took %d states and %d rings", len(one.states), len(one.spare))
	}
}

func TestTwoCounters(t *testing.T) {
	b := NewTwoCounters(Options{Limit: 1000, Window: time.Minute}, time.Time{})
	estimate := 0.0
	for i := range 42 {
		estimate, _ = b.Estimate(0, int64(i)*int64(time.Second))
	}
	if estimate != 42 {
		t.Errorf("42 in the first window: %v", estimate)
	}
	for range 18 {
		estimate, _ = b.Estimate(0, int64(75*time.Second))
	}
	if want := 42*0.75 + 18; estimate != want {
		t.Errorf("estimate %v, want %v", estimate, want)
	}
	if estimate, _ = b.Estimate(0, int64(10*time.Minute)); estimate != 1 {
		t.Errorf("after a long pause %v, want 1", estimate)
	}
}

func BenchmarkEstimatorJudge(b *testing.B) {
	trace, err := workload.Generate("mixed", workload.Options{Seed: 1, Limit: 20, Window: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	j := NewEstimatorJudge(Options{Limit: 20, Window: 10 * time.Second})
	span := trace.Duration() + time.Second
	b.ResetTimer()
	for i := range b.N {
		r := &trace.Requests[i%len(trace.Requests)]
		j.Observe(r.Source, int64(r.At)+int64(i/len(trace.Requests))*int64(span), 20, false)
	}
}
