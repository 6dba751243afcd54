package counter

import (
	"fmt"
	"runtime/debug"
	"testing"
	"time"
)

// BenchmarkMemoryInUse is what a counter takes in a full table that is used as in a large PoP: limit 100, 64 edges, a tier, three hits of
// each source, all of a minute, every one reported and answered.
func BenchmarkMemoryInUse(b *testing.B) {
	for _, n := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("counters=%d", n), func(b *testing.B) {
			r := rule(b, 100, time.Minute, 12, Nearest)
			for range b.N {
				debug.FreeOSMemory()
				before := resident(b)
				table := New(Options{Counters: n, Tier: true, Phase: func(s Source) uint16 { return uint16(s.id[3])<<8 | uint16(s.id[2]) }})
				table.SetEdges(MaxEdges)
				asks, dirty := make([]Ask, 1), []Counter(nil)
				for hit := range 3 {
					for i := range n {
						now := epoch.Add(time.Duration(hit)*20*time.Second + time.Duration(i)*20*time.Second/time.Duration(n))
						asks[0] = Ask{Rule: r, Source: address(uint32(i)), Hits: 1}
						table.Reserve(asks, now)
						if i%1024 != 0 {
							continue
						}
						if i%(n/200) < 1024 {
							table.Sweep(now, false)
						}
						for _, c := range table.Dirty(dirty[:0], 4096) {
							rep, _ := table.Take(c, now)
							for _, p := range rep.Parts[:rep.N] {
								table.Counted(c, p, p.Known, now)
							}
						}
					}
				}
				debug.FreeOSMemory()
				b.ReportMetric(float64(resident(b)-before)/1e6, "MB")
				b.ReportMetric(float64(resident(b)-before)/float64(n), "B/counter")
				b.ReportMetric(float64(table.Stats().Evicted)/float64(n), "evicted/counter")
				b.ReportMetric(float64(table.Stats().Unreported)/float64(n), "unreported/counter")
			}
		})
	}
}
