package top

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"sluice/counter"
)

// The heaviest are found among many more than there is room for, with the error they state, and what is halved keeps its order.
func TestTop(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	source := func(n uint32) counter.Source {
		return counter.SourceOf(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32, 64)
	}
	top, exact := New(), make(map[string]uint64)
	for range 200_000 {
		n := random.Uint32N(50_000)
		if random.Uint32N(4) == 0 {
			n = 1_000_000 + min(random.Uint32N(10), random.Uint32N(10))
		}
		top.Hit(source(n))
		exact[source(n).String()]++
	}
	all := top.Heaviest(1 << 20)
	if len(all) > topSets*topWays {
		t.Errorf("%d entries", len(all))
	}
	for _, h := range all {
		if n := exact[h.Source]; h.Count < n || h.Count-h.Error > n {
			t.Errorf("%s: %d, of which %d in doubt; it had %d", h.Source, h.Count, h.Error, n)
		}
	}
	heavy := make(map[string]bool)
	for _, h := range top.Heaviest(8) {
		heavy[h.Source] = true
	}
	for n := range uint32(5) {
		if s := source(1_000_000 + n).String(); !heavy[s] {
			t.Errorf("%s with %d is not among %v", s, exact[s], heavy)
		}
	}
	first := top.Heaviest(1)[0]
	top.Fade()
	if again := top.Heaviest(1)[0]; again.Source != first.Source || again.Count != first.Count/2 {
		t.Errorf("%+v became %+v", first, again)
	}
	if n := testing.AllocsPerRun(100, func() { top.Hit(source(1_000_000)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTop(b *testing.B) {
	top := New()
	var sources [1024]counter.Source
	for i := range sources {
		sources[i] = counter.SourceOf(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32, 64)
	}
	for i := 0; b.Loop(); i++ {
		top.Hit(sources[i%1024])
	}
}

// A list that is to be added to others says how much a source may have that it does not name.
func TestRest(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	top, exact := New(), make(map[string]uint64)
	if l := top.List(3); len(l.Heavy) != 0 || l.Rest != 0 {
		t.Errorf("of nobody: %+v", l)
	}
	for range 50_000 {
		s := counter.SourceOf(netip.AddrFrom4([4]byte{10, 0, byte(random.Uint32N(20)), byte(random.Uint32N(random.Uint32N(256) + 1))}), 32, 64)
		top.Hit(s)
		exact[s.String()]++
	}
	for _, n := range []int{0, 1, 10, 100, 5000} {
		l := top.List(n)
		for _, h := range l.Heavy {
			delete(exact, h.Source)
		}
		for source, had := range exact {
			if had > l.Rest {
				t.Errorf("the first %d: %s is not among them and has %d, more than %d", n, source, had, l.Rest)
			}
		}
	}
}
