package pop_test

import (
	"net/netip"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/pop"
	"sluice/pop/secret"
	"sluice/pop/sim"
	"sluice/pop/wire"
)

// TestFullPoP: more edges than can share counters: those that come too late count alone, and disturb nobody, until others leave.
func TestFullPoP(t *testing.T) {
	t.Parallel()
	pass := func(w *sim.World, d time.Duration) { passBy(w, d, 5*pop.Tick) }
	for _, edges := range []int{65, 70} {
		if raceEnabled && edges > 65 {
			continue
		}
		r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
		w := newWorld(t, sim.Config{Edges: edges, Nodes: 2, RTT: time.Millisecond, Counters: 1000}, r)
		full := func() (list []int) {
			for i, e := range w.Edges {
				if w.Runs(i) && e.Machine.Stats().Full {
					list = append(list, i)
				}
			}
			return list
		}
		pass(w, 8*time.Second)
		late := full()
		if len(late) != edges-64 {
			t.Fatalf("%d edges: %d are too many, want %d", edges, len(late), edges-64)
		}
		for range 5 {
			pass(w, time.Second)
			for i, f := range full() {
				if f != late[i] {
					t.Fatalf("%d edges: %v are too many, and before %v", edges, full(), late)
				}
			}
		}
		if n := w.Edges[late[0]].Machine.Stats().Edges; n > 64 {
			t.Errorf("%d edges are known", n)
		}
		// It counts alone: its hits are not the PoP's, nor the PoP's its own, and it sends no reports.
		alone := w.Edges[late[0]]
		if alone.Machine.Nodes.Up() {
			t.Error("an edge that counts alone is up")
		}
		s, before := address(1), w.Commands
		for range 5 {
			if !ask(alone, r, s) {
				t.Error("refused by an edge that counts alone")
			}
		}
		pass(w, 500*time.Millisecond)
		if w.Commands != before {
			t.Errorf("%d commands of an edge that counts alone", w.Commands-before)
		}
		running := w.Edges[(late[0]+1)%edges]
		for i := 0; running.Machine.Stats().Full; i++ {
			running = w.Edges[i]
		}
		if !ask(running, r, s) {
			t.Error("refused for what an edge has counted alone")
		}
		// The node in which they meet comes back empty: those that had a slot have one again.
		for n := range w.Nodes {
			must(t, w.Restart(n))
		}
		pass(w, 8*time.Second)
		for i, f := range full() {
			if f != late[i] {
				t.Errorf("%d edges: after a restart %v are too many, before %v", edges, full(), late)
			}
		}
		// Some leave.
		left := 0
		for i := 0; left < 3; i++ {
			if !w.Edges[i].Machine.Stats().Full {
				w.Stop(i, true)
				left++
			}
		}
		pass(w, 20*time.Second)
		if got, want := len(full()), max(edges-64-3, 0); got != want {
			t.Errorf("%d edges, 3 left: %d are too many, want %d", edges, got, want)
		}
	}
}

// TestSlotsTakenByStrangers: what is no presence of ours, or an old one of ours, keeps nobody out and is not counted.
func TestSlotsTakenByStrangers(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 3, Nodes: 1, RTT: time.Millisecond, Learn: true}, r)
	pass(w, 2*time.Second)
	shared := secret.Of([]byte("test"))
	var old []byte
	for slot := range 64 {
		if v := w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Get, Key: shared.SlotKey(slot)}).Values[0]; v != nil {
			old = v
		}
	}
	if old == nil {
		t.Fatal("nobody is there")
	}
	pass(w, 5*time.Second)
	flood := func(value []byte) {
		for slot := range 64 {
			w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Set, Key: shared.SlotKey(slot), Value: value, Expire: 1000})
		}
	}
	for _, value := range [][]byte{[]byte("garbage"), nil, []byte("0123456789abcdef"), old} {
		flood(value)
		must(t, w.Start(2))
		pass(w, 15*time.Second)
		for i, e := range w.Edges {
			if s := e.Machine.Stats(); s.Edges != 3 || s.Full {
				t.Errorf("%.20q: edge %d knows of %d edges, full: %v", value, i, s.Edges, s.Full)
			}
		}
	}
}

// TestTooManyEdges: a number of edges that cannot share counters is an error.
func TestTooManyEdges(t *testing.T) {
	if _, err := pop.NewMachine(pop.Config{Nodes: []string{"node:11211"}, Edges: 65}, began); err == nil {
		t.Error("65 edges were accepted")
	}
}

