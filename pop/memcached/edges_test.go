package memcached_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/loadgen/process"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/memcached"
	"sluice/pop/poptest"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

func address(n uint32) counter.Source {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return counter.SourceOf(netip.AddrFrom4(b), 32, 64)
}

func newRule(t testing.TB, limit uint32, window, timeout time.Duration) mitigation.Rule {
	t.Helper()
	r, err := algorithm.NewSliding("test", limit, window, 12, algorithm.Nearest)
	must(t, err)
	return mitigation.Rule{Counter: r, Timeout: timeout}
}

// edge is one edge as a process has it: tables, machine, and the tier that runs it.
type edge struct {
	limiter.Limiter
	decision limiter.Decision
	tier     *memcached.Tier
	machine  *pop.Machine
	rule     limiter.Rule
	stop     func() error
}

// startEdge starts an edge whose tier reaches its nodes by dial.
func startEdge(t *testing.T, id uint64, rule mitigation.Rule, nodes []string, dial memcached.Dial) *edge {
	t.Helper()
	return startLargeEdge(t, 10_000, id, rule, nodes, dial)
}

// startLargeEdge starts an edge with a table of so many counters, of which a quarter may have something to report at once.
func startLargeEdge(t testing.TB, counters int, id uint64, rule mitigation.Rule, nodes []string, dial memcached.Dial) *edge {
	t.Helper()
	e := &edge{rule: limiter.Rule{Rule: rule}}
	wake := func() { e.tier.Wake() }
	shared := secret.Of([]byte("test"))
	e.Counters = counter.New(counter.Options{Counters: counters, Tier: true, Phase: shared.Phase, Wake: wake})
	e.Blocks = mitigation.New(10_000, wake)
	m, err := pop.NewMachine(pop.Config{Nodes: nodes, Secret: shared, ID: id, Counters: e.Counters, Blocks: e.Blocks}, time.Now())
	must(t, err)
	m.SetRules([]mitigation.Rule{rule})
	e.machine = m
	if e.tier, err = memcached.NewTier(m, nodes); err != nil {
		t.Fatal(err)
	}
	e.tier.Dial = dial
	e.tier.Caught = func(v any, stack []byte) { t.Errorf("panic: %v\n%s", v, stack) }
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- e.tier.Sync(ctx) }()
	e.stop = sync.OnceValue(func() error {
		cancel()
		return <-result
	})
	return e
}

// ask sends one request, and reports whether it is admitted.
func (e *edge) ask(s counter.Source) bool {
	e.decision.Reset()
	e.decision.Add(&e.rule, s)
	e.Decide(&e.decision, time.Now())
	return !e.decision.Refused()
}

func (e *edge) blocked(s counter.Source) bool {
	return !e.Blocks.Until(mitigation.Key{Rule: e.rule.Counter.ID, Source: s}, time.Now()).IsZero()
}

