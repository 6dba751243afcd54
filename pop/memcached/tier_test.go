package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pop"
	"sluice/pop/memcached"
	"sluice/pop/poptest"
	"sluice/pop/wire"
)

// script replaces a Machine, and notes its calls.
type script struct {
	mu       sync.Mutex
	queue    []wire.Command
	last     []wire.Command // what Flush returns
	follow   func(wire.Result) []wire.Command
	results  []wire.Result
	received []time.Time // when results came, one for each
	steps    []time.Time
	hits     uint64 // that are not reported, for ever
	panics   int    // so many of the next steps panic
}

func (s *script) step(now time.Time, e pop.Event) (out []wire.Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, now)
	if s.panics > 0 {
		s.panics--
		panic("a fault in the machine")
	}
	for _, r := range e.Results {
		s.results = append(s.results, r)
		s.received = append(s.received, now)
		if s.follow != nil {
			out = append(out, s.follow(r)...)
		}
	}
	out = append(out, s.queue...)
	s.queue = nil
	return out
}

func (s *script) flush(time.Time) []wire.Command { return s.last }

func (s *script) unreported() (hits, lost uint64) { return s.hits, 0 }

func (s *script) say(cmds ...wire.Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, cmds...)
}

func (s *script) take() (rs []wire.Result, received []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rs, received = s.results, s.received
	s.results, s.received = nil, nil
	return rs, received
}

// closing notices when a connection is closed.
type closing struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (c *closing) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// tier makes a tier of the nodes.
func (s *script) tier(t *testing.T, nodes ...*poptest.Node) *memcached.Tier {
	t.Helper()
	var names []string
	byName := make(map[string]*poptest.Node)
	for i, n := range nodes {
		names = append(names, fmt.Sprintf("node%d:11211", i))
		byName[names[i]] = n
	}
	tier, err := memcached.NewScriptedTier(s.step, s.flush, s.unreported, names)
	must(t, err)
	tier.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return byName[address].Dial(ctx, network, address)
	}
	return tier
}

// run starts a tier of the nodes; stop ends it and returns what Sync did.
func (s *script) run(t *testing.T, nodes ...*poptest.Node) (tier *memcached.Tier, stop func() error) {
	t.Helper()
	tier = s.tier(t, nodes...)
	return tier, s.sync(tier)
}

func (s *script) sync(tier *memcached.Tier) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- tier.Sync(ctx) }()
	synctest.Wait()
	return func() error {
		cancel()
		return <-result
	}
}

func report(node int, c wire.Command) wire.Command {
	c.Node, c.Report = node, true
	return c
}

// A lone hit is reported at once: no timer, no interval.
func TestTierLoneHit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		var s script
		tier, stop := s.run(t, n)
		time.Sleep(pop.Tick - time.Millisecond)
		s.say(report(0, add("k", "1")))
		start := time.Now()
		tier.Wake()
		synctest.Wait()
		if n.Items() != 1 || !time.Now().Equal(start) {
			t.Errorf("%d items after %v, want 1 at once", n.Items(), time.Since(start))
		}
		time.Sleep(time.Millisecond)
		if rs, received := s.take(); len(rs) != 1 || received[0].Sub(start) > time.Millisecond {
			t.Errorf("%d results, received %v after %v", len(rs), received, start)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A hundred thousand hits a second share a few thousand steps.
func TestTierCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		var s script
		tier, stop := s.run(t, n)
		defer stop()
		for range 100_000 {
			s.say(report(0, incr("k")))
			tier.Wake()
			time.Sleep(10 * time.Microsecond)
		}
		time.Sleep(time.Millisecond)
		rs, _ := s.take()
		if steps := tier.Stats().Steps; len(rs) != 100_000 || steps > 4100 {
			t.Errorf("%d results in %d steps, want 100,000 in at most 4,100", len(rs), steps)
		}
	})
}

// A node that hangs costs the others nothing, and no more than its four connections.
func TestTierHungNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, well := poptest.New(0), poptest.New(0)
		defer hung.Close()
		defer well.Close()
		var s script
		tier := s.tier(t, hung, well)
		var open, most atomic.Int64 // connections to the first node, from our side
		dial := tier.Dial
		tier.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil || address != "node0:11211" {
				return c, err
			}
			most.Store(max(most.Load(), open.Add(1)))
			return &closing{Conn: c, closed: func() { open.Add(-1) }}, nil
		}
		stop := s.sync(tier)
		hung.Hang()
		want := 0
		for i := range 1000 {
			k := fmt.Sprint("k", i)
			g := get(k)
			s.say(report(0, incr(k)), add(k, "1"), set(k, "1"), g, report(1, add(k, "1")))
			want += 5
			tier.Wake()
			time.Sleep(time.Millisecond)
		}
		if most.Load() > 4 || most.Load() == 0 {
			t.Errorf("up to %d connections to a node that hangs, want up to 4", most.Load())
		}
		rs, _ := s.take()
		done := 0
		for _, r := range rs {
			if r.Node == 1 && r.Status == wire.Done {
				done++
			}
		}
		if done < 995 {
			t.Errorf("%d commands done on the other node, want nearly 1000", done)
		}
		time.Sleep(5 * time.Second)
		more, _ := s.take()
		if got := len(rs) + len(more); got != want {
			t.Errorf("%d results for %d commands", got, want)
		}
		start := time.Now()
		if err := stop(); err != nil || time.Since(start) > 100*time.Millisecond {
			t.Errorf("stopped with %v after %v", err, time.Since(start))
		}
	})
}

