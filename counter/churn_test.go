package counter

import (
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// churn is traffic of which most sources come once: each second of virtual time so many of them, as many hits of sources that came
// before, a tier that answers what is reported, and now and then a rule that forgets somebody.
type churn struct {
	table        *Table
	rules        []*algorithm.Spec
	now          time.Time
	next         uint32 // the next stranger
	dirty        []Counter
	reservations []Reservation
}

func newChurn(t testing.TB, counters int) *churn {
	c := &churn{table: New(Options{Counters: counters, Tier: true}), now: epoch, reservations: make([]Reservation, 2)}
	c.rules = []*algorithm.Spec{rule(t, 20, time.Minute, 12, algorithm.Nearest), rule(t, 50_000, time.Minute, 12, algorithm.Nearest)}
	algorithm.Renumber(c.rules)
	return c
}

func (c *churn) hit(source uint32) {
	for i, r := range c.rules {
		c.reservations[i] = Reservation{Rule: r, Source: address(source), Hits: 1}
	}
	c.table.Reserve(c.reservations, c.now)
}

func (c *churn) second(strangers int, rng *rand.Rand) {
	for range strangers {
		c.hit(c.next)
		c.next++
		c.hit(c.next - min(c.next, uint32(rng.ExpFloat64()*float64(10*strangers)))) // who came in the last seconds
	}
	c.table.Forget(c.rules[0], address(c.next-1))
	c.now = c.now.Add(time.Second)
	c.table.Reports().Sweep(c.now, false)
	c.dirty = c.table.Reports().Dirty(c.dirty[:0], math.MaxInt32)
	for _, d := range c.dirty {
		rep, _ := c.table.Reports().Take(d, c.now)
		for _, p := range rep.Parts[:rep.N] {
			c.table.Reports().Counted(d, p, p.Known, c.now)
		}
	}
}

// TestChurnDoesNotGrow: an hour of strangers, more than a hundred times as many as the table has room for, leaves it as large as ten minutes
// did, and what it keeps beside its counters within bounds.
func TestChurnDoesNotGrow(t *testing.T) {
	c := newChurn(t, 1000)
	rng := rand.New(rand.NewPCG(1, 2))
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	minutes := func(n int) {
		for range n * 60 {
			c.second(40, rng)
		}
	}
	minutes(10)
	begin := heap()
	minutes(50)
	if end := heap(); end > begin+64<<10 {
		t.Errorf("the heap grew from %d to %d bytes in 50 minutes", begin, end)
	}
	for i := range c.table.shards {
		s := &c.table.shards[i]
		if s.histograms.Len() > s.histograms.Cap() || s.unconfirmed.Len() > s.unconfirmed.Cap()+1 || len(s.waiting) > 0 {
			t.Errorf("shard %d: %d histograms of %d, %d unconfirmed of %d, %d waiting",
				i, s.histograms.Len(), s.histograms.Cap(), s.unconfirmed.Len(), s.unconfirmed.Cap(), len(s.waiting))
		}
	}
	if st := c.table.Stats(); st.Evicted < 100_000 || st.Counters > 2*st.Capacity {
		t.Errorf("%d evicted and %d of %d there: this was no churn", st.Evicted, st.Counters, st.Capacity)
	}
	runtime.KeepAlive(c)
}

// BenchmarkChurn is an hour of a full table for a million sources, 500 strangers and 500 others in a second of it, and a
// collection of garbage in each minute. It reports the longest pause of those and by how much the heap grew after ten minutes.
func BenchmarkChurn(b *testing.B) {
	for range b.N {
		c := newChurn(b, 1_000_000)
		rng := rand.New(rand.NewPCG(1, 2))
		for range 1_000_000 {
			c.hit(c.next)
			c.next++
		}
		before := pauses()
		var begin, end runtime.MemStats
		for second := range 3600 {
			c.second(500, rng)
			if second%60 == 59 {
				runtime.GC()
			}
			if second == 599 {
				runtime.ReadMemStats(&begin)
			}
		}
		runtime.ReadMemStats(&end)
		b.ReportMetric(longest(before, pauses())*1e6, "µs-longest-pause")
		b.ReportMetric(float64(int64(end.HeapAlloc)-int64(begin.HeapAlloc))/1e3, "kB-grown")
		b.ReportMetric(float64(end.HeapAlloc)/1e6, "MB-heap")
		runtime.KeepAlive(c)
	}
}

// pauses is how often collections have stopped the world, by for how long.
func pauses() *metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64Histogram()
}

// longest is the longest pause between two looks, at most.
func longest(before, after *metrics.Float64Histogram) (worst float64) {
	for i, n := range after.Counts {
		if n > before.Counts[i] && !math.IsInf(after.Buckets[i+1], 1) {
			worst = after.Buckets[i+1]
		}
	}
	return worst
}

// TestHeldOutlivesStrangers: a counter of which requests have reserved outlives any number of strangers who use more of their limit, though no hit
// of its own is counted yet.
func TestHeldOutlivesStrangers(t *testing.T) {
	r := rule(t, 10, time.Minute, 12, algorithm.Nearest)
	for _, tier := range []bool{false, true} {
		table := New(Options{Counters: 1000, Tier: tier})
		held := make([]Reservation, 20)
		for i := range held {
			held[i] = Reservation{Rule: r, Source: address(uint32(i)), Hits: 1, Hold: true}
			table.Reserve(held[i:i+1], epoch)
		}
		for i := range uint32(20_000) {
			table.Reserve([]Reservation{{Rule: r, Source: address(1000 + i), Hits: 1 + i%9}}, epoch)
		}
		if table.Stats().Evicted < 10_000 {
			t.Fatalf("tier %v: %d were evicted: the table was not full", tier, table.Stats().Evicted)
		}
		for i := range held {
			v, there := table.Peek(r, held[i].Source, epoch)
			if !there || v.Estimate != 1 {
				t.Errorf("tier %v: of held reservation %d the table knows %v, there %v", tier, i, v.Estimate, there)
			}
		}
	}
}
