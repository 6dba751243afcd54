package counter

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// use has so many sources visit a table in turn within a minute, and each so often, with so many hits. If the tier answers, what is due is reported some
// times a second.
func use(table *Table, r *algorithm.Spec, sources, visits int, hits uint32, answers bool) {
	reservations, dirty := make([]Reservation, 1), []Counter(nil)
	between := time.Minute / time.Duration(visits) / time.Duration(sources)
	for i := range visits * sources {
		now := epoch.Add(time.Duration(i) * between)
		reservations[0] = Reservation{Rule: r, Source: address(uint32(i % sources)), Hits: hits}
		table.Reserve(reservations, now)
		every := max(sources/1000, 1)
		if !answers || i%every != 0 {
			continue
		}
		if i/every%(5*visits) == 0 { // 200 times a minute
			table.Reports().Sweep(now, false)
		}
		for {
			if dirty = table.Reports().Dirty(dirty[:0], 4096); len(dirty) == 0 {
				break
			}
			for _, c := range dirty {
				rep, _ := table.Reports().Take(c, now)
				for _, p := range rep.Parts[:rep.N] {
					table.Reports().Counted(c, p, p.Known, now)
				}
			}
		}
	}
}

// toUse makes a table of one of so many edges.
func toUse(counters, edges int, tier bool) *Table {
	table := New(Options{Counters: counters, Tier: tier, Phase: func(s Source) uint16 { return uint16(s.id[3])<<8 | uint16(s.id[2]) }})
	table.SetEdges(edges)
	return table
}

// room is how many counters of a rule a table for so many has room for.
func roomOf(r *algorithm.Spec, counters int) int {
	if r.Wide() {
		return counters / 16
	}
	return counters
}

// BenchmarkMemory is what a counter takes of this process, by limit, hits, tier, and how full a table for a million is. Thirty hits come ten at a time. With a
// tier there are four edges, so that hits wait to be reported together: 64 report them at once. counted-B is what the table believes, when it is full.
func BenchmarkMemory(b *testing.B) {
	for _, tier := range []bool{false, true} {
		for _, limit := range []uint32{10, 100, 1000, 20_000} {
			for _, hits := range []uint32{1, 3, 30} {
				b.Run(fmt.Sprintf("limit=%d/hits=%d/tier=%v", limit, hits, tier), func(b *testing.B) {
					benchMemory(b, 1_000_000, limit, hits, tier, 4, 10, 50, 100)
				})
			}
		}
	}
	b.Run("limit=100/hits=3/edges=64", func(b *testing.B) { benchMemory(b, 1_000_000, 100, 3, true, MaxEdges, 100) })
}

// BenchmarkTenMillion is the same of ten million counters in a PoP of 64 edges.
func BenchmarkTenMillion(b *testing.B) { benchMemory(b, 10_000_000, 100, 3, true, MaxEdges, 100) }

func benchMemory(b *testing.B, counters int, limit, hits uint32, tier bool, edges int, shares ...int) {
	r := rule(b, limit, time.Minute, 12, algorithm.Nearest)
	for range b.N {
		for _, share := range shares {
			debug.FreeOSMemory()
			before, sources := resident(b), roomOf(r, counters)*share/100
			table := toUse(counters, edges, tier)
			use(table, r, sources, min(int(hits), 3), max(hits/3, 1), tier)
			debug.FreeOSMemory()
			b.ReportMetric(float64(resident(b)-before)/float64(sources), fmt.Sprintf("B-at-%d%%", share))
			if share == 100 {
				b.ReportMetric(float64(table.Stats().Bytes)/float64(sources), "counted-B")
				b.ReportMetric(float64(table.Stats().Evicted)/float64(sources), "evicted/counter")
			}
			runtime.KeepAlive(table)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// TestMemoryBound: what a counter takes of a full table, all that belongs to it included, is no more than the documents promise, at the sizes at which
// shards are as large and as small as they get.
func TestMemoryBound(t *testing.T) {
	f := func(limit, hits uint32, edges int, tier, answers bool, most float64) {
		t.Helper()
		for _, counters := range []int{4096, 4100} {
			r := rule(t, limit, time.Minute, 12, algorithm.Nearest)
			table := toUse(counters, edges, tier)
			use(table, r, counters, min(int(hits), 3), max(hits/3, 1), answers)
			if there := table.Stats().Counters; there < counters*99/100 {
				t.Fatalf("limit %d: %d counters of %d: the table is not full, and the test shows nothing", limit, there, counters)
			}
			if each := float64(table.Stats().Bytes) / float64(counters); each > most {
				t.Errorf("limit %d, %d hits, %d edges, tier %v, answers %v: %.1f bytes a counter of %d, want %v at most", limit, hits, edges, tier, answers, each, counters, most)
			}
		}
	}
	f(100, 1, 1, false, false, 73)
	f(100, 3, 1, false, false, 82)
	f(100, 3, MaxEdges, true, true, 82)
	f(100, 3, 4, true, true, 90)
	f(10, 30, 4, true, true, 90)
	f(1000, 30, 4, true, true, 90)
	f(100, 3, 4, true, false, 100) // the tier is down: as many counters as may have hits that wait, and of two groups
}

// TestManyHitsInOneBin: hits of one instant are counted as finely as few, however many they are, those of another source beside them, and nothing of them is
// left when the bin is another sub-window's.
func TestManyHitsInOneBin(t *testing.T) {
	r := rule(t, 16_000, time.Minute, 12, algorithm.Nearest)
	table := New(Options{Counters: 100})
	begin := time.Unix(1_700_000_000/60*60, 0)
	hit := func(s Source, hits uint32, at time.Duration) {
		table.Reserve([]Reservation{{Rule: r, Source: s, Hits: hits}}, begin.Add(at))
	}
	estimate := func(s Source, at time.Duration, want float64) {
		t.Helper()
		if v, _ := table.Peek(r, s, begin.Add(at)); v.Estimate < want-0.01 || v.Estimate > want+0.01 {
			t.Errorf("%v after %v: %.2f hits, want %v", s, at, v.Estimate, want)
		}
	}
	burst, few := address(1), address(2)
	for _, s := range []Source{burst, few} {
		hit(s, 300, 0) // enough to have a histogram
	}
	hit(burst, 6000, 4*time.Second)
	hit(burst, 5000, 4*time.Second)
	hit(few, 7, 4*time.Second)
	estimate(burst, 63*time.Second, 11_000)
	estimate(burst, 64900*time.Millisecond, 0)
	estimate(few, 63*time.Second, 7)
	// 13 sub-windows later the same lane is another's.
	hit(burst, 3, 66*time.Second)
	hit(burst, 5, 69*time.Second)
	estimate(burst, 125500*time.Millisecond, 8)
	estimate(burst, 128*time.Second, 5)
}

// resident is how much memory of this process exists.
func resident(b *testing.B) int {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err) // only Linux shows it
	}
	var size, pages int
	if _, err := fmt.Sscan(string(statm), &size, &pages); err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}
