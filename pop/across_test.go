package pop_test

import (
	"net/netip"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/across"
	"sluice/pop/sim"
)

// twoPoPs are two worlds of one time. What the first decides goes to the edge to of the second after a while, and what
// the second decides to the first; received counts both.
func twoPoPs(t *testing.T, home, away mitigation.Rule) (a, b *sim.World, received *[2]int) {
	received = new([2]int)
	var worlds [2]*sim.World
	for i, r := range [2]mitigation.Rule{home, away} {
		worlds[i] = newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond, Decided: func(b across.Block) {
			received[i]++
			now := worlds[i].Now()
			worlds[1-i].Run(now)
			worlds[1-i].Edges[received[i]%3].AddPeerBlock("other", b, now)
		}}, r)
	}
	return worlds[0], worlds[1], received
}

func by(w *sim.World, e *sim.Edge, r mitigation.Rule, s counter.Source) string {
	bit, in := e.Blocks.Get(mitigation.Key{Rule: r.Counter.ID, Source: s}, w.Now())
	if !in {
		return ""
	}
	return bit.By.String()
}

// A block is sent once, is in force on every edge of the other PoP, and comes neither back nor twice.
func TestBlockReachesAnotherPoP(t *testing.T) {
	r := newRule(t, 5, time.Minute, 30*time.Second, algorithm.Nearest)
	a, b, received := twoPoPs(t, r, r)
	who, good := address(1), address(2)
	for i := range 12 { // every edge has its own verdict
		ask(a.Edges[i%3], r, who)
	}
	ask(a.Edges[0], r, good)
	a.Run(began.Add(100 * time.Millisecond))
	b.Run(began.Add(200 * time.Millisecond))
	for i, e := range b.Edges {
		if got := by(b, e, r, who); got != "peer" {
			t.Errorf("edge %d: by %q", i, got)
		}
		if commands := b.Commands; ask(e, r, who) || !ask(e, r, good) || commands > b.Commands {
			t.Errorf("edge %d: who is blocked is admitted, or who is not is refused", i)
		}
	}
	a.Run(began.Add(10 * time.Second))
	b.Run(began.Add(10 * time.Second))
	if *received != [2]int{1, 0} {
		t.Errorf("%d blocks were sent, and %d on the way back", received[0], received[1])
	}
	if got := by(a, a.Edges[0], r, who); got != "edge" && got != "pop" {
		t.Errorf("at home by %q", got)
	}

	// Its end comes there as at home, and the source is counted again.
	b.Run(began.Add(31 * time.Second))
	if !ask(b.Edges[1], r, who) {
		t.Error("it does not end")
	}
}