// Every command has one result, also the ones that nobody could carry out.
func TestTierAnswersAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		var s script
		tier, stop := s.run(t, n)
		n.Hang()
		want := 0
		say := func(c wire.Command) {
			c.Tag = uint64(want)
			want++
			s.say(c)
		}
		say(report(0, incr("a b")))
		say(report(0, incr("")))
		say(incr("a\r\nflush_all"))
		say(report(0, get()))
		say(get(make([]string, 101)...))
		for range 20_000 {
			say(report(0, incr("k")))
		}
		for range 3000 {
			say(add("k", "1"))
			say(get("k"))
		}
		start := time.Now()
		tier.Wake()
		time.Sleep(5 * time.Second)
		rs, received := s.take()
		seen := make(map[uint64]bool)
		unsent := 0
		for i, r := range rs {
			if seen[r.Tag] {
				t.Fatalf("two results for command %d", r.Tag)
			}
			seen[r.Tag] = true
			if r.Status == wire.Unsent {
				unsent++
			}
			if received[i].Sub(start) > 2*time.Second {
				t.Fatalf("%s %s %v after %v", r.Op, r.Status, r.Err, received[i].Sub(start))
			}
		}
		if len(seen) != want {
			t.Errorf("%d results for %d commands", len(seen), want)
		}
		stats := tier.Stats().Nodes[0]
		var counted uint64
		for _, op := range stats.Operations {
			for _, c := range op {
				counted += c
			}
		}
		if counted != uint64(want) || stats.Waiting != 0 {
			t.Errorf("%d operations counted of %d; %d waiting", counted, want, stats.Waiting)
		}
		stop()
	})
}

// At the end the last report is sent, and what its answers make necessary.
func TestTierLastReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		s := script{last: []wire.Command{report(0, incr("k")), add("bit", "1"), get("bit"), report(0, get("k"))}}
		s.follow = func(r wire.Result) []wire.Command {
			if r.Op == wire.Incr && r.Status == wire.NotThere {
				return []wire.Command{report(0, add("k", "7"))}
			}
			return nil
		}
		_, stop := s.run(t, n)
		if err := stop(); err != nil {
			t.Error(err)
		}
		r := n.Do(time.Now(), get("k", "bit"))
		if string(r.Values[0]) != "7" || string(r.Values[1]) != "1" {
			t.Errorf("%q", r.Values)
		}
		synctest.Wait() // the node notices
		if n.Open() > 0 {
			t.Errorf("%d connections left open", n.Open())
		}
	})
}

func TestTierLastReportToHungNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		n.Hang()
		s := script{last: []wire.Command{report(0, incr("k"))}, hits: 7}
		_, stop := s.run(t, n)
		start := time.Now()
		var incomplete *memcached.IncompleteError
		if err := stop(); !errors.As(err, &incomplete) || incomplete.Hits != 7 {
			t.Errorf("%v, want that 7 hits are left", err)
		}
		if d := time.Since(start); d > time.Second+pop.Tick {
			t.Errorf("took %v", d)
		}
	})
}

func TestTierSurvivesPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		s := script{panics: 3}
		tier, stop := s.run(t, n)
		defer stop()
		time.Sleep(10 * pop.Tick)
		s.say(report(0, add("k", "1")))
		tier.Wake()
		time.Sleep(pop.Tick)
		if rs, _ := s.take(); len(rs) != 1 || tier.Stats().Panics != 3 {
			t.Errorf("%d results, %d panics counted", len(rs), tier.Stats().Panics)
		}
	})
}

// However a node behaves, it is dialled no more often than it must be.
func TestTierFlappingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		var s script
		tier, stop := s.run(t, n)
		defer stop()
		for i := range 10_000 {
			switch i % 2000 {
			case 0:
				must(t, n.Restart())
			case 1000:
				n.Kill()
			}
			s.say(report(0, incr("k")), set("k", "1"), get("k"), add("l", "1"))
			tier.Wake()
			time.Sleep(time.Millisecond)
		}
		if d := tier.Stats().Nodes[0].Dials; d > 4+100 {
			t.Errorf("%d dials in 10 s", d)
		}
		rs, _ := s.take()
		var by [wire.Unknown + 1]int
		for _, r := range rs {
			by[r.Status]++
		}
		if by[wire.Done]+by[wire.NotThere] < 4*3500 || by[wire.Unknown] > 5*20 {
			t.Errorf("done %d, not there %d, unsent %d, unknown %d", by[wire.Done], by[wire.NotThere], by[wire.Unsent], by[wire.Unknown])
		}
	})
}
