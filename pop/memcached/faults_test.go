package memcached_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pop/memcached"
	"sluice/pop/poptest"
)

// all is for make properties: faults in PoPs of every size, and for longer.
var all = flag.Bool("all", false, "let nodes be ill for longer, and under more edges")

// slowly makes connections that take as long as their first round trip does.
func slowly(dial memcached.Dial, roundTrip time.Duration) memcached.Dial {
	dial = far(dial, roundTrip)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		timer := time.NewTimer(roundTrip)
		defer timer.Stop()
		select {
		case <-timer.C:
			return dial(ctx, network, address)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TestNodeFaults: what a source gets at most while a node of two is ill, and how often edges change their minds about it.
func TestNodeFaults(t *testing.T) {
	const limit, window = 50, 10 * time.Second
	for _, c := range []struct {
		name  string
		edges int
		trip  time.Duration // to the first node and back
		ill   poptest.Fault
		most  int // admitted of a source that sends a request every 5 ms to one edge after the other
		turns int // of the first node's health on an edge, at most
		up    bool
	}{
		{"far", 3, 200 * time.Millisecond, nil, 55, 1, false},
		{"far", 8, 200 * time.Millisecond, nil, 55, 1, false},
		{"too far", 3, 300 * time.Millisecond, nil, 55, 1, false},
		{"slow", 3, 0, func(_ string, honest []byte) poptest.Reply {
			return poptest.Reply{Bytes: honest, Wait: 200 * time.Millisecond}
		}, 55, 1, false},
		{"another protocol", 3, 0, func(string, []byte) poptest.Reply { return poptest.Reply{Bytes: []byte("abc\r\n")} }, 55, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, names := newPipes(2)
				defer nodes.close()
				defer time.Sleep(c.trip) // what is under way when edges stop arrives
				ill := nodes[names[0]]
				distant := slowly(nodes.dial, c.trip)
				dial := func(ctx context.Context, network, address string) (net.Conn, error) {
					if address == names[0] && c.trip > 0 {
						return distant(ctx, network, address)
					}
					return nodes.dial(ctx, network, address)
				}
				rule := newRule(t, limit, window, window)
				var edges []*edge
				for i := range uint64(c.edges) {
					e := startEdge(t, i+1, rule, names, dial)
					defer e.stop()
					edges = append(edges, e)
				}
				time.Sleep(3 * time.Second)
				if c.ill != nil {
					ill.Misbehave(c.ill)
				}
				turns, up := make([]int, c.edges), make([]bool, c.edges)
				for i, e := range edges {
					up[i] = e.machine.Nodes.Health()[0]
				}
				worst, sources := 0, uint32(8)
				if *all {
					sources = 20
				}
				for s := range sources {
					admitted := 0
					for i := range 400 {
						if edges[i%c.edges].ask(address(100 + s)) {
							admitted++
						}
						time.Sleep(5 * time.Millisecond)
						for k, e := range edges {
							if is := e.machine.Nodes.Health()[0]; is != up[k] {
								up[k] = is
								turns[k]++
							}
						}
					}
					if s > 0 { // the first meets the fault
						worst = max(worst, admitted)
					}
				}
				t.Logf("%d edges: at most %d admitted of a limit of %d; the node's health changed %v times and is %v", c.edges, worst, limit, turns, up)
				if worst > c.most {
					t.Errorf("%d admitted of a limit of %d, want %d at most", worst, limit, c.most)
				}
				for i := range edges {
					if turns[i] > c.turns || up[i] != c.up {
						t.Errorf("edge %d: the node's health changed %d times in %d s, and is %v at the end: want %d at most, and %v", i, turns[i], 2*sources, up[i], c.turns, c.up)
					}
				}
			})
		})
	}
}

