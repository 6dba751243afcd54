package counter

import (
	"math"
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// TestShared: of what a table knows of a source, that is shared which the tier has confirmed, others' hits included. It leaves the window
// by itself, and none of the hits that are not confirmed are in it, however long the tier is away.
func TestShared(t *testing.T) {
	const window = time.Minute
	at := time.Unix(1_700_000_000/20*20, 0)
	r := newReporter(t, rule(t, 100, window, 12, algorithm.Nearest), make(map[uint32]uint64))
	other := newReporter(t, r.c.Rule, r.tier)
	shared := func(want float64) {
		t.Helper()
		if got := r.table.Shared(r.c.Rule, r.c.Source, at); math.Abs(got-want) > 0.01 {
			t.Errorf("%v: %v, want %v", at.Sub(time.Unix(1_700_000_000/20*20, 0)), got, want)
		}
	}
	shared(0)
	for range 4 {
		other.hit(at)
		r.hit(at)
	}
	shared(0)
	other.report(at, true)
	r.report(at, true)
	shared(8)
	for range 20 { // and now the tier is away
		at = at.Add(time.Second)
		r.hit(at)
		shared(8)
	}
	at = at.Add(window - 15*time.Second)
	shared(0)
	if v, _ := r.table.Peek(r.c.Rule, r.c.Source, at); v.Estimate < 15 {
		t.Errorf("the last of its own hits are gone: %v", v.Estimate)
	}
}

// TestSharedWithoutRoom: where so many sources have unconfirmed hits that there is no room to note more, a source's hits are taken for those of
// this table alone, and not for shared ones.
func TestSharedWithoutRoom(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	table, r := New(Options{Counters: 600, Tier: true}), rule(t, 100, time.Minute, 12, algorithm.Nearest)
	for i := range uint32(600) {
		ask := [1]Reservation{{Rule: r, Source: address(i), Hits: 3}}
		table.Reserve(ask[:], now)
		if got := table.Shared(r, address(i), now); got != 0 {
			t.Fatalf("source %d: %v are shared", i, got)
		}
	}
	if table.Stats().LostBacklog == 0 {
		t.Error("there was room for all")
	}
}
