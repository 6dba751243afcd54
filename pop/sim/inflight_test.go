package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sluice/counter/inflight"
	"sluice/edge/limiter"
	"sluice/pop/secret"
)

// A crowd is requests of one source that are under way at the edges of a World, under a rule with a concurrency and no limit.
type crowd struct {
	*World
	t      *testing.T
	rule   limiter.Rule
	random *rand.Rand
	held   [][]*limiter.Decision // by edge
	most   int
	closed int // requests that found no tier
}

func newCrowd(t *testing.T, edges, nodes int, skew time.Duration, posture limiter.FailurePolicy) *crowd {
	r := newRule(t, "slow", 1_000_000)
	r.InFlight, r.Uncounted, r.OnStoreFailure = &inflight.Concurrency{Name: "slow", Limit: 20}, true, posture
	w, err := New(Config{Edges: edges, Nodes: nodes, RTT: time.Millisecond, Counters: 1000, Secret: secret.Of([]byte("crowd")), Wait: 20 * time.Millisecond,
		Skew: func(edge int) time.Duration { return skew * time.Duration(edge) / time.Duration(max(edges-1, 1)) },
	}, []limiter.Rule{r}, began)
	if err != nil {
		t.Fatal(err)
	}
	return &crowd{World: w, t: t, rule: r, random: rand.New(rand.NewPCG(3, uint64(edges))), held: make([][]*limiter.Decision, edges)}
}

// now is how many are in flight, those of edges that do not run left out.
func (c *crowd) inFlight() (n int) {
	for i := range c.held {
		if c.Runs(i) {
			n += len(c.held[i])
		}
	}
	return n
}

// run lets requests come for a while, to an edge that runs every few milliseconds; of those in flight, about one in so many ends each time.
func (c *crowd) run(d time.Duration, ends int, except ...int) {
	for until := c.Now().Add(d); c.Now().Before(until); {
		for i := range c.held {
			if !c.Runs(i) || slices.Contains(except, i) {
				continue
			}
			c.held[i] = slices.DeleteFunc(c.held[i], func(d *limiter.Decision) bool {
				if ends == 0 || c.random.IntN(ends) != 0 {
					return false
				}
				c.Edges[i].Leave(d)
				return true
			})
		}
		i := c.random.IntN(len(c.Edges))
		if c.Runs(i) && !slices.Contains(except, i) {
			d := new(limiter.Decision)
			d.Add(&c.rule, a)
			if c.Edges[i].Decide(d); !d.Refused() {
				c.held[i] = append(c.held[i], d)
			}
			if d.Verdict == limiter.FailedClosed {
				c.closed++
			}
			c.most = max(c.most, c.inFlight())
		}
		c.after(2 * time.Millisecond)
	}
}

// ends checks that nothing is left of what has ended.
func (c *crowd) ends() {
	for i := range c.held {
		for _, d := range c.held[i] {
			c.Edges[i].Leave(d)
		}
		c.held[i] = nil
	}
	c.after(3 * time.Second)
	for i, e := range c.Edges {
		if by, keys := e.InFlight.Held(); keys != 0 && c.Runs(i) {
			c.t.Errorf("edge %d still has %v", i, by)
		}
	}
}

// Eight edges whose clocks are 20 ms apart, one of which is stopped for three seconds.
func TestConcurrencyOverAPause(t *testing.T) {
	c := newCrowd(t, 8, 1, 20*time.Millisecond, limiter.Closed)
	c.run(3*time.Second, 100)
	if c.most != 20 {
		t.Errorf("%d in flight, want 20", c.most)
	}
	stopped := len(c.held[3])
	c.Pause(3, c.Now().Add(3*time.Second))
	c.run(3*time.Second, 100, 3)
	if n := c.inFlight(); stopped == 0 || n-stopped < 18 {
		t.Errorf("%d of %d are at the edge that was stopped: the others have not their places", stopped, n)
	}
	c.most = 0
	c.run(5*time.Second, 100)
	if c.most > 20+stopped {
		t.Errorf("%d in flight, after %d were with an edge that came back", c.most, stopped)
	}
	c.most = 0
	if c.run(3*time.Second, 100); c.most != 20 {
		t.Errorf("later %d in flight, want 20", c.most)
	}
	c.ends()
}

// What an edge held that was killed is free for the others within two seconds.
func TestConcurrencyOfADeadEdge(t *testing.T) {
	c := newCrowd(t, 3, 1, 20*time.Millisecond, limiter.Local)
	c.run(2*time.Second, 0)
	if c.inFlight() != 20 || len(c.held[0]) == 0 {
		t.Fatalf("%d in flight, %d at the edge that dies", c.inFlight(), len(c.held[0]))
	}
	c.Stop(0, false)
	if c.run(2*time.Second, 0); c.inFlight() != 20 {
		t.Errorf("two seconds later the others have %d", c.inFlight())
	}
	c.ends()
}

// A node is killed, and comes back empty: no edge admits what another holds, but where nobody in the tier answers a rule goes by its posture.
func TestConcurrencyOverALostNode(t *testing.T) {
	c := newCrowd(t, 8, 2, 20*time.Millisecond, limiter.Closed)
	c.run(3*time.Second, 100)
	for node := range 2 {
		c.Kill(node)
		c.run(3*time.Second, 100)
		if err := c.Restart(node); err != nil {
			t.Fatal(err)
		}
		c.run(4*time.Second, 100)
	}
	if c.most > 20 {
		t.Errorf("%d in flight", c.most)
	}
	if c.closed == 0 {
		t.Error("nobody met a node that was away")
	}
	c.most = 0
	if c.run(time.Second, 100); c.most != 20 {
		t.Errorf("at the end %d in flight, want 20", c.most)
	}
	c.ends()
}

// A clock that steps by an hour counts in other numbers from then on; what is held is said there as well.
func TestConcurrencyOverAStep(t *testing.T) {
	c := newCrowd(t, 3, 1, 0, limiter.Closed)
	c.run(2*time.Second, 100)
	for i := range c.Edges {
		c.StepClock(i, time.Hour)
	}
	if c.run(3*time.Second, 100); c.most != 20 {
		t.Errorf("%d in flight, want 20", c.most)
	}
	c.ends()
}
