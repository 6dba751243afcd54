package counter

import (
	"reflect"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/histogram"
	"sluice/counter/internal/lanes"
)

// TestNothingIsLostAsATableGrows adds sources one by one and holds what the table says of all of them against what was counted:
// counters with hits on their way, with reservations and with histograms move to other pages with them.
func TestNothingIsLostAsATableGrows(t *testing.T) {
	for name, limit := range map[string]uint32{"narrow": 40, "wide": 40_000} {
		t.Run(name, func(t *testing.T) {
			const n = 2000
			capacity := n * 8 // so full that pages split several times, and not so full that any must go or that not all can report
			if limit > lanes.NarrowMax {
				capacity *= 4
			}
			table := New(Options{Counters: capacity, Tier: true})
			r := rule(t, limit, time.Minute, 12, algorithm.Nearest)
			hits := limit / 4 // enough for a histogram, for the first sources
			held := make([]Reservation, n)
			begin := 0
			for i := range uint32(n) {
				held[i] = Reservation{Rule: r, Source: address(i), Hits: 1, Hold: true}
				if !table.Reserve([]Reservation{{Rule: r, Source: address(i), Hits: hits}}, epoch) || !table.Reserve(held[i:i+1], epoch) {
					t.Fatalf("source %d was refused", i)
				}
				if i == n/100 {
					begin = table.pagesInUse(r)
				}
			}
			if now := table.pagesInUse(r); now < 3*begin {
				t.Fatalf("%d pages in use, %d with a hundredth of the sources: the table has not grown, and the test shows nothing", now, begin)
			}
			evicted := int(table.Stats().Evicted)
			if there := table.Stats().Counters; there+evicted != n || evicted > n/200 { // a page may overflow by chance, about once in 100 runs
				t.Fatalf("%d counters, %d evicted, want %d and next to none", there, evicted, n)
			}
			// Later in the sub-window that the window's beginning cuts, a histogram shows that all hits came before.
			later := epoch.Add(time.Minute + 2500*time.Millisecond)
			fine, missing := 0, 0
			for i := range uint32(n) {
				v, there := table.Peek(r, address(i), epoch)
				if !there {
					missing++
					continue
				}
				if v.Estimate != float64(hits+1) {
					t.Fatalf("source %d: %v hits after the table grew, want %d", i, v.Estimate, hits+1)
				}
				if v, _ := table.Peek(r, address(i), later); v.Estimate == 1 {
					fine++
				}
				table.Cancel(&held[i])
				if v, _ := table.Peek(r, address(i), epoch); v.Estimate != float64(hits) {
					t.Fatalf("source %d: %v hits after its reservation was cancelled, want %d", i, v.Estimate, hits)
				}
				rep, ok := table.Reports().Take(Counter{Rule: r, Source: address(i)}, epoch)
				if !ok || rep.N != 1 || r.Packing().Sum(rep.Parts[0].Hits) != min(uint64(hits), r.Packing().ReportMax()/MaxEdges) {
					t.Fatalf("source %d: report %+v after the table grew, want %d hits", i, rep, hits)
				}
				table.Reports().Counted(Counter{Rule: r, Source: address(i)}, rep.Parts[0], rep.Parts[0].Hits, epoch)
			}
			if missing != evicted {
				t.Errorf("%d sources are missing, and %d were evicted", missing, evicted)
			}
			want := 0
			for i := range table.shards {
				want += min(table.shards[i].histograms.Cap(), table.shards[i].store(r).Len())
			}
			if fine != want {
				t.Errorf("%d sources are counted finely, want %d", fine, want)
			}
			// What is on its way found its counter again: nothing is left, and no counter believes otherwise.
			table.Reports().Dirty(nil, n)
			for i := range table.shards {
				s := &table.shards[i]
				if s.unconfirmed.InUse() != 0 {
					t.Errorf("%d entries are in use after everything was answered", s.unconfirmed.InUse())
				}
			}
			for i := range uint32(n) {
				table.Reserve([]Reservation{{Rule: r, Source: address(i), Hits: 1}}, epoch)
			}
			table.Reports().Sweep(epoch, true)
			for i := range uint32(n) {
				if _, there := table.Peek(r, address(i), epoch); !there {
					continue
				}
				if rep, ok := table.Reports().Take(Counter{Rule: r, Source: address(i)}, epoch); !ok || r.Packing().Sum(rep.Parts[0].Hits) != 1 {
					t.Fatalf("source %d: report %+v of a single hit", i, rep)
				}
			}
		})
	}
}

// pagesInUse is in how many pages of 64 indices counters of a rule's width stand.
func (t *Table) pagesInUse(r *algorithm.Spec) int {
	pages := make(map[int]bool)
	for i := range t.shards {
		for at := range t.shards[i].store(r).All() {
			pages[at/64] = true
		}
	}
	return len(pages)
}

// TestHistogramsArePlainMemory: a collection of garbage does not look into them, however many there are.
func TestHistogramsArePlainMemory(t *testing.T) {
	if at := pointerIn(reflect.TypeFor[histogram.Histogram]()); at != "" {
		t.Errorf("a histogram has a pointer: %s", at)
	}
}

// pointerIn is the path to a pointer in a type, or empty.
func pointerIn(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		for f := range t.Fields() {
			if at := pointerIn(f.Type); at != "" {
				return f.Name + "." + at
			}
		}
		return ""
	case reflect.Array:
		return pointerIn(t.Elem())
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return ""
	}
	return t.String()
}
