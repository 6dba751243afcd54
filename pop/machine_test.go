package pop_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/secret"
	"sluice/pop/sim"
	"sluice/pop/wire"
)

var began = time.Unix(1_700_000_000, 0)

func address(n uint32) counter.Source {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return counter.SourceOf(netip.AddrFrom4(b), 32, 64)
}

func newRule(t testing.TB, limit uint32, window, timeout time.Duration, e algorithm.Estimate) mitigation.Rule {
	t.Helper()
	r, err := algorithm.NewSliding("test", limit, window, 12, e)
	must(t, err)
	return mitigation.Rule{Counter: r, Timeout: timeout}
}

func newWorld(t testing.TB, c sim.Config, r mitigation.Rule) *sim.World {
	t.Helper()
	c.Secret = secret.Of([]byte("test"))
	w, err := sim.New(c, []limiter.Rule{{Rule: r}}, began)
	must(t, err)
	return w
}

// ask sends one request to an edge, and reports whether it is admitted.
func ask(e *sim.Edge, r mitigation.Rule, s counter.Source) bool {
	return !e.Request(&limiter.Rule{Rule: r}, s).Refused()
}

func mitigated(w *sim.World, e *sim.Edge, r mitigation.Rule, s counter.Source) bool {
	return !e.Blocks.Until(mitigation.Key{Rule: r.Counter.ID, Source: s}, w.Now()).IsZero()
}

func TestBlockReachesEdgesThatNeverSawTheSource(t *testing.T) {
	r := newRule(t, 5, time.Second, time.Second, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond}, r)
	at := began
	for block := range 20 { // blocks as short as memcached's seconds are coarse: old bits must not stand in the way
		s := address(9)
		for range 8 {
			ask(w.Edges[block%3], r, s)
			w.Run(w.Now().Add(time.Millisecond))
		}
		w.Run(w.Now().Add(250 * time.Millisecond))
		for i, e := range w.Edges {
			if !mitigated(w, e, r, s) {
				t.Fatalf("block %d: edge %d does not know of it 250 ms later", block, i)
			}
		}
		at = at.Add(2 * time.Second)
		w.Run(at)
	}
}

// TestFullIsKnownEverywhere: a source that has used up its limit on one edge is refused by another at its very first request
// there, if the edges had time to talk.
func TestFullIsKnownEverywhere(t *testing.T) {
	r := newRule(t, 20, time.Minute, time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 8, Nodes: 4, RTT: time.Millisecond}, r)
	s := address(7)
	for i := range 20 {
		if !ask(w.Edges[0], r, s) {
			t.Fatalf("request %d of 20 was refused", i+1)
		}
		w.Run(w.Now().Add(50 * time.Millisecond))
	}
	w.Run(w.Now().Add(150 * time.Millisecond))
	if mitigated(w, w.Edges[1], r, s) {
		t.Error("a source at its limit is not over it")
	}
	if ask(w.Edges[1], r, s) {
		t.Error("the second edge admitted one more")
	}
}

// TestReturningEdgeReadsOlderGroups: an edge that has met a source long ago finds what others have counted of it since,
// though they had no cause to announce it.
func TestReturningEdgeReadsOlderGroups(t *testing.T) {
	for _, edges := range []int{2, 3, 4, 8} {
		r := newRule(t, 60, time.Minute, time.Minute, algorithm.Nearest)
		w := newWorld(t, sim.Config{Edges: edges, Nodes: 2, RTT: time.Millisecond}, r)
		s, admitted := address(1), 0
		send := func(edge, n int, gap time.Duration) {
			for range n {
				if ask(w.Edges[edge], r, s) {
					admitted++
				}
				w.Run(w.Now().Add(gap))
			}
		}
		send(1, 1, 2*time.Minute)
		admitted = 0
		send(0, 38, 200*time.Millisecond)
		w.Run(w.Now().Add(20 * time.Second)) // a group of sub-windows
		send(1, 60, 200*time.Millisecond)
		if admitted < 60 || admitted > 61 {
			t.Errorf("%d edges: %d admitted of a limit of 60", edges, admitted)
		}
	}
}

