package counter_test

import (
	"math"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
)

// TestNumberThatNoEdgeWrites: a number whose lanes are beyond all that edges report refuses nobody.
func TestNumberThatNoEdgeWrites(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, limit := range []uint32{50, 20_000} { // four lanes, and two
		r, err := algorithm.NewSliding("forged", limit, time.Minute, 12, algorithm.Nearest)
		if err != nil {
			t.Fatal(err)
		}
		for _, forged := range []uint64{math.MaxUint64, 0xfffe << 48, 1<<63 + 1<<62} {
			table := counter.New(counter.Options{Counters: 100, Tier: true})
			c := counter.Counter{Rule: r, Source: counter.SourceOfDigest([16]byte{1})}
			_, newest := table.Reports().Groups(r, now, 0)
			if reply := table.Reports().Apply(c, newest, []uint64{forged}, 0, now); reply.Over {
				t.Errorf("limit %d: %#x blocks", limit, forged)
			}
			if reply := table.Reports().Apply(c, newest, []uint64{1 << 13}, 0, now); !reply.Over && limit == 50 {
				t.Errorf("limit %d: a number that edges can write does not block", limit)
			}
		}
	}
}