// Not every verdict is another PoP's business, and not everything that it says is done.
func TestImpose(t *testing.T) {
	r := newRule(t, 100, time.Minute, 30*time.Second, algorithm.Nearest)
	r.Name = "login"
	r.Repeat = mitigation.Repeat{Timeouts: []time.Duration{time.Minute}, Within: time.Hour}
	r.V4, r.V6 = 32, 64
	throttle, shadow, narrow := r, r, r
	narrow.V6 = -1
	throttle.Timeout, shadow.Shadow = 0, true
	w := newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: time.Millisecond}, r)
	e, now := w.Edges[0], began
	short := newRule(t, 10, time.Second, 30*time.Second, algorithm.Nearest)
	anything := mitigation.RuleVersion{Timeout: time.Hour, Longest: time.Hour}
	e.Blocks.SetVersions(map[uint32]mitigation.RuleVersion{r.Counter.ID: anything, short.Counter.ID: anything}) // only the machine's rules change
	n := uint32(0)
	for _, test := range []struct {
		what   string
		rule   mitigation.Rule
		change func(*across.Block)
		want   across.Outcome
		lasts  time.Duration
	}{
		{"as here", r, func(*across.Block) {}, across.Imposed, 10 * time.Second},
		{"a looser limit there", r, func(b *across.Block) { b.Limit = 1000 }, across.Imposed, 10 * time.Second},
		{"longer than anything here", r, func(b *across.Block) { b.End = b.End.Add(time.Hour) }, across.Imposed, 40 * time.Second},
		{"longer, and sent too late", r, func(b *across.Block) { b.Start, b.End = b.Start.Add(-40*time.Second), b.End.Add(time.Hour) }, across.Known, 0},
		{"a clock that is an hour ahead", r, func(b *across.Block) { b.Start, b.End = b.Start.Add(time.Hour), b.End.Add(time.Hour) }, across.Imposed, time.Minute},
		{"it is over", r, func(b *across.Block) { b.End = b.Start }, across.Known, 0},
		{"another rule", r, func(b *across.Block) { b.Rule = "search" }, across.NoRule, 0},
		{"another key", r, func(b *across.Block) { b.Counts = "test by another key" }, across.NoRule, 0},
		{"a stricter limit there", r, func(b *across.Block) { b.Limit = 99 }, across.Looser, 0},
		{"the same in twice the time", r, func(b *across.Block) { b.Window *= 2 }, across.Looser, 0},
		{"less in a shorter time", r, func(b *across.Block) { b.Limit, b.Window = 60, 10*time.Second }, across.Looser, 0},
		{"a wider source", r, func(b *across.Block) { b.Source = counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 24, 64) }, across.OtherWidth, 0},
		{"everybody", r, func(b *across.Block) { b.Source = counter.SourceOf(netip.MustParseAddr("::"), 0, 0) }, across.OtherWidth, 0},
		{"of a family that is not counted", narrow, func(b *across.Block) { b.Source = counter.SourceOf(netip.MustParseAddr("2001:db8::"), 0, 64) }, across.OtherWidth, 0},
		{"an address of IPv6", r, func(b *across.Block) { b.Source = counter.SourceOf(netip.MustParseAddr("2001:db8::"), 0, 64) }, across.Imposed, 10 * time.Second},
		{"no address", r, func(b *across.Block) { b.Source = counter.SourceOfDigest([16]byte{1}) }, across.OtherWidth, 0},
		{"a rule that throttles", throttle, func(*across.Block) {}, across.NoRule, 0},
		{"a shadow here", shadow, func(*across.Block) {}, across.NoRule, 0},
	} {
		n++
		e.Machine.SetRules([]mitigation.Rule{test.rule})
		b := across.Block{Rule: "login", Counts: "test", Source: address(n), Start: now.Add(-20 * time.Second), End: now.Add(10 * time.Second), Limit: 100, Window: time.Minute}
		test.change(&b)
		got := e.AddPeerBlock("fra1", b, now)
		bit, in := e.Blocks.Get(mitigation.Key{Rule: r.Counter.ID, Source: b.Source}, now)
		if got != test.want || in != (test.lasts > 0) || in && (bit.By != mitigation.ByPeer || bit.End.Sub(now) != test.lasts || bit.Reason != "PoP fra1") {
			t.Errorf("%s: %v, %v, for %v, want %v for %v", test.what, got, bit.By, bit.End.Sub(now), test.want, test.lasts)
		}
	}
	e.Machine.SetRules([]mitigation.Rule{r})
	b := across.Block{Rule: "login", Counts: "test", Source: address(1), Start: now, End: now.Add(10 * time.Second), Limit: 100, Window: time.Minute}
	if got := e.AddPeerBlock("fra1", b, now); got != across.Known {
		t.Errorf("once more: %v", got)
	}
	// Of several windows of a rule, whose counters have one name, it is for the one that the source went over.
	short.Name, short.ExtraLimit = "login", true
	for i, rules := range [][]mitigation.Rule{{r, short}, {short, r}} {
		e.Machine.SetRules(rules)
		if got := e.AddPeerBlock("fra1", across.Block{Rule: "login", Counts: "test", Source: address(uint32(100 + i)), Start: now, End: now.Add(10 * time.Second), Limit: 10, Window: time.Second}, now); got != across.Imposed || by(w, e, short, address(uint32(100+i))) != "peer" {
			t.Errorf("of two windows: %v", got)
		}
	}
	e.Machine.SetRules([]mitigation.Rule{r})
	// What was decided before an operator lifted it is void.
	e.Blocks.Lift(mitigation.Key{Rule: r.Counter.ID, Source: address(1)}, now)
	if got := e.AddPeerBlock("fra1", b, now.Add(time.Second)); got != across.Known || by(w, e, r, address(1)) != "" {
		t.Errorf("from before a lift: %v", got)
	}
}

