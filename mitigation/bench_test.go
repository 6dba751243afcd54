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