// An edge that ends says so: the others do not count it any more, nor wait for it. One that is killed counts until its presence is over.
func TestEdgeThatEnds(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
	for _, ends := range []bool{true, false} {
		w := newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond, Learn: true}, r)
		busy := func(d time.Duration) {
			for range d / (100 * time.Millisecond) {
				ask(w.Edges[1], r, counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 32, 64))
				ask(w.Edges[2], r, counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, 2}), 32, 64))
				pass(w, 100*time.Millisecond)
			}
		}
		known := func() int { return len(w.Edges[1].Machine.Operators.Edges()) }
		busy(2 * time.Second)
		if known() != 3 || w.Edges[1].Machine.Stats().Edges != 3 {
			t.Fatalf("%d edges are known in the beginning", known())
		}
		w.Stop(0, ends)
		busy(1200 * time.Millisecond)
		want := map[bool]int{true: 2, false: 3}[ends]
		if got := w.Edges[1].Machine.Stats().Edges; known() != want || got != want {
			t.Errorf("it says that it ends: %v: %d edges are known and %d share, want %d", ends, known(), got, want)
		}
		busy(4 * time.Second)
		if known() != 2 {
			t.Errorf("it says that it ends: %v: after five seconds %d edges are known", ends, known())
		}
	}
}

// The process that replaces an edge of a full PoP counts together with the others from its start,
// while the older one goes on, and has a slot soon after that ends. Nobody else takes it, nor counts
// less meanwhile. One that replaces an edge without a place, or of another PoP, counts alone.
func TestReplacedInPlaceInAFullPoP(t *testing.T) {
	t.Parallel()
	pass := func(w *sim.World, d time.Duration) { passBy(w, d, 5*pop.Tick) }
	const old, next, late = 7, 64, 65
	r := newRule(t, 20, time.Minute, time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 66, Nodes: 2, RTT: time.Millisecond, Counters: 1000}, r)
	w.Stop(next, false)
	w.Stop(late, false)
	pass(w, 8*time.Second)
	must(t, w.Start(late))
	pass(w, 2*time.Second)
	if place := w.Edges[late].Machine.Membership(); place != "" {
		t.Errorf("an edge that counts alone is one of %q", place)
	}
	begin := func(membership string) {
		t.Helper()
		must(t, w.Start(next))
		w.Edges[next].Machine.Succeed(membership)
	}
	for _, wrong := range []string{"", "another PoP"} {
		begin(wrong)
		pass(w, time.Second)
		if !w.Edges[next].Machine.Stats().Full {
			t.Errorf("after a process of %q it does not count alone", wrong)
		}
		w.Stop(next, false)
	}

	full := func() bool { return w.Edges[next].Machine.Stats().Full }
	begin(w.Edges[old].Machine.Membership())
	s, began := address(1), w.Now()
	for range 110 { // as long as connections stay with the older process
		pass(w, 100*time.Millisecond)
		if full() {
			t.Fatalf("it counts alone %v after its start", w.Now().Sub(began))
		}
	}
	for i := range 20 {
		if e := []int{old, next, 3}[i%3]; !ask(w.Edges[e], r, s) {
			t.Errorf("request %d of 20 is refused by edge %d", i+1, e)
		}
		pass(w, 100*time.Millisecond)
	}
	for _, e := range []int{old, next, 3} {
		if ask(w.Edges[e], r, s) {
			t.Errorf("edge %d admits a request beyond the limit", e)
		}
	}
	if n := w.Edges[3].Machine.Stats().Edges; n != 64 {
		t.Errorf("%d edges share the tier, want 64", n)
	}
	w.Stop(old, true)
	ended := w.Now()
	known := func() bool {
		for _, e := range w.Edges[3].Machine.Operators.Edges() {
			if e.Name == "edge64" {
				return true
			}
		}
		return false
	}
	for !known() {
		if pass(w, 100*time.Millisecond); w.Now().Sub(ended) > 5*time.Second {
			t.Fatal("it has no slot 5 s after the end of the older process")
		}
		if full() {
			t.Fatalf("it counts alone %v after the end of the older process", w.Now().Sub(ended))
		}
	}
	t.Logf("the others know it %v after the end of the older process", w.Now().Sub(ended))
	pass(w, 5*time.Second)
	if w.Edges[next].Machine.Membership() == "" || !w.Edges[late].Machine.Stats().Full {
		t.Error("an edge that waited has its place")
	}
}
