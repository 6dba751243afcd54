package algorithm_test

import (
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"

	"pgregory.net/rapid"
)

// In each window of the clock exactly the limit is admitted, of every source from the same instant
// on, and who is refused is told when the next begins.
func TestFixedWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]uint32{1, 2, 10, 15_000, 20_000}).Draw(t, "limit")
		window := rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, time.Minute, 24 * time.Hour}).Draw(t, "window")
		r, err := algorithm.NewFixed("fixed", limit, window)
		if err != nil {
			t.Fatal(err)
		}
		table := counter.New(counter.Options{Counters: 100, Phase: func(counter.Source) uint16 { return 40_000 }})
		now, counted := epoch, make(map[int64]uint32)
		for range rapid.IntRange(1, 100).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.Float64Range(0, 0.4).Draw(t, "gap") * float64(window)))
			n := now.UnixNano() / int64(window)
			hits := rapid.Uint32Range(1, limit).Draw(t, "hits")
			ask := []counter.Reservation{{Rule: r, Source: address(1), Hits: hits}}
			admitted := table.Reserve(ask, now)
			if want := counted[n]+hits <= limit; admitted != want || ask[0].Estimate != float64(counted[n]+hits) {
				t.Fatalf("admitted %t, estimate %v, after %d and %d more of %d", admitted, ask[0].Estimate, counted[n], hits, limit)
			}
			if admitted {
				counted[n] += hits
				continue
			}
			if end := time.Unix(0, (n+1)*int64(window)).Sub(now); (ask[0].RetryAfter-end).Abs() > time.Millisecond || ask[0].RetryAfter < end {
				t.Fatalf("retry after %v, and the window ends after %v", ask[0].RetryAfter, end)
			}
		}
	})
}

// What is left of a fixed window may be relied on again when the next one begins, of a sliding one
// after a window.
func TestReset(t *testing.T) {
	fixed, err := algorithm.NewFixed("fixed", 100, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	sliding, err := algorithm.NewSliding("sliding", 100, 24*time.Hour, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	for clock, want := range map[string]time.Duration{"00:00:00": 24 * time.Hour, "06:00:00": 18 * time.Hour, "23:59:59": time.Second} {
		now, err := time.Parse(time.DateTime, "2026-05-04 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		if got := fixed.Reset(now); got < want || got > want+time.Millisecond {
			t.Errorf("fixed at %s: %v, want %v", clock, got, want)
		}
		if got := sliding.Reset(now); got != 24*time.Hour {
			t.Errorf("sliding at %s: %v", clock, got)
		}
	}
}
