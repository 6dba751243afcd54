package records

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// key is the key of a record, and its hash.
func key(n, class uint32) (hash uint64, id *[16]byte, c uint32, kind uint8) {
	id = new([16]byte)
	binary.BigEndian.PutUint32(id[:], n)
	return hashOf(id), id, class, 1
}

func hashOf(id *[16]byte) uint64 {
	x := (uint64(binary.BigEndian.Uint32(id[:])) + 1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hashOfKey(id [16]byte, _ uint8) uint64 { return hashOf(&id) }

func find(s *Shard, n, class uint32) (i int, ok bool) { return s.Find(key(n, class)) }

func nothing(int) float64 { return 0 }

// grow splits pages as a caller does.
func grow(s *Shard) (moves []Move) {
	var room Moves
	if s.Crowded() {
		moves = append(moves, s.Split(hashOfKey, &room)...)
	}
	return moves
}

// insert makes a record, and says who had to go.
func insert(s *Shard, n, class uint32, of EvictionCost) (i int, evicted Head, full bool) {
	hash, id, class, kind := key(n, class)
	return s.Insert(hash, id, class, kind, of)
}

// TestAgainstMap inserts, finds, changes and removes records and holds all against a map: through growth, through pages that
// overflow, and when the shard is full and records are pushed out.
func TestAgainstMap(t *testing.T) {
	type name struct{ n, class uint32 }
	nameOf := func(h *Head) name { return name{binary.BigEndian.Uint32(h.ID[:]), h.Class} }
	moved, out := 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		numbers := []int{4, 7}[seed%2]
		shards := 1 + int(seed%3)
		table := New(shards, []int{1, 60, 500, 4000}[rng.IntN(4)], numbers)
		shard := table.Shard(int(seed) % shards)
		s := &shard
		classes := 1 + rng.Uint32N(12)
		twin := make(map[name]uint64)
		var names []name
		splits, evictions := 0, 0
		write := func(i int, v uint64) {
			h, all := s.Record(i)
			h.Own[0], h.Own[10] = byte(v), byte(v>>8)
			for k := range all {
				all[k] = v + uint64(k)
			}
		}
		check := func(n name) {
			t.Helper()
			i, ok := find(s, n.n, n.class)
			v, there := twin[n]
			if ok != there {
				t.Fatalf("seed %d: %v found: %v, want %v", seed, n, ok, there)
			}
			if !ok {
				return
			}
			h, all := s.Record(i)
			if nameOf(h) != n || h.Own[0] != byte(v) || h.Own[10] != byte(v>>8) || len(all) != numbers {
				t.Fatalf("seed %d: %v has %+v and %d numbers, want %d", seed, n, h, len(all), v)
			}
			for k := range all {
				if all[k] != v+uint64(k) {
					t.Fatalf("seed %d: %v has %v, want %d and up", seed, n, all, v)
				}
			}
		}
		for step := range 3 * s.Cap() {
			n := name{rng.Uint32N(uint32(s.Cap())), rng.Uint32N(classes)}
			if len(names) > 0 && rng.IntN(2) == 0 {
				n = names[rng.IntN(len(names))]
			}
			i, ok := find(s, n.n, n.class)
			v := rng.Uint64N(1 << 60)
			switch {
			case ok && rng.IntN(4) == 0:
				s.Remove(i)
				delete(twin, n)
			case ok:
				write(i, v)
				twin[n] = v
			default:
				at, gone, full := insert(s, n.n, n.class, nothing)
				if h, all := s.Record(at); h.Own != [11]byte{} || all[0] != 0 || all[numbers-1] != 0 {
					t.Fatalf("seed %d: a new record has %+v, %v", seed, h, all)
				}
				if full {
					evictions++
					if _, there := twin[nameOf(&gone)]; !there {
						t.Fatalf("seed %d: %v was pushed out, who was not there", seed, nameOf(&gone))
					}
					delete(twin, nameOf(&gone))
				}
				write(at, v)
				twin[n] = v
				names = append(names, n)
				for _, m := range grow(s) {
					splits++
					if i, ok := find(s, nameOf(&m.Head).n, m.Class); ok != (m.To >= 0) || ok && i != m.To {
						t.Fatalf("seed %d: %v stands at %d (%v) after it moved to %d", seed, nameOf(&m.Head), i, ok, m.To)
					}
					if m.To < 0 {
						delete(twin, nameOf(&m.Head))
					}
				}
			}
			check(n)
			if bits.OnesCount(uint(step)) == 1 {
				for _, n := range names {
					check(n)
				}
			}
		}
		for _, n := range names {
			check(n)
		}
		there := 0
		for i := range s.All() {
			if _, ok := twin[nameOf(s.Head(i))]; !ok {
				t.Fatalf("seed %d: All gives %v", seed, nameOf(s.Head(i)))
			}
			there++
		}
		if there != len(twin) || s.Len() != len(twin) {
			t.Errorf("seed %d: All gives %d, Len is %d, want %d", seed, there, s.Len(), len(twin))
		}
		moved, out = moved+splits, out+evictions
	}
	if moved < 1000 || out < 1000 {
		t.Errorf("%d moves, %d pushed out: the test shows nothing", moved, out)
	}
}

// TestSplitWithoutRoom: an ID of more classes than a page and its neighbours hold stays within them; who finds no room when a page is split is
// named, and nobody else is lost.
func TestSplitWithoutRoom(t *testing.T) {
	table := New(1, 4000, 4)
	shard := table.Shard(0)
	s := &shard
	there, gone := make(map[uint32]bool), 0
	for next := range uint32(2000) { // all belong in one page
		_, out, full := insert(s, 1, next, nothing)
		there[next] = true
		if full {
			delete(there, out.Class)
			gone++
		}
		for _, m := range grow(s) {
			if m.To < 0 {
				delete(there, m.Class)
				gone++
			}
		}
		for class := range there {
			if next%100 != 99 {
				break
			}
			if _, ok := find(s, 1, class); !ok {
				t.Fatalf("class %d is not found", class)
			}
		}
	}
	if gone == 0 || len(there)+gone != 2000 || s.Len() != len(there) {
		t.Errorf("%d there, %d gone, Len %d, want 2000 together", len(there), gone, s.Len())
	}
}

// TestLeastAtStakeLeaves: of a full page the record with nothing at stake leaves, wherever it stands, before one with half or more; and
// of those the one with the least.
func TestLeastAtStakeLeaves(t *testing.T) {
	table := New(1, 1, 4) // one page
	shard := table.Shard(0)
	s := &shard
	for class := range uint32(s.perPage()) {
		if _, _, full := insert(s, 1, class, nothing); full {
			t.Fatal("a page is full before it is")
		}
	}
	stake := make(map[uint32]float64)
	for class := range uint32(s.perPage()) {
		stake[class] = 0.5 + float64(class)/1000
	}
	of := func(i int) float64 { return stake[s.Head(i).Class] }
	stake[40] = 0.1
	next := uint32(1000)
	for _, want := range []uint32{40, 0, 1, 2} {
		stake[next] = math.Inf(1)
		if _, out, full := insert(s, 1, next, of); !full || out.Class != want {
			t.Errorf("%d left (full: %v), want %d", out.Class, full, want)
		}
		next++
	}
}

// TestRemovedHidesNobody: a page is filled, one in a full word of tags is removed, and those that had to stand elsewhere for it
// are still found.
func TestRemovedHidesNobody(t *testing.T) {
	table := New(1, 60, 4)
	shard := table.Shard(0)
	s := &shard
	for n := range uint32(200) {
		if _, ok := find(s, n, 0); !ok {
			insert(s, n, 0, nothing)
			grow(s)
		}
	}
	there := make(map[uint32]bool)
	for n := range uint32(200) {
		if _, ok := find(s, n, 0); ok {
			there[n] = true
		}
	}
	for n := range there {
		i, _ := find(s, n, 0)
		s.Remove(i)
		delete(there, n)
		for other := range there {
			if _, ok := find(s, other, 0); !ok {
				t.Fatalf("%d is not found any more when %d is removed, with %d left", other, n, len(there))
			}
		}
	}
	if s.Len() != 0 {
		t.Errorf("%d left of none", s.Len())
	}
}

// TestTableHoldsWhatItPromises: IDs come with all their classes, and yet a table made for so many records pushes few of them out before
// it is full, and finds all others however far it has grown and wherever they stand.
func TestTableHoldsWhatItPromises(t *testing.T) {
	const n, shards = 96_000, 64
	for classes, most := range map[uint32]float64{1: 0.002, 3: 0.008, 8: 0.022} {
		t.Run(fmt.Sprintf("classes=%d", classes), func(t *testing.T) {
			table := New(shards, n/shards, 4)
			list := make([]Shard, shards)
			for i := range list {
				list[i] = table.Shard(i)
			}
			shardOf := func(n uint32) *Shard {
				hash, _, _, _ := key(n, 0)
				return &list[hash>>32%shards]
			}
			out := 0
			check := func(ids uint32) {
				t.Helper()
				found, there := 0, 0
				for i := range ids {
					for class := range classes {
						if _, ok := find(shardOf(i), i, class); ok {
							found++
						}
					}
				}
				for i := range list {
					there += list[i].Len()
				}
				if found != there || found+out != int(ids*classes) {
					t.Fatalf("%d IDs of %d classes: %d are found, %d there, %d pushed out", ids, classes, found, there, out)
				}
			}
			for i := range n / classes {
				for class := range classes {
					if _, _, full := insert(shardOf(i), i, class, nothing); full {
						out++
					}
					for _, m := range grow(shardOf(i)) {
						if m.To < 0 {
							out++
						}
					}
				}
				if bits.OnesCount32(i) == 1 || i%(n/classes/10) == 0 {
					check(i + 1)
				}
			}
			check(n / classes)
			if share := float64(out) / n; share > most {
				t.Errorf("%.2f %% pushed out of a table made for them, want at most %.2f %%", 100*share, 100*most)
			}
		})
	}
}

// TestMemoryIsTouchedAsATableFills: pages are used from the first on, so what a table takes of memory follows what is in it.
func TestMemoryIsTouchedAsATableFills(t *testing.T) {
	const n, shards = 200_000, 128
	table := New(shards, n/shards, 4)
	list := make([]Shard, shards)
	for i := range list {
		list[i] = table.Shard(i)
	}
	ids := uint32(0)
	for _, share := range []int{1, 5, 10, 25} { // per cent
		for ; ids < uint32(n*share/100); ids++ {
			s := &list[ids%shards]
			insert(s, ids, 0, nothing)
			grow(s)
		}
		last := 0
		for i, word := range table.words {
			if word != 0 {
				last = i + 1
			}
		}
		// A shard splits its pages when they are nine sixteenths full, to twice as many at most.
		if got, most := float64(last)/float64(len(table.words)), float64(share)/100*2/(9.0/16)/1.1+0.05; got > most {
			t.Errorf("with %d %% of its records a table uses the first %.0f %% of its memory, want at most %.0f %%", share, 100*got, 100*most)
		}
	}
}

// TestPagesAreTheProcessors: a page of records of 64 bytes and its tags are a page of memory, 72 bytes for each record that was asked for, the
// room to spare included; larger records fit as well.
func TestPagesAreTheProcessors(t *testing.T) {
	for _, f := range []struct {
		numbers, perPage int
		bytes            float64
	}{{4, 63, 72}, {7, 39, 99}} {
		for _, n := range []int{100, 1000, 2000} {
			table := layout(512, n, f.numbers)
			if got := table.perPage(); got != f.perPage || 8*table.page+len(tagLine{})*8 > pageBytes {
				t.Errorf("%d numbers: %d records a page, want %d", f.numbers, got, f.perPage)
			}
			per := float64(8*len(table.words)+len(table.tags)*64) / 512 / float64(n)
			if n == 2000 && per > f.bytes {
				t.Errorf("%d numbers: %.2f bytes for each of %d, want %.0f", f.numbers, per, n, f.bytes)
			}
		}
	}
	if bytes := 8 * (headWords + 4); bytes != 64 {
		t.Errorf("a record of four numbers has %d bytes", bytes)
	}
}

// TestMatchIsExact: a tag that differs in its lowest bit only, next to one that matches, does not: behind it may be a record's copy that has moved away.
func TestMatchIsExact(t *testing.T) {
	for a := range 256 {
		for b := range 256 {
			tags := uint64(a) | uint64(b)<<8 | uint64(a)<<16 | 0x55<<24 | uint64(b)<<56
			for _, tag := range []uint8{uint8(a), uint8(b), tagEmpty, tagTombstone} {
				want := uint64(0)
				for k := range 8 {
					if uint8(tags>>(8*k)) == tag {
						want |= 0x80 << (8 * k)
					}
				}
				if got := match(tags, tag); got != want {
					t.Fatalf("%x in %x: marked %x, want %x", tag, tags, got, want)
				}
			}
		}
	}
}

// TestGrowthAllocatesNothing: all memory is there from the start.
func TestGrowthAllocatesNothing(t *testing.T) {
	table := New(2, 10_000, 4)
	shards, run := []Shard{table.Shard(0), table.Shard(1)}, 0
	if n := testing.AllocsPerRun(1, func() {
		s := &shards[run]
		run++
		for n := range uint32(9000) {
			var id [16]byte
			binary.BigEndian.PutUint32(id[:], n)
			s.Insert(hashOf(&id), &id, 0, 1, nothing)
			if s.Crowded() {
				var room Moves
				s.Split(hashOfKey, &room)
			}
		}
	}); n != 0 || shards[1].inUse() < 100 {
		t.Errorf("%v allocations for 9000 records, %d pages in use", n, shards[1].inUse())
	}
}
