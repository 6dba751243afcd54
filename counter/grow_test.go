package counter

import (
	"reflect"
	"testing"
	"time"
	"unsafe"
)

// TestNothingIsLostAsATableGrows adds sources one by one and holds what the table says of all of them against what was counted:
// counters with hits on their way, with reservations and with fines move to other pages with them.
func TestNothingIsLostAsATableGrows(t *testing.T) {
	for name, limit := range map[string]uint32{"narrow": 40, "wide": 40_000} {
		t.Run(name, func(t *testing.T) {
			const n = 2000
			capacity := n * 8 // so full that pages split several times, and not so full that any must go or that not all can report
			if limit > narrowMax {
				capacity *= 4
			}
			table := New(Options{Counters: capacity, Tier: true})
			r := rule(t, limit, time.Minute, 12, Nearest)
			hits := limit / 4 // enough for a fine, for the first sources
			held := make([]Ask, n)
			begin := table.pagesInUse(r)
			for i := range uint32(n) {
				held[i] = Ask{Rule: r, Source: address(i), Hits: 1, Hold: true}
				if !table.Reserve([]Ask{{Rule: r, Source: address(i), Hits: hits}}, epoch) || !table.Reserve(held[i:i+1], epoch) {
					t.Fatalf("source %d was refused", i)
				}
			}
			if now := table.pagesInUse(r); now < 3*begin {
				t.Fatalf("%d pages in use, %d at the start: the table has not grown, and the test shows nothing", now, begin)
			}
			evicted := int(table.Stats().Evicted)
			if there := table.Stats().Counters; there+evicted != n || evicted > n/200 { // a page may overflow by chance, about once in 100 runs
				t.Fatalf("%d counters, %d evicted, want %d and next to none", there, evicted, n)
			}
			// Later in the sub-window that the window's beginning cuts, a fine tells that all hits came before.
			later := epoch.Add(time.Minute + 2500*time.Millisecond)
			fines, missing := 0, 0
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
					fines++
				}
				table.Cancel(&held[i])
				if v, _ := table.Peek(r, address(i), epoch); v.Estimate != float64(hits) {
					t.Fatalf("source %d: %v hits after its reservation was cancelled, want %d", i, v.Estimate, hits)
				}
				rep, ok := table.Take(Counter{Rule: r, Source: address(i)}, epoch)
				if !ok || rep.N != 1 || r.sum(rep.Parts[0].Hits) != min(uint64(hits), r.reportMax()/MaxEdges) {
					t.Fatalf("source %d: report %+v after the table grew, want %d hits", i, rep, hits)
				}
				table.Counted(Counter{Rule: r, Source: address(i)}, rep.Parts[0], rep.Parts[0].Hits, epoch)
			}
			if missing != evicted {
				t.Errorf("%d sources are missing, and %d were evicted", missing, evicted)
			}
			want := 0
			for i := range table.shards {
				want += min(table.shards[i].maxFines, int(table.shards[i].store(r).used))
			}
			if fines != want {
				t.Errorf("%d sources are counted finely, want %d", fines, want)
			}
			// What is on its way found its counter again: nothing is left, and no counter believes otherwise.
			table.Dirty(nil, n)
			for i := range table.shards {
				s := &table.shards[i]
				if len(s.free) != s.works.n-1 {
					t.Errorf("%d of %d works are free after everything was answered", len(s.free), s.works.n-1)
				}
			}
			for i := range uint32(n) {
				table.Reserve([]Ask{{Rule: r, Source: address(i), Hits: 1}}, epoch)
			}
			table.Sweep(epoch, true)
			for i := range uint32(n) {
				if _, there := table.Peek(r, address(i), epoch); !there {
					continue
				}
				if rep, ok := table.Take(Counter{Rule: r, Source: address(i)}, epoch); !ok || r.sum(rep.Parts[0].Hits) != 1 {
					t.Fatalf("source %d: report %+v of a single hit", i, rep)
				}
			}
		})
	}
}

func (t *Table) pagesInUse(r *Rule) (n int) {
	for i := range t.shards {
		n += int(t.shards[i].store(r).size.Load())
	}
	return n
}

// TestMemoryIsTouchedAsATableFills: pages are used from the first on, so what a table takes of memory follows what is in it.
func TestMemoryIsTouchedAsATableFills(t *testing.T) {
	const n = 200_000
	table := New(Options{Counters: n})
	r := rule(t, 10, time.Minute, 12, Nearest)
	pages := table.narrow.narrow
	sources := uint32(0)
	for _, share := range []int{1, 5, 10, 25} { // per cent
		for ; sources < uint32(n*share/100); sources++ {
			table.Reserve([]Ask{{Rule: r, Source: address(sources), Hits: 1}}, epoch)
		}
		last := 0
		for i := range pages {
			if pages[i] != (page{}) {
				last = i + 1
			}
		}
		// A table spreads when it is nine sixteenths full, to twice the pages at most.
		if got, most := float64(last)/float64(len(pages)), float64(share)/100*2/(9.0/16)/1.1+0.05; got > most {
			t.Errorf("with %d %% of its sources a table uses the first %.0f %% of its memory, want at most %.0f %%", share, 100*got, 100*most)
		}
	}
}

// TestTableIsPlainMemory: what holds the counters has no pointers, so a collection of garbage does not look into it however full
// it is, and a page of narrow counters is a page of memory: 72 bytes for each counter, the room to spare included.
func TestTableIsPlainMemory(t *testing.T) {
	for _, p := range []reflect.Type{reflect.TypeFor[page](), reflect.TypeFor[widePage](), reflect.TypeFor[fine]()} {
		if at := pointerIn(p); at != "" {
			t.Errorf("%v has a pointer: %s", p, at)
		}
	}
	if size := unsafe.Sizeof(page{}) + unsafe.Sizeof(tagLine{}); size != 4096 {
		t.Errorf("a page and its tags have %d bytes", size)
	}
	for _, n := range []int{100_000, 1_000_000} {
		table := New(Options{Counters: n})
		if per := float64(len(table.narrow.narrow)) * 4096 / float64(n); per > 72 {
			t.Errorf("a table of %d takes %.2f bytes for each", n, per)
		}
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

// TestForgottenCounterHidesNobody: a page is filled, one in a full word of tags is forgotten, and those that had to stand elsewhere
// for it are still found.
func TestForgottenCounterHidesNobody(t *testing.T) {
	table := New(Options{Counters: 60})
	r := rule(t, 10, time.Minute, 12, Nearest)
	there := make(map[uint32]bool)
	for i := range uint32(200) {
		table.Reserve([]Ask{{Rule: r, Source: address(i), Hits: 1}}, epoch)
	}
	for i := range uint32(200) {
		if _, ok := table.Peek(r, address(i), epoch); ok {
			there[i] = true
		}
	}
	for i := range there {
		table.Forget(r, address(i))
		delete(there, i)
		for j := range there {
			if _, ok := table.Peek(r, address(j), epoch); !ok {
				t.Fatalf("source %d is not found any more when %d is forgotten, with %d left", j, i, len(there))
			}
		}
	}
	if st := table.Stats(); st.Counters != 0 {
		t.Errorf("%d counters left of none", st.Counters)
	}
}
