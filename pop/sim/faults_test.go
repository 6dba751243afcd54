package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// A fault story is what goes wrong in a PoP under traffic: steady sources below the limit, whom nobody may refuse, and attackers far above it.
type faultStory struct {
	name      string
	limit     uint32
	window    time.Duration
	block     time.Duration
	share     float64 // of the limit, that each of 20 steady sources sends
	attackers int
	rate      func(edges int) float64 // of each attacker, a second
	length    time.Duration
	apart     time.Duration // the clocks, over all edges
	happens   []happens
	most      func(edges int) float64 // limits of one source in any window
	normal    time.Duration           // after the last thing that happens nobody has more than a tenth above a limit
}

// happens is one thing, at a time.
type happens struct {
	at time.Duration
	do func(*World) error
}

func does(at time.Duration, do func(*World)) happens {
	return happens{at, func(w *World) error { do(w); return nil }}
}

func kills(at time.Duration, node int) happens {
	return does(at, func(w *World) { w.Kill(node) })
}

func restarts(at time.Duration, node int) happens {
	return happens{at, func(w *World) error { return w.Restart(node) }}
}

func steps(at time.Duration, edge int, by time.Duration) happens {
	return does(at, func(w *World) { w.StepClock(edge, by) })
}

// faultStories are those of which three real edges tell too little.
func faultStories() (list []faultStory) {
	const s = time.Second
	add := func(name string, length time.Duration, most float64, normal time.Duration, happens ...happens) *faultStory {
		list = append(list, faultStory{name: name, limit: 50, window: 5 * s, block: 5 * s, share: 0.9, attackers: 10, rate: func(int) float64 { return 25 },
			length: length, happens: happens, most: func(int) float64 { return most }, normal: normal})
		return &list[len(list)-1]
	}
	add("a node is killed, and comes back", 18*s, 2, 2*s, kills(5*s, 0), restarts(12*s, 0))
	add("a node hangs, and goes on", 18*s, 2, 2*s, does(5*s, func(w *World) { w.Hang(0) }), does(12*s, func(w *World) { w.Resume(0) }))
	var flaps []happens
	for at := 4 * s; at < 12*s; at += 2 * s {
		flaps = append(flaps, kills(at, 0), restarts(at+s, 0))
	}
	add("a node is up for a second and down for a second", 17*s, 2, 2*s, flaps...)
	add("all nodes are restarted at once", 14*s, 2, 2*s, restarts(6*s, 0), restarts(6*s, 1))
	empty := add("all nodes come back empty, while sources are half-way to the limit", 10*s, 1.1, 2*s, restarts(6*s, 0), restarts(6*s, 1))
	empty.window = time.Minute
	gone := add("the whole tier is gone for ten minutes", 640*s, 0, 5*s, kills(20*s, 0), kills(20*s, 1), restarts(620*s, 0), restarts(620*s, 1))
	gone.attackers = 1
	gone.rate = func(edges int) float64 { return 15 * float64(edges) } // above a limit for each edge
	gone.most = func(edges int) float64 { return float64(edges) }
	add("an edge is killed, and a new one takes its place", 14*s, 2, s, does(5*s, func(w *World) { w.Stop(0, false) }), happens{6 * s, func(w *World) error { return w.Start(0) }})
	add("an edge is told to end, and is started again", 16*s, 2, s, does(5*s, func(w *World) { w.Stop(0, true) }), happens{10 * s, func(w *World) error { return w.Start(0) }})
	for _, by := range []time.Duration{5 * s, -5 * s, time.Hour, -time.Hour} {
		add(fmt.Sprintf("a clock steps by %v, and is put right", by), 25*s, 2, 10*s, steps(8*s, 1, by), steps(14*s, 1, -by)).window = 10 * s
	}
	add("one clock after another steps, and none is put right", 25*s, 2, 10*s, steps(6*s, 0, -5*s), steps(8*s, 1, time.Hour), steps(10*s, 2, -time.Hour),
		steps(12*s, 0, time.Hour), steps(14*s, 1, -time.Hour)).window = 10 * s
	skew := add("clocks are two seconds apart", 40*s, 2, 40*s)
	skew.window, skew.apart, skew.share = 10*s, 2*s, 0.75 // within the limit in any 12 s
	return list
}

