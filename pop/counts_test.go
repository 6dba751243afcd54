package pop_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/across"
	"sluice/pop/sim"
)

// someCounting are PoPs of two edges each with the same rule. Counts reach an edge of each other PoP after a while, unless they are alone.
type someCounting struct {
	t      *testing.T
	rule   mitigation.Rule
	worlds []*sim.World
	way    func() time.Duration // how long a count is under way
	sent   []sentCount          // the first to arrive first
	counts int
	now    time.Time
}

type sentCount struct {
	at      time.Time
	deliver func()
}

// counting makes them, with clocks that are so far ahead.
func counting(t *testing.T, alone bool, rule mitigation.Rule, ahead ...time.Duration) *someCounting {
	c := &someCounting{t: t, rule: rule, now: began, way: func() time.Duration { return 100 * time.Millisecond }}
	for i, skew := range ahead {
		c.worlds = append(c.worlds, newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: time.Millisecond, Skew: func(int) time.Duration { return skew }, Counted: func(n across.Count) {
			c.counts++
			if alone {
				return
			}
			made := c.worlds[i].Now()
			c.sent = append(c.sent, sentCount{made.Add(c.way()), func() {
				for to, w := range c.worlds {
					if to != i {
						w.Edges[c.counts%2].AddCount(string(rune('a'+i)), n, made.Add(skew))
					}
				}
			}})
			slices.SortStableFunc(c.sent, func(a, b sentCount) int { return a.at.Compare(b.at) })
		}}, rule))
	}
	return c
}

// pass lets time pass in steps that are shorter than a count is under way.
func (c *someCounting) pass(d time.Duration) {
	for until := c.now.Add(d); c.now.Before(until); {
		c.now = c.now.Add(min(10*time.Millisecond, until.Sub(c.now)))
		for _, w := range c.worlds {
			w.Run(c.now)
		}
		for len(c.sent) > 0 && !c.sent[0].at.After(c.now) {
			c.sent[0].deliver()
			c.sent = c.sent[1:]
		}
	}
}

// ask sends so many requests to the edges of a PoP in turn, one every 20 ms, and returns how many were admitted.
func (c *someCounting) ask(pop, n int, s counter.Source) (admitted int) {
	for i := range n {
		c.pass(20 * time.Millisecond)
		if ask(c.worlds[pop].Edges[i%2], c.rule, s) {
			admitted++
		}
	}
	return admitted
}

// A source that moves near its limit has what is left of it, but for a quarter; one that moves and comes back has no more, and what it has left
// grows as its window passes. Alone, PoPs give it a limit each.
func TestASourceThatMovesHasWhatIsLeft(t *testing.T) {
	r := newRule(t, 60, time.Minute, 0, algorithm.Nearest)
	who, good := address(1), address(2)
	alone := counting(t, true, r, 0, 0)
	if home, away := alone.ask(0, 55, who), alone.ask(1, 100, who); home != 55 || away != 60 {
		t.Errorf("alone: %d and %d", home, away)
	}
	c := counting(t, false, r, 0, 0)
	home := c.ask(0, 55, who)
	c.pass(time.Second)
	if all := home + c.ask(1, 100, who) + c.ask(0, 100, who); all < 60 || all > 75 {
		t.Errorf("%d admitted in a window of 60", all)
	}
	if n := c.ask(1, 50, good); n != 50 {
		t.Errorf("another source has %d", n)
	}
	c.pass(70 * time.Second)
	if n := c.ask(1, 60, who); n != 60 {
		t.Errorf("a window later it has %d", n)
	}
}

