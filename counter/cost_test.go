package counter

import (
	"math"
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// Lanes have room for the limit and one ask more, and a report for what one ask is.
func TestCostlyLanes(t *testing.T) {
	for _, s := range []struct {
		limit, most uint32
		wide        bool
	}{{16_000, 1, false}, {16_001, 1, true}, {100, 100, false}, {1000, 256, false}, {1000, 257, true}, {15_744, 256, false}, {15_745, 256, true}, {algorithm.MaxLimit, algorithm.MaxCost, true}} {
		r, err := algorithm.NewCostly("r", s.limit, time.Minute, 12, algorithm.Nearest, s.most)
		if err != nil || r.Wide() != s.wide {
			t.Errorf("limit %d, up to %d at once: wide %v, %v", s.limit, s.most, r.Wide(), err)
		}
	}
	for _, most := range []uint32{0, algorithm.MaxCost + 1} {
		if _, err := algorithm.NewCostly("r", 1, time.Minute, 12, algorithm.Nearest, most); err == nil {
			t.Errorf("up to %d at once: no error", most)
		}
	}
}

// What was held as one and turned out to be many is reported as that many, in one report, and all is reported in the
// end.
func TestCommitAs(t *testing.T) {
	r, err := algorithm.NewCostly("r", 1000, time.Minute, 12, algorithm.Nearest, algorithm.MaxCost)
	if err != nil {
		t.Fatal(err)
	}
	table := New(Options{Counters: 100, Tier: true})
	reservations := []Reservation{{Rule: r, Source: address(1), Hits: 1, Hold: true}}
	if !table.Reserve(reservations, epoch) {
		t.Fatal("refused")
	}
	table.CommitAs(&reservations[0], 900_000, epoch)
	table.CommitAs(&reservations[0], 900_000, epoch) // only the first counts
	if v, _ := table.Peek(r, address(1), epoch); v.Estimate != 900_000 || !v.Over || !v.Committed {
		t.Errorf("it says %+v", v)
	}
	if n := table.Stats().Unreported; n != 900_000 {
		t.Errorf("%d hits are to be reported", n)
	}
	c := table.Reports().Dirty(nil, 1)
	if len(c) != 1 {
		t.Fatal("nothing to report")
	}
	rep, _ := table.Reports().Take(c[0], epoch)
	if rep.N != 1 || rep.Parts[0].Sum(r) != 900_000 {
		t.Errorf("the report is %+v", rep)
	}
	if v, _ := table.PeekFor(r, address(2), 1001, epoch); v.Over {
		t.Error("a stranger is over")
	}
	one := []Reservation{{Rule: r, Source: address(2), Hits: 600}}
	table.Reserve(one, epoch)
	for hits, want := range map[uint32]bool{400: false, 401: true} {
		if v, _ := table.PeekFor(r, address(2), hits, epoch); v.Over != want {
			t.Errorf("600 and %d of 1000: over %v", hits, v.Over)
		}
	}
}

// While nothing is reported, what waits for the tier does not outgrow the number that counts it.
func TestCostlyBacklog(t *testing.T) {
	r, err := algorithm.NewCostly("r", 1000, time.Minute, 12, algorithm.Nearest, algorithm.MaxCost)
	if err != nil {
		t.Fatal(err)
	}
	table := New(Options{Counters: 100, Tier: true})
	reservations := []Reservation{{Rule: r, Source: address(1), Hits: algorithm.MaxCost, Always: true}}
	for i := range 6 * 1100 {
		table.Reserve(reservations, epoch.Add(time.Duration(i/1100)*5*time.Second))
	}
	if s := table.Stats(); s.Unreported > math.MaxUint32 || s.LostBacklog == 0 {
		t.Errorf("%+v", s)
	}
	at := epoch.Add(2 * time.Minute)
	table.Reserve(reservations, at)
	if n := table.Stats().Unreported; n != algorithm.MaxCost {
		t.Errorf("a window later %d hits wait, want those of one ask", n)
	}
}
