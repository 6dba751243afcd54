package counter

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/counter/algorithm"

	"github.com/cespare/xxhash/v2"
)

// benchRules makes n rules that a request falls under together.
func benchRules(b *testing.B, n int) []*algorithm.Spec {
	rules := make([]*algorithm.Spec, n)
	for i := range rules {
		rules[i] = rule(b, uint32(15_000+i), time.Minute, 12, algorithm.Nearest)
		rules[i].ID = uint32(i)
	}
	return rules
}

// fill makes a table in which so many sources are known under all rules, and gives the sources in random order.
func fill(tier bool, sources, capacity int, rules []*algorithm.Spec) (*Table, []Source) {
	// Sources have phases as in a PoP: how far each is in its group differs from one decision to the next.
	phase := func(s Source) uint16 { return uint16(xxhash.Sum64(s.id[:])) }
	table := New(Options{Counters: capacity, Tier: tier, Phase: phase})
	list := make([]Source, sources)
	ask := make([]Reservation, len(rules))
	for i := range list {
		list[i] = address(uint32(i))
		for j, r := range rules {
			ask[j] = Reservation{Rule: r, Source: list[i], Hits: 1}
		}
		table.Reserve(ask, epoch)
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return table, list
}

// cpu reports the processor time of this process from the call until the function it returns is called: a machine that others use
// too makes ns/op larger, and this hardly.
func cpu(b *testing.B) (report func()) {
	b.ResetTimer()
	start := processorTime()
	return func() { b.ReportMetric(float64(processorTime()-start)/float64(b.N), "cpu-ns/op") }
}

// processorTime is what this process has used, in ns.
func processorTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkReserve is a decision about one of the busy sources in the table. They come in random order: a million of them are in
// no cache of the processor, and then a decision is mostly a wait for memory (BenchmarkMiss). Ten thousand are about as many
// as an edge sees in a second.
func BenchmarkReserve(b *testing.B) {
	for _, size := range []struct{ sources, busy int }{
		{10_000, 10_000}, {100_000, 100_000}, {1_000_000, 10_000}, {1_000_000, 1_000_000},
	} {
		for _, n := range []int{1, 3} {
			b.Run(fmt.Sprintf("sources=%d/busy=%d/rules=%d", size.sources, size.busy, n), func(b *testing.B) {
				rules := benchRules(b, n)
				table, list := fill(false, size.sources, n*size.sources, rules)
				sources := size.busy
				reservations := make([]Reservation, n)
				now := epoch.Add(time.Second)
				b.ReportAllocs()
				defer cpu(b)()
				for i := range b.N {
					s := list[i%sources]
					for j := range reservations {
						reservations[j] = Reservation{Rule: rules[j], Source: s, Hits: 1}
					}
					table.Reserve(reservations, now.Add(time.Duration(i)*time.Microsecond))
				}
			})
		}
	}
}

// BenchmarkReserveTier is a decision about a source of which hits wait to be reported.
func BenchmarkReserveTier(b *testing.B) {
	for _, sources := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("sources=%d", sources), func(b *testing.B) {
			rules := benchRules(b, 1)
			table, list := fill(true, sources, 1_000_000, rules)
			reservations := make([]Reservation, 1)
			b.ReportAllocs()
			defer cpu(b)()
			for i := range b.N {
				reservations[0] = Reservation{Rule: rules[0], Source: list[i%sources], Hits: 1}
				table.Reserve(reservations, epoch.Add(time.Second))
			}
		})
	}
}

// BenchmarkFill is a decision about one of all sources, in random order, in a table for a million of which a part is there.
func BenchmarkFill(b *testing.B) {
	for _, share := range []int{10, 50, 90, 100} {
		b.Run(fmt.Sprintf("%d%%", share), func(b *testing.B) {
			rules := benchRules(b, 1)
			table, list := fill(false, share*10_000, 1_000_000, rules)
			reservations := make([]Reservation, 1)
			now := epoch.Add(time.Second)
			defer cpu(b)()
			for i := range b.N {
				reservations[0] = Reservation{Rule: rules[0], Source: list[i%len(list)], Hits: 1}
				table.Reserve(reservations, now.Add(time.Duration(i)*time.Microsecond))
			}
		})
	}
}