// TestFaultsOverManyEdges: no fault of a tier, an edge or a clock has anybody refused who stays within the limit, whatever it costs in accuracy, and
// that is bounded, by the exact log of what all edges admitted.
func TestFaultsOverManyEdges(t *testing.T) {
	for i, story := range faultStories() {
		sizes := []int{8}
		if i%3 == 0 { // the bounds are the same for any number
			sizes = append(sizes, 24)
		}
		if raceEnabled { // one goroutine's arithmetic
			sizes = []int{3}
		}
		for _, edges := range sizes {
			t.Run(fmt.Sprintf("%s, %d edges", story.name, edges), func(t *testing.T) {
				t.Parallel()
				story.tell(t, edges)
			})
		}
	}
}

// A faultRequest is one of the traffic; sources below 20 are steady.
type faultRequest struct {
	at     time.Duration
	source int
}

// traffic: steady sources send evenly, each late by less than half of its pace, attackers likewise, one after the other within the time of a block.
func (s *faultStory) traffic(edges int, rng *rand.Rand) (list []faultRequest) {
	even := func(source int, from, step time.Duration) {
		for at := from; at < s.length; at += step {
			list = append(list, faultRequest{at + time.Duration(rng.Int64N(int64(step)/2+1)), source})
		}
	}
	for i := range 20 {
		step := time.Duration(float64(s.window) / (s.share * float64(s.limit)))
		even(i, time.Duration(rng.Int64N(int64(step))), step)
	}
	for i := range s.attackers {
		even(20+i, s.block*time.Duration(i)/time.Duration(s.attackers), time.Duration(float64(time.Second)/s.rate(edges)))
	}
	slices.SortStableFunc(list, func(a, b faultRequest) int { return int(a.at - b.at) })
	return list
}

func (s *faultStory) tell(t *testing.T, edges int) {
	c, err := algorithm.NewSliding("page", s.limit, s.window, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	rule := limiter.Rule{Rule: mitigation.Rule{Counter: c, Timeout: s.block}}
	w, err := New(Config{Edges: edges, Nodes: 2, RTT: time.Millisecond, Counters: 1000, Secret: secret.Of([]byte("faults")),
		Skew: func(edge int) time.Duration { return s.apart * time.Duration(edge) / time.Duration(edges-1) }}, []limiter.Rule{rule}, began)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, uint64(edges)))
	happened, todo := time.Duration(0), s.happens
	log := make([][]time.Duration, 20+s.attackers) // what was admitted of each source in the last window
	most, refused, disturbed := 0, 0, time.Duration(0)
	const perConnection = 20 // requests of a source to one edge, after which it comes to another
	sent, on := make([]int, len(log)), make([]int, len(log))
	for _, q := range s.traffic(edges, rng) {
		for len(todo) > 0 && todo[0].at <= q.at {
			happened = todo[0].at
			w.Run(began.Add(happened))
			if err := todo[0].do(w); err != nil {
				t.Fatal(err)
			}
			todo = todo[1:]
		}
		w.Run(began.Add(q.at))
		if sent[q.source]%perConnection == 0 || !w.Runs(on[q.source]) {
			for on[q.source] = rng.IntN(edges); !w.Runs(on[q.source]); {
				on[q.source] = rng.IntN(edges)
			}
		}
		sent[q.source]++
		edge := on[q.source]
		if w.Edges[edge].Request(&rule, counter.SourceOf(netip.AddrFrom4([4]byte{198, 18, 0, byte(q.source)}), 32, 64)).Refused() {
			if q.source < 20 {
				refused++
			}
			continue
		}
		in := append(log[q.source], q.at)
		for in[0] <= q.at-s.window {
			in = in[1:]
		}
		log[q.source], most = in, max(most, len(in))
		if float64(len(in)) > 1.1*float64(s.limit)+1 {
			disturbed = q.at
		}
	}
	if len(todo) > 0 {
		t.Errorf("it was over before %v", todo[0].at)
	}
	t.Logf("%d wrongly refused, %d at most in a window, normal after %v", refused, most, max(disturbed-happened, 0))
	if refused > 0 {
		t.Errorf("%d requests of steady sources were refused", refused)
	}
	if bound := s.most(edges) * float64(s.limit); float64(most) > bound || most < int(s.limit) {
		t.Errorf("%d of one source in a window, the bound is %v", most, bound)
	}
	if disturbed > happened+s.normal {
		t.Errorf("%v after the last thing that happened there were more than a limit in a window", disturbed-happened)
	}
}
