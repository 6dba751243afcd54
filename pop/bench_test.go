package pop_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"sluice/pop"
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
		if err := mc.Set(&memcache.Item{Key: names[i], Value: []byte("00000000000000000000"), Expiration: 3600}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("pipeline", func(b *testing.B) {
		b.ReportAllocs()
		var answered, failed atomic.Int64
		room := make(chan struct{}, 1)
		p := pop.NewPipeline(new(net.Dialer).DialContext, address, func(rs []pop.Result) {
			for i := range rs {
				if rs[i].Status != pop.Done {
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
		cmds := make([]pop.Command, 0, 512)
		b.ResetTimer()
		sent := 0
		for answered.Load() < int64(b.N) {
			cmds = cmds[:0]
			for sent+len(cmds) < b.N && len(cmds) < cap(cmds) && sent+len(cmds)-int(answered.Load()) < pop.Backlog/2 {
				cmds = append(cmds, pop.Command{Op: pop.Incr, Report: true, Key: names[(sent+len(cmds))%keys], Delta: 1})
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
