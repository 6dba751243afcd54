package unconfirmed

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// TestBalance does anything to entries in any order: what comes in and what goes out are the hits that are there, of the Set, of each entry and
// in its groups; an entry that is given up leaves nothing behind to the next with its index.
func TestBalance(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		limit := []uint32{100, 1_000_000}[seed%2]
		r, err := algorithm.NewSliding("r", limit, time.Minute, 12, algorithm.Nearest)
		if err != nil {
			t.Fatal(err)
		}
		s, l := NewSet(60), r.Packing()
		var in, out uint64
		live, queued := make(map[uint16]bool), make(map[uint16]bool)
		for step := range 3000 {
			w := s.Begin(r, 1, rng.IntN(2) == 0)
			if all := slices.Sorted(maps.Keys(live)); len(all) > 20 || w == 0 || len(all) > 0 && rng.IntN(2) == 0 {
				if w != 0 {
					out += s.Release(w)
				}
				w = all[rng.IntN(len(all))]
			}
			live[w] = true
			k, g := s.At(w), rng.IntN(r.Groups())
			switch rng.IntN(8) {
			case 0, 1:
				n := 1 + rng.Uint32N(limit)
				if l.Lane(s.In(k, 0).Pending, 1)+uint64(n) <= l.Max() && s.Count(k, r, 1, n) {
					in += uint64(n)
				}
			case 2:
				if s.In(k, g).Pending != 0 && s.In(k, g).InFlight == 0 {
					_, saturated := s.Send(k, g, l.All(rng.Uint64N(l.ReportMax())))
					out += saturated
				}
			case 3:
				if hits := s.In(k, g).InFlight; hits != 0 && s.Answer(k, g, hits) {
					if out += l.Sum(hits); rng.IntN(2) == 0 && l.Clamp(hits+s.In(k, g).Pending) == hits+s.In(k, g).Pending {
						s.Return(k, g, hits)
						in += l.Sum(hits)
					}
				}
			case 4:
				pending, inFlight := s.Age(k, 1+rng.IntN(r.Groups()))
				out += pending + inFlight
			case 5:
				if !s.HasInFlight(k) {
					out += s.Shift(k, int64(rng.IntN(40)-20))
				}
			case 6:
				k.Queued, queued[w] = true, true
			case 7:
				out += s.Release(w)
				delete(live, w)
			}
			for _, w := range slices.Sorted(maps.Keys(queued)) {
				if rng.IntN(3) == 0 {
					if delete(queued, w); (s.Leave(w) != nil) != live[w] {
						t.Fatalf("seed %d, step %d: an entry that left the queue is said to be there or not, and is not or is", seed, step)
					}
				}
			}
			if s.Hits != in-out {
				t.Fatalf("seed %d, step %d: %d hits, want %d less %d", seed, step, s.Hits, in, out)
			}
			for w := range live {
				k, n := s.At(w), uint64(0)
				for g := range r.Groups() {
					n += l.Sum(s.In(k, g).Pending) + l.Sum(s.In(k, g).InFlight)
				}
				if uint64(k.Hits) != n {
					t.Fatalf("seed %d, step %d: an entry has %d hits, and %d in its groups", seed, step, k.Hits, n)
				}
			}
		}
		if in == 0 || out == 0 {
			t.Fatal("nothing happened")
		}
	}
}
