package mitigation

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"sluice/counter"
)

func key(n uint32) Key {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return Key{Rule: 1, Source: counter.SourceOf(netip.AddrFrom4(b), 32, 64)}
}

// BenchmarkUntilParallel is many requests of one source that is mitigated, and of many that are not, on as many processors as -cpu
// says: as nobody locks or writes anything, two answer twice as much as one.
func BenchmarkUntilParallel(b *testing.B) {
	now := time.Now()
	t := New(0, nil)
	for i := range uint32(10_000) {
		t.Start(key(i), Bit{Start: now, End: now.Add(time.Hour)}, now)
	}
	keys := make([]Key, 1<<12)
	for i := range uint32(1 << 11) {
		keys[2*i], keys[2*i+1] = key(7), key(1<<20+i)
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			t.Until(keys[i&(len(keys)-1)], now)
		}
	})
}

// BenchmarkUntil asks about a source while nobody is mitigated, about one that is not while ten thousand others are, and
// about one that is.
func BenchmarkUntil(b *testing.B) {
	now := time.Now()
	f := func(name string, bits uint32, asked func(i uint32) Key) {
		b.Run(name, func(b *testing.B) {
			t := New(0, nil)
			for i := range bits {
				t.Start(key(i), Bit{Start: now, End: now.Add(time.Hour)}, now)
			}
			keys := make([]Key, 1<<12)
			for i := range keys {
				keys[i] = asked(uint32(i))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				t.Until(keys[i&(len(keys)-1)], now)
				i++
			}
		})
	}
	f("nobody", 0, key)
	f("others", 10_000, func(i uint32) Key { return key(i + 1<<20) })
	f("mitigated", 10_000, key)
}