// However a source moves, and however its hits come, what other PoPs say refuses it nothing as long as it keeps to its limit over all of them
// together: no hit counts twice or too long, whatever the rule's estimate is, and however far the clocks are apart. The log here is exact, and
// knows nothing of counters. By the hits of one PoP alone an estimate may be wrong as it always may.
func TestCountsRefuseNobodyWithinTheLimit(t *testing.T) {
	const limit = 60
	counts, alone := 0, 0
	for seed := range uint64(36) {
		rng := rand.New(rand.NewPCG(seed, 1))
		e := []algorithm.Estimate{algorithm.Nearest, algorithm.Lower}[seed%2]
		window := []time.Duration{2 * time.Second, 12 * time.Second, time.Minute}[seed/2%3]
		timeout := []time.Duration{0, window}[seed/6%2]
		r := newRule(t, limit, window, timeout, e)
		ahead, slowest := make([]time.Duration, 2+seed/12%2), 1500*time.Millisecond
		if seed >= 12 { // as far as a way goes without a clock that one could trust
			slowest = 250 * time.Millisecond
			for i := range ahead {
				ahead[i] = time.Duration(rng.IntN(4001)-2000) * time.Millisecond
			}
		}
		c := counting(t, false, r, ahead...)
		c.way = func() time.Duration { return 10*time.Millisecond + time.Duration(rng.Int64N(int64(slowest)-1e7)) }
		var hits []time.Time // that were admitted
		who, pop, clump := address(uint32(seed)), 0, false
		for range 900 {
			switch rng.IntN(20) {
			case 0:
				clump = !clump
			case 1:
				pop = rng.IntN(len(ahead))
			}
			if gap := window / limit; clump {
				c.pass(time.Duration(rng.Int64N(int64(gap) / 3)))
			} else {
				c.pass(time.Duration(rng.Int64N(2 * int64(gap))))
			}
			hits = slices.DeleteFunc(hits, func(at time.Time) bool { return c.now.Sub(at) >= window })
			if len(hits) == limit {
				continue
			}
			edge := c.worlds[pop].Edges[rng.IntN(2)]
			if !ask(edge, r, who) {
				edge.Machine.Announcer.Peers(false) // it forgets what others have said
				edge.Machine.Announcer.Peers(true)
				if ask(edge, r, who) {
					t.Fatalf("seed %d: refused by what others have said, with %d hits in the window", seed, len(hits))
				}
				alone++
				continue
			}
			hits = append(hits, c.now)
		}
		if c.counts == 0 {
			t.Errorf("seed %d: nothing was sent", seed)
		}
		counts += c.counts
	}
	t.Logf("%d counts, none of which refused anything; %d refused by the count of one PoP", counts, alone)
}

// What a source costs: while it is near its limit a count with each group of sub-windows and each quarter of the limit, and below that nothing. One
// that goes to and fro between more and less than two thirds of it costs no more.
func TestCostOfCounts(t *testing.T) {
	r := newRule(t, 600, time.Minute, time.Minute, algorithm.Nearest)
	for _, test := range []struct{ perWindow, least, most int }{{390, 0, 0}, {400, 9, 18}, {590, 9, 21}} {
		c := counting(t, false, r, 0, 0)
		for range 4 * test.perWindow {
			c.pass(time.Minute / time.Duration(test.perWindow))
			ask(c.worlds[0].Edges[0], r, address(1))
		}
		if c.counts < test.least || c.counts > test.most {
			t.Errorf("%d requests a window: %d counts in four windows, want %d to %d", test.perWindow, c.counts, test.least, test.most)
		}
		t.Logf("%d requests a window: %d counts in four windows, %d commands at the other PoP", test.perWindow, c.counts, c.worlds[1].Commands)
	}
}

// A count is two commands at the other PoP, which the requests here pay for: all that a request causes in both is within what it may cause in one.
func TestCountsStayWithinTheBudget(t *testing.T) {
	for _, limit := range []uint32{2, 3, 5, 12, 30} {
		r := newRule(t, limit, 10*time.Second, 0, algorithm.Nearest)
		c := counting(t, false, r, 0, 0)
		rng := rand.New(rand.NewPCG(uint64(limit), 1))
		requests := 0
		for range 500 {
			c.pass(10*time.Second/time.Duration(limit) - time.Duration(rng.IntN(2))*time.Millisecond)
			for range 2 {
				ask(c.worlds[0].Edges[rng.IntN(2)], r, address(uint32(rng.IntN(2))))
				requests++
			}
		}
		here, there := float64(c.worlds[0].Commands)/float64(requests), float64(c.worlds[1].Commands)/float64(requests)
		if here+there > 3 || there > 0.8 || c.counts == 0 {
			t.Errorf("limit %d: %.2f commands for a request here, %.2f there, by %d counts", limit, here, there, c.counts)
		}
	}
}

