package counter

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// use makes sources known to a table as a PoP's traffic does, so many visits of each, of so many hits, spread over a minute in which nobody is silent
// for long. With a tier, what is due is reported and answered a few times a second.
func use(table *Table, r *Rule, sources, visits int, hits uint32, tier bool) {
	asks, dirty := make([]Ask, 1), []Counter(nil)
	between := time.Minute / time.Duration(visits) / time.Duration(sources)
	for i := range visits * sources {
		now := epoch.Add(time.Duration(i) * between)
		asks[0] = Ask{Rule: r, Source: address(uint32(i % sources)), Hits: hits}
		table.Reserve(asks, now)
		if !tier || i%1024 != 0 {
			continue
		}
		if i*200/(visits*sources) != (i+1024)*200/(visits*sources) {
			table.Sweep(now, false)
		}
		for {
			if dirty = table.Dirty(dirty[:0], 4096); len(dirty) == 0 {
				break
			}
			for _, c := range dirty {
				rep, _ := table.Take(c, now)
				for _, p := range rep.Parts[:rep.N] {
					table.Counted(c, p, p.Known, now)
				}
			}
		}
	}
}

// inUse makes a table that is used, or is to be.
func inUse(counters, edges int, tier bool) *Table {
	table := New(Options{Counters: counters, Tier: tier, Phase: func(s Source) uint16 { return uint16(s.id[3])<<8 | uint16(s.id[2]) }})
	table.SetEdges(edges)
	return table
}

// room is how many counters of a rule a table for so many has room for.
func (r *Rule) room(counters int) int {
	if r.Wide() {
		return counters / 16
	}
	return counters
}

// BenchmarkMemory is what a counter takes of this process, by limit, hits, tier, and how full the table is. With a tier there are four edges, so hits
// wait to be reported together. What is counted in a table (Stats.Bytes) stands beside.
func BenchmarkMemory(b *testing.B) {
	run := func(counters int, limit uint32, visits int, hits uint32, tier bool, edges int, shares ...int) {
		b.Run(fmt.Sprintf("counters=%d/limit=%d/hits=%d/tier=%v/edges=%d", counters, limit, visits*int(hits), tier, edges), func(b *testing.B) {
			r := rule(b, limit, time.Minute, 12, Nearest)
			for range b.N {
				for _, share := range shares {
					debug.FreeOSMemory()
					before, sources := resident(b), r.room(counters)*share/100
					table := inUse(counters, edges, tier)
					use(table, r, sources, visits, hits, tier)
					debug.FreeOSMemory()
					b.ReportMetric(float64(resident(b)-before)/float64(sources), fmt.Sprintf("B-at-%d%%", share))
					if share == 100 {
						b.ReportMetric(float64(table.Stats().Evicted)/float64(sources), "evicted/counter")
					}
					runtime.KeepAlive(table)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	for _, tier := range []bool{false, true} {
		for _, limit := range []uint32{10, 100, 1000, 20_000} {
			for _, hits := range []uint32{1, 3, 30} { // 30 are ten at a time
				run(1_000_000, limit, min(int(hits), 3), max(hits/3, 1), tier, 4, 10, 50, 100)
			}
		}
	}
	run(1_000_000, 100, 3, 1, true, MaxEdges, 100)
	run(10_000_000, 100, 3, 1, true, MaxEdges, 100)
}

// resident is how much memory of this process exists.
func resident(b *testing.B) int {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err) // only Linux tells
	}
	var size, pages int
	if _, err := fmt.Sscan(string(statm), &size, &pages); err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}
