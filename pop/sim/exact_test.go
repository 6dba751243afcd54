package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/exact"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/operatorlog"
	"sluice/pop/poptest"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

func newExact(t *testing.T, limit uint32, window time.Duration, p limiter.FailurePolicy) limiter.Rule {
	t.Helper()
	r, err := algorithm.NewExact("pay", limit, window, 12)
	if err != nil {
		t.Fatal(err)
	}
	return limiter.Rule{Rule: mitigation.Rule{Counter: r, Exact: exact.NewSpec(r, p == limiter.Closed, false)}, OnStoreFailure: p}
}

// payments is a World under such a rule, what goes wrong in it, and an origin's log.
type payments struct {
	*World
	t       *testing.T
	rule    limiter.Rule
	random  *rand.Rand
	arrived []time.Time
	was     [limiter.Verdicts]int
	keys    []string // of buckets
	asked   int      // reads and writes of buckets
	late    float64  // of writes of buckets, how many are carried out and not answered
}

func newPayments(t *testing.T, seed uint64, edges, nodes int, r limiter.Rule, skew time.Duration) *payments {
	p := &payments{t: t, rule: r, random: rand.New(rand.NewPCG(seed, 3))}
	w, err := New(Config{Edges: edges, Nodes: nodes, RTT: time.Millisecond, Counters: 1000, Secret: secret.Of([]byte("pay")), Wait: 20 * time.Millisecond,
		Skew: func(edge int) time.Duration { return skew * time.Duration(edge) / time.Duration(max(edges-1, 1)) },
		Carry: func(c wire.Command, node *poptest.Node, now time.Time) wire.Result {
			r := node.Do(now, c)
			if c.Op == wire.Gets || c.Op == wire.Cas {
				p.asked++
			}
			if strings.HasPrefix(c.Key, "x") && c.Op == wire.Cas && p.random.Float64() < p.late {
				return wire.Result{Command: c, Status: wire.Unknown}
			}
			if c.Op == wire.Gets && strings.HasPrefix(c.Key, "x") && (len(p.keys) == 0 || p.keys[len(p.keys)-1] != c.Key) {
				p.keys = append(p.keys, c.Key)
			}
			return r
		},
	}, []limiter.Rule{r}, began)
	if err != nil {
		t.Fatal(err)
	}
	p.World = w
	return p
}

// run lets requests of a come to all edges for a while, every few milliseconds.
func (p *payments) run(d, every time.Duration, each func()) {
	for until := p.Now().Add(d); p.Now().Before(until); p.after(every) {
		if each != nil {
			each()
		}
		if i := p.random.IntN(len(p.Edges)); p.Runs(i) {
			d := p.Edges[i].Request(&p.rule, a)
			p.was[d.Verdict]++
			if !d.Refused() {
				p.arrived = append(p.arrived, p.Now())
			}
			p.Edges[i].Leave(d)
		}
	}
}

