package pop_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/poptest"
	"sluice/pop/secret"
	"sluice/pop/sim"
	"sluice/pop/wire"
)

// manyHistories is for a search, and for make properties: go test ./pop -run Histories -histories 20.
var manyHistories = flag.Int("histories", 1, "how many times as many random PoPs to hold each property against")

// histories is how many random PoPs a property is held against, and the seeds that make them. The race detector has nothing to find in
// virtual time, where one goroutine does everything: with it there are an eighth of them.
func histories(n int) uint64 {
	if raceEnabled {
		n = (n + 7) / 8
	}
	return uint64(n * *manyHistories)
}

// history is a PoP whose shape, traffic and faults follow from a seed, and an exact log of one source in it.
type history struct {
	t     testing.TB
	seed  uint64
	rng   *rand.Rand
	w     *sim.World
	rule  limiter.Rule
	rtt   time.Duration
	skew  time.Duration
	ahead []time.Duration // by edge
	nodes int
	chunk uint32 // hits of a request

	repairs []repair
	begin   time.Time

	log     exactHits
	carried string            // a lane that was full: what it was
	numbers map[string]uint64 // every number that a node ever had, as it last was
	what    []string
}

// repair is what comes right again, and when.
type repair struct {
	at time.Time
	do func()
}

// shape is what may be drawn.
type shape struct {
	limits   []uint32
	windows  []time.Duration
	edges    []int
	estimate algorithm.Estimate
	timeouts bool // else the rule throttles
	skews    bool
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func newHistory(t testing.TB, seed uint64, s shape) *history {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	h := &history{t: t, seed: seed, rng: rng, numbers: make(map[string]uint64), rtt: time.Duration(1+rng.IntN(10)) * time.Millisecond, nodes: 1 + rng.IntN(4)}
	limit, window, edges := pick(rng, s.limits...), pick(rng, s.windows...), pick(rng, s.edges...)
	switch { // a day of two edges takes seconds, and so does a minute of 64
	case window > time.Hour:
		edges = 1
	case window > time.Minute:
		edges = min(edges, 3)
	case window > 10*time.Second:
		edges = min(edges, 8)
	}
	if s.skews {
		h.skew = time.Duration(rng.Float64() * float64(min(2*time.Second, window/10)))
	}
	r, err := algorithm.NewSliding("test", limit, window, pick(rng, 1, 2, 4, 8, 12), s.estimate)
	must(t, err)
	h.rule = limiter.Rule{Rule: mitigation.Rule{Counter: r}}
	if s.timeouts && rng.IntN(2) == 0 {
		h.rule.Timeout = min(window, time.Hour)
	}
	h.chunk = max(limit/uint32(1+rng.IntN(40)), 1)
	h.log.window = window + h.skew
	h.ahead = make([]time.Duration, edges)
	for i := range h.ahead {
		h.ahead[i] = time.Duration(rng.Float64() * float64(h.skew))
	}
	h.w, err = sim.New(sim.Config{
		Edges: edges, Nodes: h.nodes, RTT: h.rtt, Counters: 100, Secret: secret.Of([]byte("test")),
		Skew: func(edge int) time.Duration { return h.ahead[edge] }, Carry: h.carry,
	}, []limiter.Rule{h.rule}, began.Add(time.Duration(rng.Int64N(int64(24*time.Hour)))))
	must(t, err)
	h.begin = h.w.Now()
	return h
}

func (h *history) String() string {
	r := h.rule.Counter
	return fmt.Sprintf("seed %d: limit %d in %v, %d sub-windows, %v, timeout %v, %d edges, %d nodes, round trip %v, skew %v, %d hits at once; %s",
		h.seed, r.Limit, r.Window, r.SubWindows, r.Estimate, h.rule.Timeout, len(h.w.Edges), h.nodes, h.rtt, h.skew, h.chunk, strings.Join(h.what, ", "))
}

// carry carries out what a node is sent, and looks at the lanes of every counter that it has then.
func (h *history) carry(c wire.Command, node *poptest.Node, now time.Time) wire.Result {
	r := node.Do(now, c)
	if c.Key[0] != 'c' || r.Status != wire.Done || c.Op != wire.Incr && c.Op != wire.Add {
		return r
	}
	number := r.Number
	if c.Op == wire.Add {
		number, _ = strconv.ParseUint(string(c.Value), 10, 64)
	}
	h.numbers[fmt.Sprint(c.Node, c.Key)] = number
	top := uint64(0x8000800080008000)
	if h.rule.Counter.Wide() {
		top = 0x8000000080000000
	}
	if number&top != 0 {
		h.carried = fmt.Sprintf("%v makes it %x", c.Op, number)
	}
	return r
}

// hit sends hits of the source to an edge at one instant, all but one of them together, and says how many are admitted.
func (h *history) hit(edge int, hits uint32) (admitted uint32) {
	e, now := h.w.Edges[edge], h.w.Now().Add(h.ahead[edge])
	if hits > 1 {
		ask := [1]counter.Reservation{{Rule: h.rule.Counter, Source: address(1), Hits: hits - 1}}
		if !e.Blocks.Until(counter.Key{Rule: h.rule.Counter.ID, Source: address(1)}, now).IsZero() || !e.Counters.Reserve(ask[:], now) {
			return 0
		}
		admitted = hits - 1
	}
	if !e.Request(&h.rule, address(1)).Refused() {
		admitted++
	}
	if h.rng.IntN(4) == 0 { // somebody looks, while the report may be under way
		e.Machine.Exchanges.Fetch(counter.Counter{Rule: h.rule.Counter, Source: address(1)})
	}
	return admitted
}

// gap is how long the source waits: not at all, much less than a sub-window, or about one, or a window.
func (h *history) gap() time.Duration {
	window := float64(h.rule.Counter.Window)
	switch h.rng.IntN(8) {
	case 0, 1:
		return 0
	case 2, 3:
		return time.Duration(h.rng.Float64() * float64(50*time.Millisecond))
	case 4, 5:
		return time.Duration(h.rng.Float64() * window / 12)
	case 6:
		return time.Duration(h.rng.Float64() * window / 2)
	}
	return time.Duration(math.Nextafter(window+float64(h.skew), math.Inf(1)) * h.rng.Float64() * 1.2)
}

// run lets time pass, in which things come right again.
func (h *history) run(d time.Duration) {
	until := h.w.Now().Add(d)
	for len(h.repairs) > 0 && !h.repairs[0].at.After(until) {
		r := h.repairs[0]
		h.repairs = h.repairs[1:]
		h.w.Run(r.at)
		r.do()
	}
	h.w.Run(until)
}

// later plans a repair.
func (h *history) later(do func()) (after time.Duration) {
	after = time.Duration(h.rng.Int64N(int64(8 * time.Second)))
	if h.rng.IntN(4) == 0 {
		after /= 100
	}
	at := h.w.Now().Add(after)
	i := 0
	for i < len(h.repairs) && h.repairs[i].at.Before(at) {
		i++
	}
	h.repairs = slices.Insert(h.repairs, i, repair{at, do})
	return after
}

// enough reports whether so much time has passed that more of it would take too long.
func (h *history) enough() bool {
	lived := h.w.Now().Sub(h.begin)
	return lived > 5*h.rule.Counter.Window/2 && lived.Seconds()*float64(len(h.w.Edges)) > 200
}

// fault lets something go wrong that comes right again within seconds. With clocks, they may step, and it says by how
// much they did.
func (h *history) fault(clocks bool) (stepped time.Duration) {
	w, node, edge := h.w, h.rng.IntN(h.nodes), h.rng.IntN(len(h.w.Edges))
	kinds := 5
	if clocks {
		kinds = 7
	}
	did := ""
	switch h.rng.IntN(kinds) {
	case 0:
		w.Kill(node)
		d := h.later(func() {
			must(h.t, w.Restart(node))
		})
		did = fmt.Sprintf("node %d dead for %v", node, d)
	case 1, 2:
		w.Hang(node)
		did = fmt.Sprintf("node %d hung for %v", node, h.later(func() { w.Resume(node) }))
	case 3:
		d := time.Duration(h.rng.Int64N(int64(10 * time.Second)))
		w.Pause(edge, w.Now().Add(d))
		did = fmt.Sprintf("edge %d paused for %v", edge, d)
	case 4:
		w.Stop(edge, h.rng.IntN(2) == 0)
		must(h.t, w.Start(edge))
		did = fmt.Sprintf("edge %d restarts", edge)
	case 5:
		by := pick(h.rng, 5*time.Second, -5*time.Second, -3*time.Second, time.Hour, -time.Hour)
		w.StepClock(edge, by)
		h.run(time.Duration(h.rng.Int64N(int64(5 * time.Second))))
		w.StepClock(edge, -by) // who was wrong is put right
		did, stepped = fmt.Sprintf("clock %d by %v and back", edge, by), -by.Abs()
	case 6:
		by := pick(h.rng, 5*time.Second, -5*time.Second, -3*time.Second, time.Hour, -time.Hour)
		for i := range w.Edges {
			w.StepClock(i, by)
		}
		did, stepped = fmt.Sprintf("all clocks by %v", by), by
	}
	h.what = append(h.what, fmt.Sprintf("%v %s", w.Now().Sub(h.begin), did))
	return stepped
}

// again is for how long after a step back the tier has numbers of sub-windows that clocks come to once more: until those are over, or
// memcached forgets them. For so long and a window, a source may be held to hits that are older than the window.
func (h *history) again(step time.Duration) time.Duration {
	return min(max(-step, 0), h.rule.Counter.Lifetime()+4*time.Second)
}

// exactHits is an exact log: when how many hits came.
type exactHits struct {
	window time.Duration
	at     []time.Time
	hits   []uint64
	sum    uint64 // of all
}

// within is how many came in the window that ends at now.
func (l *exactHits) within(now time.Time) uint64 {
	for len(l.at) > 0 && now.Sub(l.at[0]) > l.window {
		l.sum -= l.hits[0]
		l.at, l.hits = l.at[1:], l.hits[1:]
	}
	return l.sum
}

func (l *exactHits) add(now time.Time, hits uint64) {
	l.at, l.hits, l.sum = append(l.at, now), append(l.hits, hits), l.sum+hits
}

// allWindows are long ones now and then: a day takes a second.
func allWindows(seed uint64) []time.Duration {
	switch seed % 80 {
	case 7:
		return []time.Duration{24 * time.Hour}
	case 47:
		return []time.Duration{time.Hour}
	}
	return []time.Duration{time.Second, 2 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
}

var allLimits = []uint32{1, 2, 3, 5, 10, 30, 60, 100, 500, 1000, 5000, 10_000, 16_000, 16_001, 17_000, 100_000, 1_000_000}

// TestHistoriesLowerRefusesNobody: a source that keeps at or under its limit is refused by nobody, whatever happens to nodes and
// edges; nor, from a window after it on, when clocks have stepped.
func TestHistoriesLowerRefusesNobody(t *testing.T) {
	t.Parallel()
	worst, unsettled, refused := 0.0, 0, 0
	for seed := range histories(24) {
		h := newHistory(t, seed, shape{
			limits: allLimits, windows: allWindows(seed),
			edges: []int{1, 2, 3, 5, 8, 16, 64}, estimate: algorithm.Lower, timeouts: true, skews: seed%2 == 0,
		})
		window := h.rule.Counter.Window
		clocks := seed%3 == 0
		var settled time.Time // from then on clocks have not stepped for a window
		sentUnsettled, refusedUnsettled := 0, 0
		for i := 0; i < 150 && !h.enough(); i++ {
			if h.rng.IntN(12) == 0 && seed%5 != 0 {
				if by := h.fault(clocks); by != 0 {
					settled = later(settled, h.w.Now().Add(window+h.skew+h.again(by)))
				}
			}
			h.run(h.gap())
			now, n := h.w.Now(), h.chunk
			if h.rng.IntN(4) == 0 {
				n = uint32(min(h.rule.Counter.Limit, 1+h.rng.Uint32N(h.rule.Counter.Limit)))
			}
			if room := uint64(h.rule.Counter.Limit) - h.log.within(now); uint64(n) > room {
				if n = uint32(room); n == 0 {
					continue
				}
			}
			h.log.add(now, uint64(n))
			ok := h.hit(h.rng.IntN(len(h.w.Edges)), n) == n
			switch {
			case now.Before(settled):
				sentUnsettled++
				if !ok {
					refusedUnsettled++
					settled = later(settled, now.Add(window+h.rule.Timeout+h.rule.Counter.SubWindow()))
				}
			case !ok:
				t.Fatalf("refused at %v, %d of %d in a window of %v\n%v", now.Sub(h.begin), h.log.within(now), h.rule.Counter.Limit, h.log.window, h)
			}
			if h.carried != "" {
				t.Fatalf("a lane is full: %s\n%v", h.carried, h)
			}
		}
		unsettled, refused = unsettled+sentUnsettled, refused+refusedUnsettled
		if sentUnsettled > 10 {
			worst = max(worst, float64(refusedUnsettled)/float64(sentUnsettled))
		}
	}
	t.Logf("in the window after a step of a clock, %d of %d requests within the limit were refused; at worst %.0f %%", refused, unsettled, 100*worst)
}

// later is the later of two instants.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// most is the most hits in any stretch of the given length, its beginning included or not.
func (l *exactHits) most(within time.Duration, beginning bool) (peak uint64) {
	first, sum := 0, uint64(0)
	for i, at := range l.at {
		sum += l.hits[i]
		for ; ; first++ {
			if age := at.Sub(l.at[first]); age < within || beginning && age == within {
				break
			}
			sum -= l.hits[first]
		}
		peak = max(peak, sum)
	}
	return peak
}

// TestHistoriesNoWindowExceedsTheBound holds Rule.Bound against rules and PoPs of all shapes, while nodes run. With -v it says as well how
// often a plainer bound is passed, that knows of delay and not of the sub-window that a window's beginning cuts (docs/design/bound.md).
func TestHistoriesNoWindowExceedsTheBound(t *testing.T) {
	t.Parallel()
	const n = 25
	over, withCut, alone, worst := 0, 0, 0, 0.0
	bySubWindows := make(map[int]int)
	for seed := range histories(n) {
		h := newHistory(t, seed, shape{
			limits: allLimits, windows: allWindows(seed + 1), edges: []int{1, 2, 3, 5, 8, 16, 64},
			estimate: pick(rand.New(rand.NewPCG(seed, 1)), algorithm.Nearest, algorithm.Lower, algorithm.Unrounded), timeouts: true, skews: seed%4 == 0,
		})
		r, edges := h.rule.Counter, len(h.w.Edges)
		var sent, admitted exactHits
		for i := 0; i < 300 && !h.enough(); i++ {
			h.run(h.gap() / 4)
			for range pick(h.rng, 1, 1, 1, edges, 40) {
				edge := h.rng.IntN(edges)
				sent.add(h.w.Now(), uint64(h.chunk))
				admitted.add(h.w.Now(), uint64(h.hit(edge, h.chunk)))
				if h.carried != "" {
					t.Fatalf("a lane is full: %s\n%v", h.carried, h)
				}
			}
		}
		received := sent.most(sim.Propagation(h.rtt, edges)+h.skew, true)
		cut := sent.most(r.SubWindow()+h.skew, true)
		bound := sim.Bound(h.rule.Rule, edges, uint32(received), uint32(cut))
		got := admitted.most(r.Window, false)
		if got > bound {
			t.Errorf("%d admitted in a window, the bound is %d\n%v", got, bound, h)
		}
		soon := sent.most(h.rtt+30*time.Millisecond+h.skew, true)
		if plain := uint64(r.Limit) + uint64(edges-1)*min(uint64(r.Limit), soon); got > plain {
			over++
			bySubWindows[r.SubWindows]++
			worst = max(worst, float64(got-plain)/float64(r.Limit))
			if edges == 1 {
				alone++
			}
			if got > sim.Bound(h.rule.Rule, edges, uint32(soon), uint32(cut)) {
				withCut++
			}
		}
	}
	t.Logf("%d of %d PoPs admitted more than N + (E-1) * min(N, what comes in a round trip and 30 ms), the worst by %.2f limits; %d of them are one edge; by sub-windows they are %v; %d of them admitted more than that and what comes in the cut sub-window",
		over, histories(n), worst, alone, bySubWindows, withCut)
}

// TestHistoriesHitsReachTheTier: while nodes run, they have in the end exactly the hits that the edges have admitted, but for those that
// edges say they could not report.
func TestHistoriesHitsReachTheTier(t *testing.T) {
	t.Parallel()
	for seed := range histories(16) {
		h := newHistory(t, seed, shape{
			limits: allLimits, windows: allWindows(seed + 1), edges: []int{1, 2, 3, 5, 8, 16, 64}, estimate: algorithm.Nearest, timeouts: true,
		})
		admitted := uint64(0)
		for i := 0; i < 200 && !h.enough(); i++ {
			h.run(h.gap())
			for range pick(h.rng, 1, 1, 3, 20) {
				admitted += uint64(h.hit(h.rng.IntN(len(h.w.Edges)), h.chunk))
			}
		}
		h.run(time.Second)
		for rounds := 0; ; rounds++ { // a lane takes so many hits in each round trip
			waiting := uint64(0)
			for _, e := range h.w.Edges {
				e.Flush()
				waiting += e.Counters.Stats().Unreported
			}
			if waiting == 0 {
				break
			}
			if rounds > 1000 {
				t.Fatalf("%d hits are not reported\n%v", waiting, h)
			}
			h.run(h.rtt)
		}
		var lost uint64
		for _, e := range h.w.Edges {
			_, l := e.Machine.Unreported()
			lost += l
		}
		var have uint64
		for _, number := range h.numbers {
			have += pop.Sum(h.rule.Rule, number)
		}
		if have+lost != admitted {
			t.Fatalf("%d hits admitted, the nodes have %d, and %d were lost\n%v", admitted, have, lost, h)
		}
	}
}

// TestSteadySourcesAreServed: a source that sends at 95 % of its limit, evenly and through all edges in turn, is never refused, whatever
// its limit, though a node dies in the middle and returns.
func TestSteadySourcesAreServed(t *testing.T) {
	t.Parallel()
	f := func(limit uint32, window time.Duration, perSecond float64, atOnce uint32, edges, nodes int, dies bool) {
		t.Helper()
		r := newRule(t, limit, window, window, algorithm.Lower)
		w := newWorld(t, sim.Config{Edges: edges, Nodes: nodes, RTT: time.Millisecond, Counters: 100}, r)
		h := &history{t: t, w: w, rng: rand.New(rand.NewPCG(1, 2)), rule: limiter.Rule{Rule: r}, ahead: make([]time.Duration, edges)}
		refused, n := uint32(0), 0
		death, back := began.Add(2*window+window/7), began.Add(2*window+window/2)
		for end := began.Add(5 * window); w.Now().Before(end); n++ {
			at := began.Add(time.Duration(float64(n) * float64(atOnce) / perSecond * float64(time.Second)))
			if dies && !at.Before(death) && w.Now().Before(death) {
				w.Run(death)
				for i := range nodes {
					if i%2 == 0 {
						w.Kill(i)
					}
				}
			}
			if dies && !at.Before(back) && w.Now().Before(back) {
				w.Run(back)
				for i := range nodes {
					if err := w.Restart(i); i%2 == 0 && err != nil {
						t.Fatal(err)
					}
				}
			}
			w.Run(at)
			refused += atOnce - h.hit(n%edges, atOnce)
		}
		if refused > 0 {
			t.Errorf("limit %d in %v at %.1f/s, %d edges, %d nodes, one dies: %v: %d of %d refused", limit, window, perSecond, edges, nodes, dies, refused, n*int(atOnce))
		}
	}
	for _, limit := range []uint32{5, 60, 1000, 5000, 10_000, 16_000, 17_000, 1_000_000} {
		for _, edges := range []int{1, 8} {
			f(limit, time.Minute, 0.95*float64(limit)/60, max(limit/500, 1), edges, 1+edges/8, true)
		}
	}
	f(5000, 10*time.Second, 450, 1, 1, 1, false)
	f(5000, 10*time.Second, 450, 1, 1, 1, true)
	f(5000, 10*time.Second, 450, 1, 8, 2, true)
}
