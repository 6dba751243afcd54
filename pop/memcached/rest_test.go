package memcached_test

import (
	"testing"
	"testing/synctest"
	"time"

	"sluice/mitigation"
	"sluice/pop/operatorlog"
)

// beat is as long as an edge that nobody asks may take to look, and a little for the look.
const beat = 520 * time.Millisecond

// has reports whether an edge knows of a block; to the edge that is no request.
func (e *edge) has(n uint32) bool {
	_, ok := e.Blocks.Get(mitigation.Key{Rule: e.rule.Counter.ID, Source: address(n)}, time.Now())
	return ok
}

// attack blocks a source at an edge, by requests.
func (e *edge) attack(t *testing.T, n uint32) {
	t.Helper()
	for i := 0; e.ask(address(n)); i++ {
		if time.Sleep(time.Millisecond); i > 100 {
			t.Fatal("the source is not blocked")
		}
	}
}

// atRest starts three edges over two nodes, which nobody asks for a while.
func atRest(t *testing.T) ([]*edge, pipes, []string) { return atRestUnder(t, 20) }

func atRestUnder(t *testing.T, limit uint32) ([]*edge, pipes, []string) {
	p, names := newPipes(2)
	t.Cleanup(p.close)
	var edges []*edge
	for i := range uint64(3) {
		e := startEdge(t, i+1, newRule(t, limit, time.Minute, 10*time.Minute), names, p.dial)
		t.Cleanup(func() { e.stop() })
		edges = append(edges, e)
	}
	time.Sleep(15 * time.Second)
	return edges, p, names
}

// TestBlockAfterQuiet: the first block is known to edges that nobody asks at their next look, and those after it, while the attack goes on, within the
// time that edges with requests take; also of a node that came back empty meanwhile.
func TestBlockAfterQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges, p, names := atRest(t)
		source := uint32(0)
		learns := func(what string, within time.Duration) {
			t.Helper()
			source++
			edges[0].attack(t, source)
			time.Sleep(within)
			for i, e := range edges {
				if !e.has(source) {
					t.Errorf("%s: edge %d does not know of source %d after %v", what, i, source, within)
				}
			}
		}
		learns("the first block", beat)
		for range 8 {
			time.Sleep(25 * time.Second)
			learns("one that follows", 50*time.Millisecond)
		}
		time.Sleep(time.Minute)
		for _, name := range names {
			p[name].Kill()
			must(t, p[name].Restart())
		}
		time.Sleep(10 * time.Second)
		learns("after a restart", beat)
		learns("the next", 50*time.Millisecond)
	})
}

// TestNodesOfARestingEdge: a node that goes while nobody asks is found down within half a second of the first request, however it goes and whenever.
func TestNodesOfARestingEdge(t *testing.T) {
	for _, how := range []string{"hangs", "is killed"} {
		for after := time.Duration(0); after < 1200*time.Millisecond; after += 290 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				edges, p, names := atRest(t)
				if how == "hangs" {
					p[names[0]].Hang()
				} else {
					p[names[0]].Kill()
				}
				time.Sleep(after)
				for i, e := range edges {
					e.ask(address(uint32(i + 1)))
				}
				time.Sleep(500 * time.Millisecond)
				for i, e := range edges {
					if e.machine.Nodes.Health()[0] || !e.machine.Nodes.Health()[1] {
						t.Errorf("a node %s; edge %d has %v, half a second after a request that came %v later", how, i, e.machine.Nodes.Health(), after)
					}
				}
				p[names[0]].Resume()
				if how == "is killed" {
					must(t, p[names[0]].Restart())
				}
				time.Sleep(2 * time.Second)
				for i, e := range edges {
					if !e.machine.Nodes.Health()[0] {
						t.Errorf("a node that %s and is back for two seconds is down to edge %d", how, i)
					}
				}
			})
		}
	}
}

// TestOrderAfterQuiet: what an operator says at one edge is in force at edges that nobody asks within a second.
func TestOrderAfterQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges, _, _ := atRest(t)
		for n := range uint32(5) {
			_, err := edges[0].machine.Operators.Add(operatorlog.Order{Rule: "test", Kind: operatorlog.Block, Source: address(n),
				Start: time.Now(), End: time.Now().Add(time.Hour), Reason: "because"}, time.Now())
			must(t, err)
			time.Sleep(time.Second)
			for i, e := range edges {
				if !e.has(n) {
					t.Errorf("edge %d does not have order %d after a second", i, n)
				}
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// TestRestIsCheap: what an edge that nobody asks sends to a node a second stays within bounds, however many edges the PoP has.
func TestRestIsCheap(t *testing.T) {
	for _, edges := range []int{1, 8, 64} {
		synctest.Test(t, func(t *testing.T) {
			p, names := newPipes(2)
			t.Cleanup(p.close)
			for i := range edges {
				e := startLargeEdge(t, 100, uint64(i)+1, newRule(t, 20, time.Minute, 10*time.Minute), names, p.dial)
				t.Cleanup(func() { e.stop() })
			}
			time.Sleep(20 * time.Second) // the edges meet
			const seconds = 20
			var before [2][2]int
			for i, name := range names {
				before[i][0], before[i][1] = p[name].Asked()
			}
			time.Sleep(seconds * time.Second)
			for i, name := range names {
				commands, keys := p[name].Asked()
				perEdge := func(n, before int) float64 { return float64(n-before) / seconds / float64(edges) }
				c, k := perEdge(commands, before[i][0]), perEdge(keys, before[i][1])
				t.Logf("%d edges, %s: %.1f commands of %.1f keys a second for each edge", edges, name, c, k)
				if c > 8 || k > 20 {
					t.Error("want at most 8 commands of 20 keys")
				}
			}
		})
	}
}

// TestFewRequestsWakeSeldom: each request wakes an edge once, its report's answer and a look of its own follow, and little else.
func TestFewRequestsWakeSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges, _, _ := atRestUnder(t, 1000)
		const requests = 400
		before := edges[0].tier.Stats().Steps
		for i := range uint32(requests) {
			if !edges[0].ask(address(i % 20)) {
				t.Fatal("a request is refused: the blocks would be counted as well")
			}
			time.Sleep(50 * time.Millisecond)
		}
		if each := float64(edges[0].tier.Stats().Steps-before) / requests; each > 4.4 {
			t.Errorf("%.2f steps for a request, 20 requests a second; want 4.4 at most", each)
		} else {
			t.Logf("%.2f steps for a request", each)
		}
	})
}
