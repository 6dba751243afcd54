//go:build system

package memcached_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/memcached"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// BenchmarkIncr is the cost of a reported counter, over one connection of ours and beside it as gomemcache does it. All run
// against the same memcached.
func BenchmarkIncr(b *testing.B) {
	address := startMemcached(b)
	const keys = 10_000
	names := make([]string, keys)
	mc := memcache.New(address)
	for i := range names {
		names[i] = fmt.Sprintf("bench:%038d", i)
		must(b, mc.Set(&memcache.Item{Key: names[i], Value: []byte("00000000000000000000"), Expiration: 3600}))
	}
	b.Run("pipeline", func(b *testing.B) {
		b.ReportAllocs()
		var answered, failed atomic.Int64
		room := make(chan struct{}, 1)
		p := memcached.NewPipeline(new(net.Dialer).DialContext, address, func(rs []wire.Result) {
			for i := range rs {
				if rs[i].Status != wire.Done {
					failed.Add(1)
				}
			}
			answered.Add(int64(len(rs)))
			select {
			case room <- struct{}{}:
			default:
			}
		})
		ctx, cancel := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		wg.Go(func() { p.Run(ctx) })
		cmds := make([]wire.Command, 0, 512)
		b.ResetTimer()
		sent := 0
		for answered.Load() < int64(b.N) {
			cmds = cmds[:0]
			for sent+len(cmds) < b.N && len(cmds) < cap(cmds) && sent+len(cmds)-int(answered.Load()) < memcached.Backlog/2 {
				cmds = append(cmds, wire.Command{Op: wire.Incr, Report: true, Key: names[(sent+len(cmds))%keys], Delta: 1})
			}
			sent += len(cmds) - len(p.Send(cmds))
			if len(cmds) == 0 {
				select {
				case <-room:
				case <-time.After(5 * time.Second):
					b.Fatalf("%d answers of %d", answered.Load(), sent)
				}
			}
		}
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "incr/s")
		if failed.Load() > 0 {
			b.Errorf("%d failed", failed.Load())
		}
		cancel()
		wg.Wait()
	})
	for _, connections := range []int{1, 64} {
		b.Run(fmt.Sprintf("gomemcache-%d", connections), func(b *testing.B) {
			b.ReportAllocs()
			mc := memcache.New(address)
			mc.MaxIdleConns = connections
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range connections {
				wg.Go(func() {
					for {
						i := next.Add(1)
						if i > int64(b.N) {
							return
						}
						if _, err := mc.Increment(names[i%keys], 1); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "incr/s")
		})
	}
}

// BenchmarkNewSources is what it takes from a source's first request until the tier knows of it: the table, the machine, the
// pipeline and a real memcached's answer.
func BenchmarkNewSources(b *testing.B) {
	rule, err := algorithm.NewSliding("bench", 100, time.Minute, 12, algorithm.Nearest)
	must(b, err)
	nodes := []string{startMemcached(b, "-m", "1024")}
	var tier *memcached.Tier
	shared := secret.Of([]byte("bench"))
	wake := func() { tier.Wake() }
	counters := counter.New(counter.Options{Counters: 2 * b.N, Tier: true, Phase: shared.Phase, Wake: wake})
	m, err := pop.NewMachine(pop.Config{Nodes: nodes, Secret: shared, ID: 1, Counters: counters, Blocks: mitigation.New(1000, wake)}, time.Now())
	must(b, err)
	m.SetRules([]mitigation.Rule{{Counter: rule, Timeout: time.Minute}})
	if tier, err = memcached.NewTier(m, nodes); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { tier.Sync(ctx) })
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime(b)
	var ask [1]counter.Reservation
	for i := range b.N {
		ask[0] = counter.Reservation{Rule: rule, Source: address(uint32(i)), Hits: 1}
		counters.Reserve(ask[:], time.Now())
	}
	for tick := time.NewTicker(time.Millisecond); counters.Stats().Unreported > 0; {
		<-tick.C
	}
	b.StopTimer()
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/source")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sources/s")
	b.ReportMetric(float64(tier.Stats().Steps), "steps")
	b.ReportMetric(bytesAnItem(b, nodes[0]), "tier-B/item")
	cancel()
	wg.Wait()
}

// bytesAnItem is what an item takes of a node's memory: the chunk that it stands in.
func bytesAnItem(b *testing.B, node string) float64 {
	b.Helper()
	conn, err := net.Dial("tcp", node)
	must(b, err)
	defer conn.Close()
	_, err = conn.Write([]byte("stats slabs\r\nquit\r\n"))
	must(b, err)
	answer, err := io.ReadAll(conn)
	must(b, err)
	chunk, chunks, bytes := 0, 0, 0
	for line := range strings.Lines(string(answer)) { // of each class STAT 2:chunk_size 120, and then STAT 2:used_chunks 19
		_, stat, _ := strings.Cut(line, ":")
		name, value, _ := strings.Cut(strings.TrimSpace(stat), " ")
		switch n, _ := strconv.Atoi(value); name {
		case "chunk_size":
			chunk = n
		case "used_chunks":
			chunks += n
			bytes += n * chunk
		}
	}
	return float64(bytes) / float64(chunks)
}

// BenchmarkLoneHit is how long a hit takes to the tier and its total back, when nothing else is going on.
func BenchmarkLoneHit(b *testing.B) {
	address := startMemcached(b)
	answered := make(chan time.Time)
	var mu sync.Mutex
	var queue []wire.Command
	tier, err := memcached.NewScriptedTier(func(now time.Time, e pop.Event) []wire.Command {
		if len(e.Results) > 0 {
			answered <- now
		}
		mu.Lock()
		defer mu.Unlock()
		out := queue
		queue = nil
		return out
	}, func(time.Time) []wire.Command { return nil }, func() (hits, lost uint64) { return 0, 0 }, []string{address})
	must(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { tier.Sync(ctx) })
	pause := time.NewTicker(2 * time.Millisecond)
	var total time.Duration
	for range b.N {
		<-pause.C
		mu.Lock()
		queue = append(queue, wire.Command{Op: wire.Incr, Report: true, Key: "k", Delta: 1})
		mu.Unlock()
		start := time.Now()
		tier.Wake()
		total += (<-answered).Sub(start)
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/hit")
	b.ReportMetric(0, "ns/op")
	cancel()
	wg.Wait()
}

// processorTime is what this process has used, memcached not included.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
