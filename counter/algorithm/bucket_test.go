package algorithm_test

import (
	"math"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"

	"pgregory.net/rapid"
)

// gcra is the generic cell rate algorithm in virtual scheduling, with floats: what is counted is
// due one interval after the last, and may come early by burst-1 of them.
type gcra struct {
	interval float64 // ns
	due      float64 // theoretical arrival time
}

// level is what a bucket holds at an instant.
func (g *gcra) level(at int64) float64 { return max(g.due-float64(at), 0) / g.interval }

func (g *gcra) count(at int64, hits uint32) {
	g.due = max(g.due, float64(at)) + float64(hits)*g.interval
}

// bucketOf draws a bucket, and how long an instant can be in it.
func bucketOf(t *rapid.T) (r *algorithm.Spec, burst uint32, g gcra) {
	limit := rapid.OneOf(rapid.Uint32Range(1, 200), rapid.Uint32Range(200, 1_000_000)).Draw(t, "limit")
	window := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour}).Draw(t, "window")
	burst = rapid.OneOf(rapid.Uint32Range(1, 10), rapid.Uint32Range(1, 3*limit)).Draw(t, "burst")
	r, err := algorithm.NewBucket("bucket", limit, window, rapid.SampledFrom([]int{1, 2, 4, 8, 12}).Draw(t, "sub_windows"), burst, 0)
	if err != nil {
		t.Skip(err)
	}
	return r, burst, gcra{interval: float64(window) / float64(limit)}
}

// gap draws the time until the next request: often one after the other, sometimes long after.
func gap(t *rapid.T, r *algorithm.Spec, g gcra) time.Duration {
	most := rapid.SampledFrom([]float64{0, g.interval, 3 * g.interval, float64(r.SubWindow()), float64(r.Window), 20 * float64(r.Window)}).Draw(t, "most")
	return time.Duration(rapid.Float64Range(0, max(most, 1)).Draw(t, "gap"))
}

// A table that counts alone decides as GCRA does, to a millionth of a hit, which it lets through;
// and who waits as long as it is told is admitted, and not much sooner.
func TestBucketIsGCRA(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, burst, truth := bucketOf(t)
		table := counter.New(counter.Options{Counters: 100})
		now := epoch
		fine := 1e-6
		for n := range rapid.IntRange(1, 300).Draw(t, "requests") {
			now = now.Add(gap(t, r, truth))
			hits := rapid.OneOf(rapid.Just(uint32(1)), rapid.Uint32Range(1, burst)).Draw(t, "hits")
			ask := []counter.Reservation{{Rule: r, Source: address(1), Hits: hits}}
			admitted := table.Reserve(ask, now)
			level := truth.level(int64(now.Sub(epoch)))
			slack := float64(2*n+3)*fine + 1e-5*(level+1)
			if got := ask[0].Estimate - float64(hits); got > level+1e-6+level*1e-9 || got < level-slack {
				t.Fatalf("level %v, want %v", got, level)
			}
			switch over := level + float64(hits) - float64(burst); {
			case admitted && over > slack, !admitted && over <= -1e-6:
				t.Fatalf("admitted %t at a level of %v and %d hits of %d", admitted, level, hits, burst)
			case admitted:
				truth.count(int64(now.Sub(epoch)), hits)
				continue
			}
			wait := ask[0].RetryAfter
			if want := time.Duration((level + float64(hits) - float64(burst)) * truth.interval); (wait - want).Abs() > 2*time.Microsecond+time.Duration(slack*truth.interval) {
				t.Fatalf("retry after %v, want %v", wait, want)
			}
			if v, _ := table.Peek(r, address(1), now.Add(wait)); hits == 1 && v.Over {
				t.Fatalf("refused after waiting %v: %+v", wait, v)
			}
		}
	})
}

