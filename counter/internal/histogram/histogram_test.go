package histogram

import (
	"math/rand/v2"
	"testing"
)

// TestSumsOfBins: bins are added up from any one of them on.
func TestSumsOfBins(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var low, high [Size]uint8
		for i := range low {
			low[i], high[i] = uint8(rng.Uint32()), uint8(rng.Uint32())
			if rng.IntN(4) == 0 {
				low[i], high[i] = 255, 255
			}
		}
		for _, b := range []Bins{{low: &low}, {low: &low, high: &high}} {
			want := uint64(0)
			for from := Size; from >= 0; from-- {
				if from < Size {
					want += uint64(b.At(from))
				}
				if got := b.Sum(from); got != want {
					t.Fatalf("%v from %d on: %d, want %d", b, from, got, want)
				}
			}
		}
	}
}