// most is the most that arrived within a window, by the origin's clock.
func (p *payments) most(window time.Duration) (most int) {
	for i, from := 0, 0; i < len(p.arrived); i++ {
		for p.arrived[i].Sub(p.arrived[from]) >= window {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// Nodes restart and hang, evict, and edges die, and their clocks differ by as much as is allowed: a closed rule never lets through more than its
// limit in any window.
func TestExactOverFaults(t *testing.T) {
	for seed, edges := range []int{1, 3, 8, 3, 3, 8} {
		window := []time.Duration{20 * time.Second, 20 * time.Second, 20 * time.Second, 20 * time.Second, exact.MinWindow, 5 * time.Second}[seed]
		r := newExact(t, []uint32{3, 50, 3, 1000, 10, 50}[seed], window, limiter.Closed)
		p := newPayments(t, uint64(seed), edges, 2, r, exact.Margin(window)/2)
		p.after(window + 4*time.Second)
		p.run(40*time.Second, 7*time.Millisecond, nil)
		if n := p.most(window); n != min(int(r.Counter.Limit), len(p.arrived)) || p.was[limiter.FailedClosed] > 0 {
			t.Errorf("%d edges: %d in a window while nothing happened, %v", edges, n, p.was)
		}
		p.run(5*time.Minute, 40*time.Millisecond, func() {
			switch node, edge := p.random.IntN(2), p.random.IntN(edges); p.random.IntN(2000) {
			case 0, 1:
				if err := p.Restart(node); err != nil {
					t.Fatal(err)
				}
			case 2:
				p.Kill(node)
			case 3:
				p.Hang(node)
			case 4, 5, 6:
				p.Resume(0)
				p.Resume(1)
			case 7:
				p.Cut(edge)
			case 8, 9:
				p.Mend(edge)
			case 10:
				for _, key := range p.keys {
					p.Nodes[node].Do(p.Now(), wire.Command{Op: wire.Delete, Key: key})
				}
			case 11:
				if err := p.Start(edge); err != nil {
					t.Fatal(err)
				}
			case 12:
				p.late = 0.3
			case 13, 14:
				p.late = 0
			}
		})
		if n := p.most(window); n > int(r.Counter.Limit) {
			t.Errorf("%d edges, limit %d: %d arrived in a window", edges, r.Counter.Limit, n)
		}
		t.Logf("%d edges, limit %d: %d arrived, %v", edges, r.Counter.Limit, len(p.arrived), p.was)
		if p.was[limiter.FailedClosed] == 0 {
			t.Error("nobody was in doubt")
		}
	}
}

// A decision costs a gets and a cas; who is refused costs a gets a second and edge.
func TestExactCost(t *testing.T) {
	r := newExact(t, 10, time.Minute, limiter.Local)
	p := newPayments(t, 1, 3, 1, r, 0)
	p.after(time.Second)
	before := p.asked
	for range 10 {
		p.run(100*time.Millisecond, 100*time.Millisecond, nil)
	}
	if n := p.asked - before; n != 20 || p.was[limiter.Passed] != 10 {
		t.Errorf("ten that pass cost %d commands, %v", n, p.was)
	}
	before = p.asked
	p.run(10*time.Second, time.Millisecond, nil)
	if n := p.asked - before; n > 33 {
		t.Errorf("%v refused in ten seconds cost %d commands", p.was, n)
	}
}

// While nobody in the tier answers each edge goes by what it knows, and after a restart it puts that back: so under local a loss lets nothing
// through that a living edge knows of, and at most the limit once more.
func TestExactLocal(t *testing.T) {
	r := newExact(t, 10, time.Minute, limiter.Local)
	p := newPayments(t, 2, 3, 1, r, 0)
	p.after(time.Second)
	p.run(time.Second, 10*time.Millisecond, nil)
	if len(p.arrived) != 10 {
		t.Fatalf("%d arrived", len(p.arrived))
	}
	for i := range p.Edges { // each has learned of the others
		p.Edges[i].Request(&p.rule, a)
	}
	p.Kill(0)
	p.run(5*time.Second, 10*time.Millisecond, nil)
	if len(p.arrived) != 10 {
		t.Errorf("%d arrived while the tier was away", len(p.arrived))
	}
	if err := p.Restart(0); err != nil {
		t.Fatal(err)
	}
	p.run(20*time.Second, 10*time.Millisecond, nil)
	if len(p.arrived) != 10 {
		t.Errorf("%d arrived after a restart", len(p.arrived))
	}
	for i := range p.Edges {
		if err := p.Start(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Restart(0); err != nil {
		t.Fatal(err)
	}
	p.run(20*time.Second, 10*time.Millisecond, nil)
	if len(p.arrived) != 20 {
		t.Errorf("%d arrived after all have forgotten, want 20", len(p.arrived))
	}
}

// An operator's lift lets a source begin afresh on every edge.
func TestExactLift(t *testing.T) {
	r := newExact(t, 3, time.Hour, limiter.Local)
	p := newPayments(t, 3, 3, 1, r, 0)
	p.after(time.Second)
	p.run(time.Second, 10*time.Millisecond, nil)
	if _, err := p.Edges[0].Order(operatorlog.Order{Rule: "pay", Source: a, Kind: operatorlog.Lift, Start: p.Now()}); err != nil {
		t.Fatal(err)
	}
	p.after(2 * time.Second)
	before := len(p.arrived)
	p.run(2*time.Second, 10*time.Millisecond, nil)
	if n := len(p.arrived) - before; before != 3 || n != 3 {
		t.Errorf("%d arrived before the lift, %d after it", before, n)
	}
}

// A refusal has the time until there is room again.
func TestExactRetry(t *testing.T) {
	for _, limit := range []uint32{1, 3, 1000} {
		r := newExact(t, limit, time.Hour, limiter.Closed)
		p := newPayments(t, 4, 2, 1, r, 0)
		p.after(time.Hour + 4*time.Second)
		var d *limiter.Decision
		for range limit + 1 {
			p.after(100 * time.Millisecond)
			d = p.Edges[0].Request(&r, a)
		}
		if d.Verdict != limiter.Limited || d.Reported == nil {
			t.Fatal(d.Verdict)
		}
		wait := d.Reported.Wait
		p.after(wait - 10*time.Millisecond)
		if d := p.Edges[1].Request(&r, a); !d.Refused() {
			t.Errorf("limit %d: too early, and it passed", limit)
		}
		p.after(time.Second + 100*time.Millisecond)
		if d := p.Edges[1].Request(&r, a); d.Refused() {
			t.Errorf("limit %d: after %v: %v", limit, wait, d.Verdict)
		}
	}
}

// A token bucket is kept as exactly: its burst at once over all edges, and then what drains.
func TestBucketInTheTier(t *testing.T) {
	c, err := algorithm.NewBucket("pay", 60, time.Minute, 12, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := limiter.Rule{Rule: mitigation.Rule{Counter: c, Exact: exact.NewSpec(c, true, false)}, OnStoreFailure: limiter.Closed}
	p := newPayments(t, 5, 8, 1, r, 0)
	p.after(time.Minute)
	p.run(100*time.Second, 5*time.Millisecond, nil)
	for i := range p.arrived {
		for j := i; j < len(p.arrived); j++ {
			if n, most := j-i+1, 10+p.arrived[j].Sub(p.arrived[i]).Seconds()+0.05; float64(n) > most {
				t.Fatalf("%d within %v", n, p.arrived[j].Sub(p.arrived[i]))
			}
		}
	}
	if n := len(p.arrived); n < 105 || n > 110 {
		t.Errorf("%d arrived in 100 s, want 110", n)
	}
}

// What stands in one bucket is authentic in no other: whoever can write to a node cannot copy one source's instants to another's, nor an
// empty bucket over a full one.
func TestBucketCopied(t *testing.T) {
	p := newPayments(t, 6, 2, 1, newExact(t, 5, time.Minute, limiter.Closed), 0)
	p.after(2 * time.Minute) // of the doubt about a new bucket
	p.run(time.Second, 50*time.Millisecond, nil)
	mine := p.keys[0]
	for i := byte(0); len(p.keys) < 2; i++ {
		p.Edges[0].Request(&p.rule, ip(fmt.Sprintf("198.51.100.%d", i)))
		p.after(100 * time.Millisecond)
	}
	forged := func() uint64 { return p.Edges[0].Machine.Stats().Forged + p.Edges[1].Machine.Stats().Forged }
	if forged() != 0 {
		t.Fatal("forged before")
	}
	value := p.Nodes[0].Do(p.Now(), wire.Command{Op: wire.Get, Key: p.keys[len(p.keys)-1]}).Values[0]
	p.Nodes[0].Do(p.Now(), wire.Command{Op: wire.Set, Key: mine, Value: value})
	before := len(p.arrived)
	p.run(30*time.Second, 100*time.Millisecond, nil)
	if n := len(p.arrived) - before; n != 0 || forged() == 0 {
		t.Errorf("%d more arrived; %d were seen to be forged", n, forged())
	}
}
