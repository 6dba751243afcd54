package counter

import (
	"net/netip"
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// What All gives, Apply takes: the other table judges every source alike. What has left the window, or is of another rule, is
// not given.
func TestAll(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	source := func(i int) Source { return SourceOf(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32, 64) }
	rule := func(name string, limit uint32) *algorithm.Spec {
		r, err := algorithm.NewSliding(name, limit, time.Minute, 12, algorithm.Nearest)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	narrow, wide, other := rule("narrow", 100), rule("wide", 20_000), rule("other", 100)
	const sources = 3000
	old, young := New(Options{Counters: 40 * sources}), New(Options{Counters: 40 * sources})
	for i := range sources {
		for _, r := range []*algorithm.Spec{narrow, wide, other} {
			old.Reserve([]Reservation{{Rule: r, Source: source(i), Hits: uint32(1 + i%50)}}, now.Add(time.Duration(i%60)*time.Second))
		}
	}
	now = now.Add(90 * time.Second) // some of them have left the window
	given := 0
	for c := range old.All([]*algorithm.Spec{narrow, wide}, now) {
		young.Reports().Apply(c.Counter, c.Newest, c.Groups, 0, now)
		given++
	}
	for i := range sources {
		for _, r := range []*algorithm.Spec{narrow, wide} {
			want, _ := old.Peek(r, source(i), now)
			got, there := young.Peek(r, source(i), now)
			if got != want {
				// Of its own hits a table knows when they came: within the sub-window that the window's beginning cuts.
				if d := got.Estimate - want.Estimate; d > float64(1+i%50) || -d > float64(1+i%50) {
					t.Errorf("%s, source %d: %+v, want %+v", r.Name, i, got, want)
				}
			}
			if gone := i%60 < 10; there && gone || !there && want.Estimate > 0 { // a window and a group of sub-windows ago
				t.Errorf("%s, source %d: there %t, estimate %v", r.Name, i, there, want.Estimate)
			}
		}
		if _, there := young.Peek(other, source(i), now); there {
			t.Errorf("source %d of a rule that was not asked for", i)
		}
	}
	if n := young.Stats().Counters; n != given {
		t.Errorf("%d counters, %d given", n, given)
	}
}
