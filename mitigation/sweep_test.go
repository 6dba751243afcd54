package mitigation

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// fill starts so many bits that end an hour later.
func fill(t *Table, n uint32, now time.Time) {
	for i := range n {
		t.Start(key(i), Bit{Start: now, End: now.Add(time.Hour), By: ByPoP}, now)
	}
}

// TestSweepInSlices: no slice of a sweep looks at more than its share of a large table, all of them together forget all that has ended, and
// nothing else; what comes while a sweep is under way stays in force and is known to be there.
func TestSweepInSlices(t *testing.T) {
	const n = 200_000
	table := New(n, nil)
	fill(table, n, start)
	slots, most := 0, 0
	for i := range table.shards {
		slots += len(*table.shards[i].slots.Load())
		most = max(most, len(*table.shards[i].slots.Load()))
	}
	at, slices := start.Add(time.Minute), 1
	for table.Sweep(at) {
		slices++
	}
	if least := slots / sweepSlice; slices < least || slices > 2*least+2 {
		t.Errorf("nothing had ended: %d slices of %d slots", slices, slots)
	}
	if got := count(table, at); got < n*9/10 || table.some.Load() != int64(len(table.shards)) {
		t.Errorf("%d are left, in %d shards", got, table.some.Load())
	}
	at, slices = start.Add(2*time.Hour), 1
	late := key(1 << 30)
	for table.Sweep(at) {
		if slices++; slices == 5 {
			table.Start(late, Bit{Start: at, End: at.Add(time.Hour)}, at)
		}
	}
	if least := n / (sweepSlice / 16); slices < least*8/10 {
		t.Errorf("all had ended: %d slices of %d entries", slices, n)
	}
	left := 0
	for i := range table.shards {
		left += table.shards[i].n
	}
	if left != 1 || table.some.Load() != 1 || table.Until(late, at).IsZero() {
		t.Errorf("%d are left, in %d shards", left, table.some.Load())
	}
}

// TestSweepWhileLaidOut: a shard that is laid out anew in the middle of a sweep is swept from its beginning.
func TestSweepWhileLaidOut(t *testing.T) {
	table := New(2_000_000, nil)
	fill(table, 30_000, start)
	at := start.Add(2 * time.Hour)
	for i := uint32(0); table.Sweep(at); i++ {
		for j := range uint32(1_000) {
			table.Start(key(1<<24+1_000*i+j), Bit{Start: at, End: at.Add(time.Hour)}, at)
		}
		if i > 10_000 {
			t.Fatal("the sweep has no end")
		}
	}
	ended := 0
	for i := range table.shards {
		for e := range table.shards[i].all() {
			if e.end <= table.clock(at) {
				ended++
			}
		}
	}
	if ended > 0 {
		t.Errorf("%d that have ended are left", ended)
	}
}

// TestBytes: a bit takes no more than a hundred bytes, slots and all, however many there are.
func TestBytes(t *testing.T) {
	for _, n := range []uint32{20_000, 25_000, 40_000, 60_000, 80_000} {
		before := int64(heap())
		table := New(int(2*n), nil)
		fill(table, n, start)
		if each := float64(int64(heap())-before) / float64(n); each > 100 || each < 64 {
			t.Errorf("%d bits: %.1f bytes each", n, each)
		}
		runtime.KeepAlive(table)
	}
}

// TestTimesOfBits: what comes out of the table is what came in, times too, whether they have a monotonic reading
// or none, and no time where there was none.
func TestTimesOfBits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, now := range []time.Time{start, time.Now()} {
			table := New(100, nil)
			table.Start(key(0), Bit{Start: now, End: now.Add(time.Hour)}, now)
			want := Bit{
				Start: now.Add(-3 * time.Second), End: now.Add(90 * time.Second), By: ByPoP, Memory: time.Hour, Version: RuleVersion{5, time.Minute, time.Hour},
			}
			for _, by := range []By{ByPoP, ByAdmin} {
				want.By = by
				if by == ByAdmin {
					want.Reason, want.Who, want.Start = "because", "ada", time.Time{}
				}
				k := key(uint32(by))
				table.Start(k, want, now)
				later := now.Add(30 * time.Second)
				got, there := table.Get(k, later)
				if !there || !got.Start.Equal(want.Start) || !got.End.Equal(want.End) || !got.Learned.Equal(now) {
					t.Errorf("%+v, want %+v", got, want)
				}
				if got.Start, got.End, got.Learned = want.Start, want.End, want.Learned; got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		}
	})
}

func count(t *Table, now time.Time) (n int) {
	for range t.All(now) {
		n++
	}
	return n
}