// learns reports whether a source is blocked within a time.
func (e *edge) learns(s counter.Source, within time.Duration) bool {
	for end := time.Now().Add(within); !e.blocked(s); runtime.Gosched() {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (e *edge) commands() (n uint64) {
	for _, node := range e.tier.Stats().Nodes {
		for op, by := range node.Operations {
			if wire.Op(op) != wire.Get && wire.Op(op) != wire.Set { // probes and presence go on for ever
				for _, c := range by {
					n += c
				}
			}
		}
	}
	return n
}

// pipes are nodes in memory by their names, and the way to them.
type pipes map[string]*poptest.Node

func newPipes(n int) (p pipes, names []string) {
	p = make(pipes)
	for i := range n {
		names = append(names, fmt.Sprintf("node%d:11211", i))
		p[names[i]] = poptest.New(0)
	}
	return p, names
}

func (p pipes) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return p[address].Dial(ctx, network, address)
}

func (p pipes) close() {
	for _, n := range p {
		n.Close()
	}
}

// A source that attacks through three edges is admitted little more than its limit, blocked on all of them, and then costs the
// tier nothing; a good one is served all the time.
func TestEdgesBlockTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, names := newPipes(2)
		defer nodes.close()
		rule := newRule(t, 100, time.Minute, time.Minute)
		var edges []*edge
		for i := range uint64(3) {
			e := startEdge(t, i+1, rule, names, nodes.dial)
			defer e.stop()
			edges = append(edges, e)
		}
		time.Sleep(3 * time.Second) // the edges meet
		attacker, good := address(1), address(2)
		admitted := 0
		for i := range 600 {
			if edges[i%2].ask(attacker) { // the third edge does not see it
				admitted++
			}
			if i%100 == 0 && !edges[i/100%3].ask(good) {
				t.Errorf("the good source was refused at %d", i)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if admitted < 100 || admitted > 105 {
			t.Errorf("%d requests of the attacker admitted, want about 100", admitted)
		}
		for i, e := range edges {
			if !e.blocked(attacker) || e.blocked(good) {
				t.Errorf("edge %d: attacker blocked: %v, good source blocked: %v", i, e.blocked(attacker), e.blocked(good))
			}
		}
		time.Sleep(time.Second)
		var before, after uint64
		for _, e := range edges {
			before += e.commands()
		}
		for i := range 10_000 {
			if edges[i%3].ask(attacker) {
				t.Fatalf("admitted while blocked")
			}
			time.Sleep(100 * time.Microsecond)
		}
		for _, e := range edges {
			after += e.commands()
		}
		if after != before {
			t.Errorf("a blocked source cost %d commands", after-before)
		}
	})
}

// What an edge has not reported when it is stopped reaches the tier, and the next edge learns it.
func TestEdgeStopsWithLastReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, names := newPipes(2)
		defer nodes.close()
		rule := newRule(t, 1000, time.Minute, time.Minute)
		first := startEdge(t, 1, rule, names, nodes.dial)
		time.Sleep(time.Second)
		for s := range uint32(100) {
			for range 3 {
				first.ask(address(s))
			}
		}
		must(t, first.stop())
		second := startEdge(t, 2, rule, names, nodes.dial)
		defer second.stop()
		time.Sleep(100 * time.Millisecond)
		for s := range uint32(100) {
			second.ask(address(s))
		}
		time.Sleep(2 * time.Second)
		for s := range uint32(100) {
			if v, _ := second.Counters.Peek(rule.Counter, address(s), time.Now()); v.Estimate < 4 || v.Estimate > 5 {
				t.Errorf("source %d: the second edge estimates %.2f, want 4 (and what Peek asks for)", s, v.Estimate)
			}
		}
	})
}

// While a node hangs, the sources of the other one are counted together as ever, and afterwards those of this one again.
func TestEdgesWithHungNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, names := newPipes(2)
		defer nodes.close()
		rule := newRule(t, 50, 10*time.Second, 10*time.Second)
		a := startEdge(t, 1, rule, names, nodes.dial)
		defer a.stop()
		b := startEdge(t, 2, rule, names, nodes.dial)
		defer b.stop()
		time.Sleep(3 * time.Second)
		nodes[names[0]].Hang()
		attack := func(from uint32) (worst int) {
			for s := from; s < from+20; s++ {
				admitted := 0
				for i := range 200 {
					if []*edge{a, b}[i%2].ask(address(s)) {
						admitted++
					}
					time.Sleep(time.Millisecond)
				}
				worst = max(worst, admitted)
			}
			return worst
		}
		attack(100)
		time.Sleep(time.Second) // the node is known to be down by now
		if worst := attack(200); worst > 55 {
			t.Errorf("while it hangs: %d admitted of a limit of 50", worst)
		}
		nodes[names[0]].Resume()
		time.Sleep(3 * time.Second)
		if worst := attack(300); worst > 55 {
			t.Errorf("after its return: %d admitted of a limit of 50", worst)
		}
		for _, e := range []*edge{a, b} {
			if d := e.tier.Stats().Nodes[0].Dials; d > 100 {
				t.Errorf("%d dials", d)
			}
		}
	})
}

func freeAddress(tb testing.TB) string {
	tb.Helper()
	free, err := process.FreeAddresses(1)
	must(tb, err)
	return free[0].String()
}

// must ends a test that cannot go on.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