// BenchmarkMiss is what this machine takes to read one of a million records of 64 bytes, each found through the one before.
func BenchmarkMiss(b *testing.B) {
	type line [8]uint64
	lines, order := make([]line, 1_000_000), rand.Perm(1_000_000)
	for i, at := range order {
		lines[at][0] = uint64(order[(i+1)%len(order)])
	}
	at := uint64(0)
	defer cpu(b)()
	for range b.N {
		at = lines[at][0]
	}
	runtime.KeepAlive(at)
}

// BenchmarkReserveParallel is the same on as many processors as -cpu says, and reports how many times as many decisions they make as
// one of them alone: of sources that all processors meet, and of a part of them and a table for each, which share nothing of ours.
// What that lacks is the machine's: processors that are halves of one core, or wait for the same memory. By elapsed time it means something where nothing else
// runs; by processor time it leaves out what others take, and what waits for a lock that sleeps.
func BenchmarkReserveParallel(b *testing.B) {
	const sources, turn = 1_000_000, 20_000
	for _, busy := range []int{10_000, sources} {
		for name, tables := range map[string]int{"one": 1, "each": runtime.GOMAXPROCS(0)} {
			b.Run(fmt.Sprintf("busy=%d/table=%s", busy, name), func(b *testing.B) {
				rules := benchRules(b, 1)
				deciders := make([]func(), runtime.GOMAXPROCS(0))
				var table *Table
				var list []Source
				for w := range deciders {
					if w < tables {
						table, list = fill(false, sources/tables, sources/tables, rules)
						list = list[:busy/tables]
					}
					table, list, next := table, list, w*len(list)/len(deciders)
					now := epoch.Add(time.Second)
					deciders[w] = func() {
						reservations, i := make([]Reservation, 1), next // on this goroutine's stack, where no other processor writes
						for range turn {
							i++
							reservations[0] = Reservation{Rule: rules[0], Source: list[i%len(list)], Hits: 1}
							table.Reserve(reservations, now.Add(time.Duration(i)*time.Microsecond))
						}
						next = i
					}
				}
				together := func(deciders []func()) (elapsed time.Duration, cpu int64) {
					var all sync.WaitGroup
					begin, used := time.Now(), processorTime()
					for _, decide := range deciders {
						all.Go(decide)
					}
					all.Wait()
					return time.Since(begin), processorTime() - used
				}
				var one, all time.Duration
				var cpuOne, cpuAll int64
				made := 0
				b.ResetTimer()
				for ; made < b.N; made += turn * len(deciders) {
					elapsed, cpu := together(deciders[:1])
					one, cpuOne = one+elapsed, cpuOne+cpu
					elapsed, cpu = together(deciders)
					all, cpuAll = all+elapsed, cpuAll+cpu
				}
				n := float64(len(deciders))
				b.ReportMetric(float64(all)/float64(made), "ns/op")
				b.ReportMetric(n*float64(one)/float64(all), "times-one")
				b.ReportMetric(n*n*float64(cpuOne)/float64(cpuAll), "times-one-by-cpu")
			})
		}
	}
}

// BenchmarkReserveRefused is a decision about a source that is over its limit, which also returns when it may come
// back.
func BenchmarkReserveRefused(b *testing.B) {
	table := New(Options{Counters: 10_000})
	reservations := []Reservation{{Rule: rule(b, 100, time.Minute, 12, algorithm.Nearest), Source: address(1), Hits: 1}}
	for i := range 150 {
		table.Reserve(reservations, epoch.Add(time.Duration(i)*300*time.Millisecond))
	}
	b.ReportAllocs()
	for b.Loop() {
		table.Reserve(reservations, epoch.Add(45*time.Second))
	}
}