// Peers that lie refuse no first request, however many there are, and fill no more than there is room for. Where a limit is lowered, what they said
// under the higher one counts less than the limit as well; under another window none of it counts.
func TestPeersThatLie(t *testing.T) {
	r := newRule(t, 60, time.Minute, time.Minute, algorithm.Nearest)
	r.Name = "login"
	w := newWorld(t, sim.Config{Edges: 1, Nodes: 1, RTT: time.Millisecond}, r)
	e := w.Edges[0]
	lie := func(from string, n uint32, began time.Time) across.Outcome {
		return e.AddCount(from, across.Count{Rule: "login", Counts: r.Counter.Name, Source: address(n), Window: time.Minute, Began: began, Sub: time.Second,
			Hits: slices.Repeat([]uint32{1<<32 - 1}, 13)}, w.Now())
	}
	for n, began := range []time.Time{w.Now(), {}, time.Unix(1<<40, 0), time.Unix(-1<<40, 0), time.Unix(0, 1<<63-1), w.Now().Add(-30 * time.Second)} {
		for _, from := range []string{"fra1", "ams1", "lhr1"} {
			lie(from, uint32(n), began)
		}
		if !ask(e, r, address(uint32(n))) {
			t.Errorf("from %v on: they refuse the first request", began)
		}
	}
	lie("fra1", 100, w.Now())
	lower := r
	lower.Counter = r.Counter.With(10, algorithm.Nearest)
	e.Machine.SetRules([]mitigation.Rule{lower})
	if !ask(e, lower, address(100)) || ask(e, lower, address(100)) {
		t.Error("under a lower limit there is one request, not more and not less")
	}
	longer := newRule(t, 60, 2*time.Minute, time.Minute, algorithm.Nearest)
	e.Machine.SetRules([]mitigation.Rule{longer})
	lie("fra1", 101, w.Now())
	for range 60 {
		if !ask(e, longer, address(100)) || !ask(e, longer, address(101)) {
			t.Fatal("it counts in another window")
		}
	}
	e.Machine.SetRules([]mitigation.Rule{r})
	last := across.Counted
	for n := range uint32(100_000) {
		last = lie("fra1", 1000+n, w.Now())
	}
	if n := e.Counters.OtherPoPs(); last != across.NoRoom || n > counter.MaxOtherPoPs {
		t.Errorf("%v; there are counts of %d", last, n)
	}
}

// What a peer says refuses no source's first request, whatever it says, and counts where its rule is here.
func TestAddCount(t *testing.T) {
	r := newRule(t, 60, time.Minute, time.Minute, algorithm.Nearest)
	r.Name, r.V4, r.V6 = "login", 32, 64
	shadow := r
	shadow.Shadow = true
	w := newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: time.Millisecond}, r)
	n := uint32(0)
	for _, test := range []struct {
		what   string
		rule   mitigation.Rule
		change func(*across.Count)
		want   across.Outcome
	}{
		{"as here", r, func(*across.Count) {}, across.Counted},
		{"of a clock that is an hour ahead", r, func(c *across.Count) { c.Began = c.Began.Add(time.Hour) }, across.Counted},
		{"another rule", r, func(c *across.Count) { c.Rule = "search" }, across.NoRule},
		{"another key", r, func(c *across.Count) { c.Counts = "another" }, across.NoRule},
		{"another window", r, func(c *across.Count) { c.Window *= 2 }, across.NoRule},
		{"everybody", r, func(c *across.Count) { c.Source = prefix(t, "0.0.0.0/0") }, across.OtherWidth},
		{"a shadow", shadow, func(*across.Count) {}, across.NoRule},
	} {
		n++
		w.Edges[0].Machine.SetRules([]mitigation.Rule{test.rule})
		c := across.Count{Rule: "login", Counts: r.Counter.Name, Source: address(n), Window: time.Minute, Began: w.Now(), Sub: 5 * time.Second,
			Hits: []uint32{1 << 31, 1 << 31}}
		test.change(&c)
		if got := w.Edges[0].AddCount("fra1", c, w.Now()); got != test.want {
			t.Errorf("%s: %v, want %v", test.what, got, test.want)
		}
		if !ask(w.Edges[0], r, address(n)) {
			t.Errorf("%s: a peer's word refuses the first request", test.what)
		}
	}
	w.Edges[0].Machine.SetRules([]mitigation.Rule{r})
	w.Run(w.Now().Add(time.Second))
	if ask(w.Edges[1], r, address(1)) {
		t.Error("it did not come to the other edge")
	}
	for _, e := range w.Edges {
		e.Machine.Announcer.Peers(false)
	}
	if got := w.Edges[0].AddCount("fra1", across.Count{Rule: "login", Counts: r.Counter.Name, Source: address(99), Window: time.Minute, Sub: time.Second}, w.Now()); got != across.NoRule ||
		w.Edges[0].Counters.OtherPoPs()+w.Edges[1].Counters.OtherPoPs() > 0 {
		t.Errorf("off: %v, %d remain", got, w.Edges[0].Counters.OtherPoPs()+w.Edges[1].Counters.OtherPoPs())
	}
}

func prefix(t *testing.T, text string) counter.Source {
	s, err := counter.ParseSource(text)
	must(t, err)
	return s
}