// TestManyBlocksAtOnce: the log takes many lines of one instant from several edges, and every edge reads them all.
func TestManyBlocksAtOnce(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond}, r)
	const sources = 2000
	for n := range uint32(sources) {
		for range 7 {
			ask(w.Edges[n%3], r, address(n))
		}
	}
	w.Run(w.Now().Add(200 * time.Millisecond))
	for i, e := range w.Edges {
		missing := 0
		for n := range uint32(sources) {
			if !mitigated(w, e, r, address(n)) {
				missing++
			}
		}
		if missing > 0 {
			t.Errorf("edge %d does not know of %d of %d blocks 200 ms later", i, missing, sources)
		}
	}
}

// TestNumberThatNoEdgeWrites: a counter with more in a lane than edges can have written refuses nobody. It is counted, deleted, and made anew by the
// next reports.
func TestNumberThatNoEdgeWrites(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: time.Millisecond}, r)
	ask(w.Edges[0], r, address(1))
	w.Run(began.Add(2 * time.Second))
	keys, written := pop.CounterKeys(secret.Of([]byte("test")), r, address(1), w.Now()), 0
	for _, key := range keys {
		if g := w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Get, Key: key}); g.Values[0] != nil {
			w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Set, Key: key, Value: fmt.Appendf(nil, "%020d", uint64(0xfffe)<<48), Expire: 100})
			written++
		}
	}
	for i := range 3 {
		if !ask(w.Edges[i%2], r, address(1)) {
			t.Error("refused by what no edge has written")
		}
		w.Run(w.Now().Add(2 * time.Second))
	}
	sum := uint64(0)
	for _, key := range keys {
		if g := w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Get, Key: key}); g.Values[0] != nil {
			n, err := strconv.ParseUint(strings.TrimSpace(string(g.Values[0])), 10, 64)
			must(t, err)
			sum += pop.Sum(r, n)
		}
	}
	forged := w.Edges[0].Machine.Stats().Forged + w.Edges[1].Machine.Stats().Forged
	if written == 0 || forged == 0 || sum == 0 || sum > 5 {
		t.Errorf("%d counters written, %d found forged; %d hits are there afterwards, want those of the edges", written, forged, sum)
	}
}

// TestOverAdmissionIsBounded is the bound of the design: N, and what the other edges admit in a round trip.
func TestOverAdmissionIsBounded(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		edges, limit := 1+rng.IntN(8), uint32(1+rng.IntN(60))
		rtt := time.Duration(1+rng.IntN(5)) * time.Millisecond
		t.Run(fmt.Sprintf("%d edges, limit %d, %v", edges, limit, rtt), func(t *testing.T) {
			r := newRule(t, limit, 10*time.Second, 10*time.Second, algorithm.Lower)
			w := newWorld(t, sim.Config{Edges: edges, Nodes: 2, RTT: rtt}, r)
			rate := 50 + rng.IntN(5000)
			s, admitted := address(uint32(seed)), 0
			for i := range rate * 3 {
				w.Run(began.Add(time.Duration(i) * time.Second / time.Duration(rate)))
				if ask(w.Edges[rng.IntN(edges)], r, s) {
					admitted++
				}
			}
			// A report and its answer, and one that had just left when the hit came: two round trips.
			inFlight := int(float64(rate)*2*rtt.Seconds()) + 1
			bound := int(limit) + (edges-1)*min(int(limit), inFlight) + edges
			if admitted > bound {
				t.Errorf("%d admitted, the bound is %d", admitted, bound)
			}
		})
	}
}

// TestStrangersEndNoBlocks: ten tables of strangers, each with three hits of a limit of five, end nobody's block.
func TestStrangersEndNoBlocks(t *testing.T) {
	const counters, blocked = 1000, 200
	r := newRule(t, 5, time.Minute, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 1, Nodes: 1, RTT: time.Millisecond, Counters: counters}, r)
	for i := range uint32(blocked) {
		for range 6 {
			ask(w.Edges[0], r, address(i))
		}
	}
	for i := range uint32(10 * counters) {
		for range 3 {
			ask(w.Edges[0], r, address(blocked+i))
		}
		w.Run(w.Now().Add(time.Millisecond))
	}
	if s := w.Edges[0].Counters.Stats(); s.Evicted < 8*counters {
		t.Fatalf("%d evicted, and the test shows nothing", s.Evicted)
	}
	for i := range uint32(blocked) {
		if !mitigated(w, w.Edges[0], r, address(i)) {
			t.Fatalf("the block of source %d has ended", i)
		}
	}
}

// must ends a test that cannot go on.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
