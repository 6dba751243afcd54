//go:build system

package memcached_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/edge/limiter"
)

var (
	sources = flag.Int("sources", 100_000, "so many sources for BenchmarkDecisions")
	memory  = flag.Int("memory", 64, "so many MB for its memcached")
)

// BenchmarkDecisions is what an edge decides in a second by a table that is full of sources, with the tier beside it, and how long one of a hundred
// decisions takes at least, while the collector is at rest and while it runs. Of the sources the next is any. Ten million take 4 GB and minutes:
//
//	go test -tags system -run '^$' -bench Decisions -benchtime 20000000x ./pop/memcached -args -sources 10000000 -memory 2048
func BenchmarkDecisions(b *testing.B) {
	nodes := []string{startMemcached(b, "-m", strconv.Itoa(*memory))}
	e := startLargeEdge(b, *sources+*sources/5, 1, newRule(b, 10_000, time.Minute, time.Minute), nodes, nil)
	defer e.stop()
	for i := range *sources {
		e.ask(address(uint32(i)))
		for i%1000 == 0 && e.Counters.Stats().Unreported > 100_000 {
			time.Sleep(time.Millisecond) // it would be counted here alone
		}
	}
	for e.Counters.Stats().Unreported > 0 {
		time.Sleep(time.Millisecond)
	}
	if have := e.Counters.Stats().Counters; have < *sources*99/100 {
		b.Fatalf("the table has %d counters for %d sources", have, *sources)
	}
	for _, cores := range []int{1, 2} {
		for _, collects := range []bool{false, true} {
			what := "at rest"
			if collects {
				what = "running"
			}
			b.Run(fmt.Sprintf("cores=%d/collector=%s", cores, what), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
				decisions(b, e, cores, collects)
			})
		}
	}
}

// decisions has as many goroutines as there are cores decide, and the collector run all the while or not at all.
func decisions(b *testing.B, e *edge, cores int, collects bool) {
	var stop atomic.Bool
	var collector sync.WaitGroup
	if collects {
		collector.Go(func() {
			for !stop.Load() {
				runtime.GC()
			}
		})
	}
	const sample = 16 // reading the clock costs as much as a decision
	took := make([][]time.Duration, cores)
	var deciding sync.WaitGroup
	b.ResetTimer()
	for core := range cores {
		deciding.Go(func() {
			var d limiter.Decision
			draw := rand.New(rand.NewPCG(uint64(core), 1))
			took[core] = make([]time.Duration, 0, b.N/cores/sample+1)
			for i := range b.N / cores {
				d.Reset()
				d.Add(&e.rule, address(draw.Uint32N(uint32(*sources))))
				now := time.Now()
				e.Decide(&d, now)
				if i%sample == 0 {
					took[core] = append(took[core], time.Since(now))
				}
			}
		})
	}
	deciding.Wait()
	b.StopTimer()
	stop.Store(true)
	collector.Wait()
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	if len(all) > 0 {
		b.ReportMetric(float64(all[len(all)/2]), "p50-ns")
		b.ReportMetric(float64(all[len(all)*99/100]), "p99-ns")
	}
}