// A block that is longer there ends on all edges here at one instant, however late it arrived.
func TestLateBlocks(t *testing.T) {
	r := newRule(t, 5, 10*time.Second, 30*time.Second, algorithm.Nearest)
	for _, late := range []time.Duration{0, 5 * time.Second, 20 * time.Second} {
		w := newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond}, r)
		w.Run(began.Add(time.Second))
		start := w.Now().Add(-late)
		w.Edges[0].AddPeerBlock("x", across.Block{Rule: r.Counter.Name, Counts: r.Counter.Name, Source: address(1), Start: start, End: start.Add(10 * time.Minute), Limit: 5, Window: 10 * time.Second}, w.Now())
		for _, test := range []struct {
			at   time.Duration
			want string
		}{{29 * time.Second, "peer"}, {30 * time.Second, ""}} {
			w.Run(start.Add(test.at))
			for i, e := range w.Edges {
				if got := by(w, e, r, address(1)); got != test.want {
					t.Errorf("sent %v late, after %v: edge %d has it by %q, want %q", late, test.at, i, got, test.want)
				}
			}
		}
	}
}

// Blocks of shadows, and of sources that another PoP would not know, are not sent.
func TestBlocksThatAreNotSent(t *testing.T) {
	digest := counter.SourceOfDigest([16]byte{1})
	for _, test := range []struct {
		what   string
		source counter.Source
		change func(*mitigation.Rule)
		want   int
	}{
		{"an address", address(1), func(*mitigation.Rule) {}, 1},
		{"a digest", digest, func(*mitigation.Rule) {}, 0},
		{"a shadow", address(1), func(r *mitigation.Rule) { r.Shadow = true }, 0},
	} {
		r := newRule(t, 5, time.Minute, 30*time.Second, algorithm.Nearest)
		received := 0
		w := newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: time.Millisecond, Decided: func(across.Block) { received++ }}, r)
		test.change(&r)
		for _, e := range w.Edges {
			e.Machine.SetRules([]mitigation.Rule{r})
		}
		for range 7 {
			ask(w.Edges[0], r, test.source)
		}
		if w.Run(began.Add(time.Second)); received != test.want {
			t.Errorf("%s: received %d", test.what, received)
		}
	}
}

// Switched off, other PoPs' blocks are over, on each edge as it learns of it, though the tier still has it; verdicts of
// the PoP itself go on.
func TestPeersOff(t *testing.T) {
	r := newRule(t, 5, time.Minute, 30*time.Second, algorithm.Nearest)
	a, b, received := twoPoPs(t, r, r)
	who := address(1)
	for range 7 {
		ask(a.Edges[0], r, who)
	}
	a.Run(began.Add(100 * time.Millisecond))
	b.Run(began.Add(200 * time.Millisecond))
	for i, e := range b.Edges {
		e.Machine.Announcer.Peers(false)
		if got := by(b, e, r, who); got != "" {
			t.Errorf("edge %d: by %q", i, got)
		}
		if !ask(e, r, who) {
			t.Errorf("edge %d refuses", i)
		}
	}
	b.Run(began.Add(300 * time.Millisecond)) // first sight has read the tier's bit
	if got := by(b, b.Edges[0], r, who); got != "" {
		t.Errorf("by %q", got)
	}
	for range 7 {
		ask(b.Edges[0], r, who)
	}
	b.Run(began.Add(400 * time.Millisecond))
	for i, e := range b.Edges {
		if got := by(b, e, r, who); got != "edge" && got != "pop" {
			t.Errorf("edge %d does not learn of the PoP's own: %q", i, got)
		}
	}
	if received[1] != 0 {
		t.Error("off, and reported")
	}
}