// TestAllNodesRestart: where every node is started anew at once, a source is admitted its limit, and what it sends while the nodes are gone and until
// every edge has met them again, which is 300 ms at most. Short outages cost less than a second limit.
func TestAllNodesRestart(t *testing.T) {
	const limit, again, sources = 50, 300 * time.Millisecond, 3
	for _, c := range []struct{ gone, every time.Duration }{
		{50 * time.Millisecond, 5 * time.Millisecond},
		{100 * time.Millisecond, 5 * time.Millisecond},
		{150 * time.Millisecond, 5 * time.Millisecond},
		{350 * time.Millisecond, 5 * time.Millisecond},
		{150 * time.Millisecond, time.Millisecond},
	} {
		for _, n := range []int{1, 3, 8, 24, 64} {
			if n > 8 && !*all {
				continue
			}
			t.Run(fmt.Sprintf("%d edges, gone for %v, a request each %v", n, c.gone, c.every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					nodes, names := newPipes(2)
					defer nodes.close()
					rule := newRule(t, limit, 10*time.Second, 10*time.Second)
					var edges []*edge
					for i := range uint64(n) {
						e := startEdge(t, i+1, rule, names, nodes.dial)
						defer e.stop()
						edges = append(edges, e)
					}
					time.Sleep(4 * time.Second)
					kill := time.Now().Add(20 * c.every)
					back, killed := kill.Add(c.gone), false
					admitted, apart := make([]int, sources), time.Duration(0)
					for i := 0; time.Now().Before(back.Add(2 * again)); i++ {
						if !killed && !time.Now().Before(kill) {
							killed = true
							for _, node := range nodes {
								node.Kill()
								time.AfterFunc(c.gone, func() { must(t, node.Restart()) })
							}
						}
						for s := range admitted {
							if edges[(i+s)%n].ask(address(100 + uint32(s))) {
								admitted[s]++
							}
						}
						time.Sleep(c.every)
						for _, e := range edges {
							if now := time.Now(); now.After(back) && !slices.Equal(e.machine.Nodes.Health(), []bool{true, true}) {
								apart = now.Sub(back)
							}
						}
					}
					sent := int((c.gone+again)/c.every) + 1
					bound := limit + min((n-1)*limit, sent)
					if c.gone <= 150*time.Millisecond && c.every >= 5*time.Millisecond {
						bound = min(bound, 2*limit)
					}
					t.Logf("%d admitted of a limit of %d, %d at most; an edge missed a node until %v after", slices.Max(admitted), limit, bound, apart)
					if most := slices.Max(admitted); most > bound {
						t.Errorf("%d admitted of a limit of %d, want %d at most", most, limit, bound)
					}
					if apart > again {
						t.Errorf("an edge missed a node until %v after, want %v at most", apart, again)
					}
				})
			})
		}
	}
}

// TestSilentNodeIsNoticed: every edge gives up a node that falls silent within half a second of a request, whatever edges had under way to it just
// then, and whether connections to it are taken or not; and if nobody asks, within a beat more.
func TestSilentNodeIsNoticed(t *testing.T) {
	const never = time.Hour
	for _, c := range []struct {
		name     string
		connect  bool          // connections are taken, as for a process that is stopped; otherwise they are lost in the network
		awake    bool          // there were requests before
		asks     time.Duration // from then on there are requests
		promised time.Duration // after that, or after the node has fallen silent, if there are none
	}{
		{"hangs", true, true, 0, 500 * time.Millisecond},
		{"hangs, and then the first request comes", true, false, 0, 500 * time.Millisecond},
		{"has hung for a while when the first request comes", true, false, 300 * time.Millisecond, 500 * time.Millisecond},
		{"hangs, and nobody asks", true, false, never, 1000 * time.Millisecond},
		{"behind a hole", false, true, 0, 500 * time.Millisecond},
		{"behind a hole, and then the first request comes", false, false, 0, 500 * time.Millisecond},
		{"has been behind a hole for a while when the first request comes", false, false, 300 * time.Millisecond, 500 * time.Millisecond},
		{"behind a hole, and nobody asks", false, false, never, 1000 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			slowest := time.Duration(0)
			for phase := range 8 { // of a look's period, and of a beat's
				synctest.Test(t, func(t *testing.T) {
					nodes, names := newPipes(2)
					defer nodes.close()
					var silent atomic.Bool
					dial := func(ctx context.Context, network, address string) (net.Conn, error) {
						if silent.Load() && address == names[0] && !c.connect {
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return nodes.dial(ctx, network, address)
					}
					rule := newRule(t, 50, 10*time.Second, 10*time.Second)
					var edges []*edge
					for i := range uint64(3) {
						e := startEdge(t, i+1, rule, names, dial)
						defer e.stop()
						edges = append(edges, e)
					}
					ask := func() {
						for i, e := range edges {
							e.ask(address(100 + uint32(i)))
						}
					}
					time.Sleep(3*time.Second + time.Duration(phase)*67*time.Millisecond)
					for range 100 {
						if c.awake {
							ask()
						}
						time.Sleep(time.Millisecond)
					}
					began := time.Now()
					silent.Store(true)
					nodes[names[0]].Hang()
					for missing := 0; missing < len(edges); {
						if time.Since(began) >= c.asks {
							ask()
						}
						time.Sleep(time.Millisecond)
						missing = 0
						for _, e := range edges {
							if !e.machine.Nodes.Health()[0] {
								missing++
							}
						}
					}
					if c.asks < never {
						began = began.Add(c.asks)
					}
					slowest = max(slowest, time.Since(began))
				})
			}
			t.Logf("given up after %v", slowest)
			if slowest > c.promised {
				t.Errorf("given up after %v, want %v at most", slowest, c.promised)
			}
		})
	}
}