// A table that knows of all hits only by what another tells of its lanes is below the true level by
// what drains in a sub-window at most, and never above it, for as long as it goes on: no memory of
// how full the bucket was is lost with the lanes that become too old.
func TestBucketOfOthersHits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, burst, truth := bucketOf(t)
		counts, learns := counter.New(counter.Options{Counters: 100}), counter.New(counter.Options{Counters: 100})
		c, now := counter.Counter{Rule: r, Source: address(1)}, epoch
		fine, drain := r.Coarseness()
		for n := range rapid.IntRange(1, 200).Draw(t, "requests") {
			now = now.Add(gap(t, r, truth))
			v, _ := learns.Peek(r, c.Source, now)
			level := truth.level(int64(now.Sub(epoch)))
			most := drain + float64(2*n+3)*fine + 1e-5*(level+1)
			if v.Estimate > level+1e-6+level*1e-9 || v.Estimate < level-most {
				t.Fatalf("level %v, want %v and at most %v less", v.Estimate, level, most)
			}
			hits := uint32(1)
			if rapid.Bool().Draw(t, "full") {
				hits = max(uint32(math.Floor(float64(burst)-level)), 1)
			}
			if ask := []counter.Reservation{{Rule: r, Source: c.Source, Hits: hits}}; counts.Reserve(ask, now) {
				truth.count(int64(now.Sub(epoch)), hits)
			}
			newest, groups := counts.Reports().Snapshot(c, now)
			learns.Reports().Announced(c, newest, groups, now)
		}
	})
}

// A queue: what is over the burst has its turn later, one interval after the other, and beyond the
// queue is refused.
func TestBucketQueue(t *testing.T) {
	r, err := algorithm.NewBucket("leaky", 10, time.Second, 12, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	table := counter.New(counter.Options{Counters: 100})
	for _, step := range []struct {
		at    time.Duration
		delay time.Duration // less than 0: refused, and a retry is admitted after so long
	}{
		{0, 0}, {0, 100 * time.Millisecond}, {0, 200 * time.Millisecond}, {0, 300 * time.Millisecond}, {0, -100 * time.Millisecond},
		{50 * time.Millisecond, -50 * time.Millisecond}, {150 * time.Millisecond, 250 * time.Millisecond}, {time.Second, 0}, {1050 * time.Millisecond, 50 * time.Millisecond},
	} {
		ask := []counter.Reservation{{Rule: r, Source: address(1), Hits: 1}}
		got := time.Duration(0)
		if table.Reserve(ask, epoch.Add(step.at)) {
			got = ask[0].Delay
		} else {
			got = -ask[0].RetryAfter
		}
		if (got - step.delay).Abs() > 100*time.Microsecond {
			t.Errorf("after %v: %v, want %v", step.at, got, step.delay)
		}
	}
}

// Tables that tell each other now and then are never above the true level.
func TestBucketsOfSeveralTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, _, truth := bucketOf(t)
		var tables []*counter.Table
		for range 3 {
			tables = append(tables, counter.New(counter.Options{Counters: 100, Tier: true}))
		}
		c, now := counter.Counter{Rule: r, Source: address(1)}, epoch
		tier := make(map[uint32]uint64)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(gap(t, r, truth))
			table := tables[rapid.IntRange(0, 2).Draw(t, "table")]
			if v, _ := table.Peek(r, c.Source, now); v.Estimate > truth.level(int64(now.Sub(epoch)))*(1+1e-9)+1e-6 {
				t.Fatalf("level %v, and at most %v is possible", v.Estimate, truth.level(int64(now.Sub(epoch))))
			}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				if table.Reserve([]counter.Reservation{{Rule: r, Source: c.Source, Hits: 1}}, now) {
					truth.count(int64(now.Sub(epoch)), 1)
				}
			case 2: // it reports
				table.Reports().Sweep(now, true)
				rep, _ := table.Reports().Take(c, now)
				for _, p := range rep.Parts[:rep.N] {
					if _, there := tier[p.Group]; there {
						tier[p.Group] += p.Hits
					} else {
						tier[p.Group] = p.Known
					}
					table.Reports().Counted(c, p, tier[p.Group], now)
				}
			case 3: // it is told
				newest, groups := tables[rapid.IntRange(0, 2).Draw(t, "from")].Reports().Snapshot(c, now)
				table.Reports().Announced(c, newest, groups, now)
			}
		}
	})
}
