package mitigation

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"sluice/counter"
)

// BenchmarkMemory is what a bit takes in a table of a hundred thousand.
func BenchmarkMemory(b *testing.B) {
	const n = 100_000
	now := time.Unix(1_700_000_000, 0)
	for range b.N {
		before := heap()
		table := New(n, nil)
		for i := range uint32(n) {
			var ip [4]byte
			binary.BigEndian.PutUint32(ip[:], i)
			key := Key{Source: counter.SourceOf(netip.AddrFrom4(ip), 32, 64), Rule: 1}
			table.Start(key, Bit{Start: now, End: now.Add(time.Hour), By: ByPoP}, now)
		}
		b.ReportMetric(float64(heap()-before)/n, "B/bit")
		runtime.KeepAlive(table)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
