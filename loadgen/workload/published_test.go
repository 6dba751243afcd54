package workload

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"sluice/loadgen/judge"
)

func TestPublishedCounts(t *testing.T) {
	for _, scale := range []int{1, 100, 1_000_000} {
		p, err := NewPublished(PublishedBursty, scale)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, n := range p.Counts() {
			if n < 0 {
				t.Fatalf("a source with %d requests", n)
			}
			sum += n
		}
		if sum != p.Requests {
			t.Errorf("one %d-th: %d requests, want %d", scale, sum, p.Requests)
		}
	}
	if _, err := NewPublished("published", 1); err == nil {
		t.Error("no error for an unknown model")
	}
}

// Arrivals are in order and as many as were asked for, and two plain counters have about the mean gap that was published: the models have
// the right shape. A four-hundredth has too few hot visits for the share of wrong decisions, which cmd/sluice-loadgen has a test of.
func TestPublishedArrivals(t *testing.T) {
	for _, name := range []string{PublishedBursty, PublishedPoisson} {
		p, err := NewPublished(name, 400)
		if err != nil {
			t.Fatal(err)
		}
		p.Seed = 1
		o := judge.Options{Limit: 100, Window: time.Minute}
		b, j := judge.NewTwoCounters(o, time.Time{}), judge.NewEstimatorJudge(o)
		for source, n := range p.Counts() {
			var sent int64
			last := time.Duration(-1)
			for at := range p.Arrivals(source, n) {
				if at < last {
					t.Fatalf("%s, source %d: %v after %v", name, source, at, last)
				}
				last = at
				sent++
				estimate, over := b.Estimate(0, int64(at))
				j.Observe(0, int64(at), estimate, over)
			}
			if sent != n {
				t.Fatalf("%s, source %d: %d requests, want %d", name, source, sent, n)
			}
			j.Done(0)
			b.Forget(0)
		}
		f := j.Figures()
		if f.Requests != 1_000_000 || f.Sources != 675 || f.MeanGap < 0.055 || f.MeanGap > 0.065 {
			t.Errorf("%s: %d requests of %d sources, mean gap %.4f", name, f.Requests, f.Sources, f.MeanGap)
		}
	}
}

// TestPublishedInOrder: the same requests as source by source, sorted.
func TestPublishedInOrder(t *testing.T) {
	type request struct {
		at     time.Duration
		source int
	}
	for _, name := range []string{PublishedBursty, PublishedPoisson} {
		p, err := NewPublished(name, 20_000)
		if err != nil {
			t.Fatal(err)
		}
		p.Seed = 3
		var want, got []request
		for source, n := range p.Counts() {
			for at := range p.Arrivals(source, n) {
				want = append(want, request{at, source})
			}
		}
		slices.SortStableFunc(want, func(a, b request) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.source, b.source)) })
		for source, at := range p.InOrder() {
			got = append(got, request{at, source})
		}
		if int64(len(got)) != p.Requests || !slices.Equal(got, want) {
			t.Errorf("%s: %d requests in order, %d source by source, or in another order", name, len(got), len(want))
		}
		for range p.InOrder() { // it can be left early
			break
		}
	}
}

func TestPublishedIsRepeatable(t *testing.T) {
	p, _ := NewPublished(PublishedPoisson, 1000)
	all := slices.Collect(p.Arrivals(7, 1000))
	if again := slices.Collect(p.Arrivals(7, 1000)); !slices.Equal(all, again) {
		t.Error("one source, two streams")
	}
	if other := slices.Collect(p.Arrivals(8, 1000)); slices.Equal(all, other) {
		t.Error("two sources, one stream")
	}
	var part []time.Duration
	for at := range p.Arrivals(7, 1000) {
		if part = append(part, at); len(part) == 10 {
			break
		}
	}
	if !slices.Equal(part, all[:10]) {
		t.Error("the beginning alone differs")
	}
	p.Seed = 2
	if slices.Equal(all, slices.Collect(p.Arrivals(7, 1000))) {
		t.Error("two seeds, one stream")
	}
}
