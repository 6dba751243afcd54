package algorithm_test

import (
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"

	"pgregory.net/rapid"
)

// A table that counts alone has the exact count at every instant, but for a 2^24th of a sub-window,
// and who waits as long as it is told is admitted and not before.
func TestExactIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(rapid.Uint32Range(1, 110), rapid.Uint32Range(1, algorithm.MaxExact)).Draw(t, "limit")
		window := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 24 * time.Hour}).Draw(t, "window")
		r, err := algorithm.NewExact("exact", limit, window, rapid.SampledFrom([]int{1, 4, 12}).Draw(t, "sub_windows"))
		if err != nil {
			t.Fatal(err)
		}
		table := counter.New(counter.Options{Counters: 100})
		var admitted []time.Time
		now, tick := epoch, window/time.Duration(r.SubWindows)>>24+2
		count := func(now time.Time) (n uint32) {
			for _, at := range admitted {
				if now.Sub(at) < window {
					n++
				}
			}
			return n
		}
		fill := rapid.IntRange(0, int(limit)).Draw(t, "fill") // comes evenly within a window first
		for i := range fill + rapid.IntRange(1, 400).Draw(t, "requests") {
			most := 1 / float64(limit)
			if i >= fill {
				most = rapid.SampledFrom([]float64{0, 1 / float64(limit), 0.3, 1.2, 30}).Draw(t, "most")
			}
			now = now.Add(time.Duration(rapid.Float64Range(0, most).Draw(t, "gap") * float64(window)))
			ask := []counter.Reservation{{Rule: r, Source: address(1), Hits: 1}}
			ok, want := table.Reserve(ask, now), count(now)+1
			if got := uint32(ask[0].Estimate); got > want || got < count(now.Add(tick))+1 {
				t.Fatalf("%d hits, want %d", got, want)
			}
			if ok {
				admitted = append(admitted, now)
				continue
			}
			wait := ask[0].RetryAfter
			if early := count(now.Add(wait - tick - 2*time.Microsecond)); early < limit {
				t.Fatalf("retry after %v, and there is room before", wait)
			}
			if v, _ := table.Peek(r, address(1), now.Add(wait)); v.Over {
				t.Fatalf("refused after waiting %v: %+v", wait, v)
			}
		}
	})
}

// A limit that is raised has room for all that has come, and forgets nothing of it.
func TestExactLimitRaised(t *testing.T) {
	table, now := counter.New(counter.Options{Counters: 100}), epoch
	admitted := 0
	for _, limit := range []uint32{50, 100, 700, 1000} {
		r, err := algorithm.NewExact("exact", limit, time.Minute, 12)
		if err != nil {
			t.Fatal(err)
		}
		for range limit {
			now = now.Add(10 * time.Millisecond)
			if table.Reserve([]counter.Reservation{{Rule: r, Source: address(1), Hits: 1}}, now) {
				admitted++
			}
		}
		if v, _ := table.Peek(r, address(1), now); admitted != int(limit) || v.Estimate != float64(limit) {
			t.Errorf("%d admitted, and %v are known, of %d", admitted, v.Estimate, limit)
		}
	}
	r, err := algorithm.NewExact("exact", 1000, time.Minute, 12)
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := table.Peek(r, address(1), epoch.Add(time.Minute+5*time.Second)); v.Estimate != 550 {
		t.Errorf("%v are left, want 550", v.Estimate)
	}
}

// Two requests that are counted in another order than their clocks were read, around the beginning
// of a sub-window, lose nothing of the log.
func TestExactInAnotherOrder(t *testing.T) {
	r, err := algorithm.NewExact("exact", 5, time.Minute, 12)
	if err != nil {
		t.Fatal(err)
	}
	table, begin := counter.New(counter.Options{Counters: 100}), time.Unix(1_700_000_040, 0)
	ask := func(s float64) bool {
		return table.Reserve([]counter.Reservation{{Rule: r, Source: address(1), Hits: 1}}, begin.Add(time.Duration(s*float64(time.Second))))
	}
	for _, s := range []float64{9, 9.001, 9.002, 65.001, 64.999} {
		if !ask(s) {
			t.Fatalf("refused at %v", s)
		}
	}
	if !ask(69.0005) || ask(69.0005) {
		t.Error("four are in the window, and not one more was admitted")
	}
}

// Hits of which a table knows nothing but the lane leave with it, so nobody is refused who is at or
// under the limit.
func TestExactOfOthersHits(t *testing.T) {
	r, err := algorithm.NewExact("exact", 3, 12*time.Second, 12)
	if err != nil {
		t.Fatal(err)
	}
	counts, learns := counter.New(counter.Options{Counters: 100}), counter.New(counter.Options{Counters: 100})
	c, start := counter.Counter{Rule: r, Source: address(1)}, time.Unix(1_700_000_400, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	counts.Reserve([]counter.Reservation{{Rule: r, Source: c.Source, Hits: 2}}, at(900*time.Millisecond))
	newest, groups := counts.Reports().Snapshot(c, at(900*time.Millisecond))
	learns.Reports().Announced(c, newest, groups, at(900*time.Millisecond))
	learns.Reserve([]counter.Reservation{{Rule: r, Source: c.Source, Hits: 1}}, at(950*time.Millisecond))
	for _, step := range []struct {
		at   time.Duration
		want float64 // used, as both tables say it
		own  float64
	}{
		{11999 * time.Millisecond, 3, 2}, {12001 * time.Millisecond, 1, 2}, {12940 * time.Millisecond, 1, 0}, {12960 * time.Millisecond, 0, 0},
	} {
		got, _ := learns.Peek(r, c.Source, at(step.at))
		own, _ := counts.Peek(r, c.Source, at(step.at))
		if got.Estimate != step.want || own.Estimate != step.own {
			t.Errorf("after %v: %v and %v, want %v and %v", step.at, got.Estimate, own.Estimate, step.want, step.own)
		}
	}
	if _, err := algorithm.NewExact("exact", algorithm.MaxExact+1, time.Minute, 12); err == nil {
		t.Error("a limit that no log holds")
	}
}
