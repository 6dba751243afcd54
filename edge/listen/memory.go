package listen

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// memoryEvery is how often memory in use is looked up: it takes a microsecond.
const memoryEvery = 10 * time.Millisecond

// A MemoryCap turns new connections away while too much memory is in use, so that those that are
// open can be served, unless idle ones make room (room.go). What is in use is what the last garbage
// collection has left, and the stacks. Requests of HTTP/2 give way from three quarters of the limit
// on, or before, and connections are turned away above seven eighths: nearer to it the collector,
// which has the same limit, would do little else but collect.
type MemoryCap struct {
	most uint64 // bytes
	// What of three quarters of the limit is not in use before the first connection, in bytes
	Free int
	Used func() uint64

	Mu    sync.Mutex // guards what follows
	Next  time.Time  // when to look again
	above bool
}

func newMemoryCap(limit int) (*MemoryCap, error) {
	if limit == 0 {
		return nil, nil
	}
	runtime.GC() // so that what the tables take is known
	first, used := limit/4*3, int(memoryInUse())
	if used > first {
		return nil,
			fmt.Errorf("limits.memory: three quarters of %d bytes are less than the %d that are in use before the first connection: "+
				"raise it or lower table.counters", limit, used)
	}
	return &MemoryCap{most: uint64(limit) / 8 * 7, Free: first - used, Used: memoryInUse}, nil
}

// exceeded reports whether new connections are to be turned away at now. There is no limit if m is
// nil.
func (m *MemoryCap) exceeded(now time.Time) bool {
	if m == nil {
		return false
	}
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if !now.Before(m.Next) {
		m.Next, m.above = now.Add(memoryEvery), m.Used() > m.most
	}
	return m.above
}

// Sweep collects garbage while connections are turned away: without new ones the next collection
// may be minutes away, and until then what has been freed would count as in use.
func (m *MemoryCap) Sweep(now time.Time) {
	if m.exceeded(now) {
		runtime.GC()
	}
}

func memoryInUse() uint64 {
	samples := [...]metrics.Sample{{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples[:])
	sum := uint64(0)
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			sum += s.Value.Uint64()
		}
	}
	return sum
}
