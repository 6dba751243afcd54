package sim

import (
	"net/netip"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// TestRotationThroughAPrefix: one client, 20,000 requests in a second over four edges, each from another of the 65,536 /64s of a /48, under a rule that
// counts /64, /56 and /48. Each limit keeps the budget of a rule, no counter is pushed out of a table that has room for few, and all edges
// block the /48 within five seconds; when the block is over, the prefix is as any other.
func TestRotationThroughAPrefix(t *testing.T) {
	t.Parallel()
	const edges, limit, fullTable = 4, 5, 4096
	widths := []int{64, 56, 48}
	var rules []limiter.Rule
	for i, name := range []string{"r", "r /56", "r /48"} {
		c, err := algorithm.NewSliding(name, limit<<(4*i), time.Minute, 12, algorithm.Nearest)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, limiter.Rule{Rule: mitigation.Rule{Counter: c, Timeout: 2 * time.Minute}})
	}
	const settle = 200 * time.Millisecond
	w, err := New(Config{Edges: edges, Nodes: 1, RTT: time.Millisecond, Counters: fullTable, Secret: secret.Of([]byte("rotation"))}, rules, began)
	if err != nil {
		t.Fatal(err)
	}
	var d limiter.Decision
	ask := func(edge int, addr netip.Addr) (admitted, asked bool) {
		d.Reset()
		for i := range rules {
			d.Add(&rules[i], counter.SourceOf(addr, 32, widths[i]))
		}
		w.Edges[edge].Decide(&d)
		return !d.Refused(), d.Results[0].Reservation != nil
	}
	address := func(site, network uint16) netip.Addr {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(site >> 8), byte(site), byte(network >> 8), byte(network), 15: 1})
	}
	w.Run(began.Add(settle))
	const useful = 1000 // each of its own /48, near its limit
	for i := range useful {
		for range limit - 1 {
			if ok, _ := ask(i%edges, address(uint16(0x1000+i), 0)); !ok {
				t.Fatal("an honest request is refused")
			}
		}
		w.Run(w.Now().Add(time.Millisecond))
	}
	w.Run(w.Now().Add(settle))

	before, start := w.Cost, w.Now()
	admitted, asked, last := 0, 0, time.Duration(0)
	for i := range 1 << 16 {
		w.Run(start.Add(time.Duration(i) * 50 * time.Microsecond))
		ok, was := ask(i%edges, address(7, uint16(i*40_503)))
		if was {
			asked++
		}
		if ok {
			admitted, last = admitted+1, w.Now().Sub(start)
		}
	}
	w.Run(w.Now().Add(settle))
	cost := w.Cost.Minus(before)
	t.Logf("%d of 65536 admitted, the last after %v; %d asked counters and cost %.3g commands and %.0f bytes each", admitted, last, asked, per(cost.Commands, asked), per(cost.Bytes, asked))
	if most := limit << 8; admitted < most || admitted > most+most/10 || last > 5*time.Second {
		t.Errorf("%d are admitted, the last after %v, at a limit of %d", admitted, last, most)
	}
	if each := per(cost.Commands, asked); each > 3*float64(len(rules)) {
		t.Errorf("%.3g commands for each request that asked %d counters", each, len(rules))
	}
	for _, e := range w.Edges {
		if stats := e.Counters.Stats(); stats.Evicted > 0 {
			t.Errorf("%d of %d counters have made room for others", stats.Evicted, stats.Capacity)
		}
	}
	for i := range useful {
		if _, was := ask(i%edges, address(uint16(0x1000+i), 0)); !was || d.Results[0].Reservation.Estimate != limit {
			t.Fatalf("source %d: %+v", i, d.Results[0])
		}
	}

	w.Run(w.Now().Add(2 * time.Minute))
	for edge := range edges {
		for range limit + 1 { // one that goes on, and another at the side of it
			_, _ = ask(edge, address(7, 1))
		}
		w.Run(w.Now().Add(settle))
		if ok, _ := ask(edge, address(7, 1)); ok {
			t.Errorf("edge %d: who goes on is not blocked again", edge)
		}
		if ok, _ := ask(edge, address(7, uint16(0x100+edge))); !ok {
			t.Errorf("edge %d: after the block of the prefix all of it is refused", edge)
		}
	}
}