// BenchmarkReserveStrangers is a decision about a source that was never seen, in a table with room and in a full one, where
// another must go. Both take the same few steps.
func BenchmarkReserveStrangers(b *testing.B) {
	for name, share := range map[string]int{"room": 2, "full": 20} {
		b.Run(name, func(b *testing.B) {
			rules := benchRules(b, 1)
			table := New(Options{Counters: max(b.N*2/share, 10_000)})
			reservations := make([]Reservation, 1)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				reservations[0] = Reservation{Rule: rules[0], Source: address(uint32(i)), Hits: 1}
				table.Reserve(reservations, epoch)
			}
		})
	}
}

// BenchmarkAlgorithm is BenchmarkReserve of ten thousand sources by each algorithm, so that what one costs stands beside the decision without it.
func BenchmarkAlgorithm(b *testing.B) {
	made := func(r *algorithm.Spec, err error) *algorithm.Spec {
		if err != nil {
			b.Fatal(err)
		}
		return r
	}
	for _, r := range []*algorithm.Spec{
		made(algorithm.NewSliding("sliding", 100, time.Minute, 12, algorithm.Nearest)), made(algorithm.NewFixed("fixed", 100, time.Minute)),
		made(algorithm.NewBucket("bucket", 100, time.Minute, 12, 100, 0)), made(algorithm.NewBucket("queue", 100, time.Minute, 12, 1, 99)),
		made(algorithm.NewExact("exact", 100, time.Minute, 12)), made(algorithm.NewExact("thousand", 1000, time.Minute, 12)),
	} {
		b.Run(r.Name, func(b *testing.B) {
			table, list := fill(false, 10_000, 20_000, []*algorithm.Spec{r})
			reservations, now := make([]Reservation, 1), epoch.Add(time.Second)
			b.ReportAllocs()
			defer cpu(b)()
			for i := range b.N {
				reservations[0] = Reservation{Rule: r, Source: list[i%len(list)], Hits: 1}
				table.Reserve(reservations, now.Add(time.Duration(i)*50*time.Microsecond))
			}
		})
	}
}

// BenchmarkNewSourcesOfSentLimits is a request of a source that nobody has seen, under a limit that came with it, where so many rules have
// counters.
func BenchmarkNewSourcesOfSentLimits(b *testing.B) {
	for _, rules := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint("rules=", rules), func(b *testing.B) {
			table := New(Options{Counters: 100_000})
			r := manyRules(b, table, rules)
			b.ReportAllocs()
			n := uint32(0)
			for b.Loop() {
				n++
				table.Reserve([]Reservation{{Rule: r[0].With(1+n%1000, r[0].Estimate), Source: address(n), Hits: 1}}, epoch)
			}
		})
	}
}

// manyRules are rules that have counters in a table.
func manyRules(t testing.TB, table *Table, n int) (list []*algorithm.Spec) {
	for i := range n {
		r, err := algorithm.NewSliding(fmt.Sprint("rule", i), 100, time.Minute, 12, algorithm.Nearest)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	algorithm.Renumber(list)
	for i, r := range list {
		table.Reserve([]Reservation{{Rule: r, Source: address(uint32(i)), Hits: 1}}, epoch)
	}
	return list
}

// BenchmarkFullLog is a refusal of a source whose log is full, under algorithm: exact, a part of the window after the last that was admitted.
func BenchmarkFullLog(b *testing.B) {
	for _, limit := range []uint32{100, 1000} {
		b.Run(fmt.Sprint("limit=", limit), func(b *testing.B) {
			r, err := algorithm.NewExact("exact", limit, time.Minute, 12)
			if err != nil {
				b.Fatal(err)
			}
			table, reservations := New(Options{Counters: 1000}), make([]Reservation, 1)
			at := func(hit uint32) time.Time { return epoch.Add(time.Minute * time.Duration(hit) / time.Duration(limit)) }
			for i := range limit {
				reservations[0] = Reservation{Rule: r, Source: address(1), Hits: 1}
				table.Reserve(reservations, at(i))
			}
			now := at(limit + limit/24).Add(-time.Minute / 24) // the whole window is there
			b.ReportAllocs()
			defer cpu(b)()
			for range b.N {
				reservations[0] = Reservation{Rule: r, Source: address(1), Hits: 1}
				table.Reserve(reservations, now)
			}
		})
	}
}
