package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/counter"
	"sluice/pop/memcached"
	"sluice/pop/poptest"
	"sluice/pop/wire"
)

// far reaches a node over a connection on which every byte takes half a round trip, either way, however many there are.
func far(dial memcached.Dial, roundTrip time.Duration) memcached.Dial {
	carry := func(to, from net.Conn) {
		type piece struct {
			at    time.Time
			bytes []byte
		}
		way := make(chan piece, 1<<16)
		go func() {
			defer close(way)
			for {
				b := make([]byte, 1<<16)
				n, err := from.Read(b)
				if n > 0 {
					way <- piece{time.Now().Add(roundTrip / 2), b[:n]}
				}
				if err != nil {
					return
				}
			}
		}()
		defer to.Close()
		for p := range way {
			time.Sleep(time.Until(p.at))
			if _, err := to.Write(p.bytes); err != nil {
				from.Close()
				_, _ = io.Copy(io.Discard, from)
			}
		}
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		node, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		ours, theirs := net.Pipe()
		go carry(node, theirs)
		go carry(theirs, node)
		return ours, nil
	}
}

// counted adds up what nodes hold of counters.
type counted struct {
	mu   sync.Mutex
	keys map[*poptest.Node]map[string]bool
}

// watch notes what counters a node gets from now on.
func (c *counted) watch(n *poptest.Node) {
	keys := make(map[string]bool)
	if c.keys == nil {
		c.keys = make(map[*poptest.Node]map[string]bool)
	}
	c.keys[n] = keys
	n.Misbehave(func(command string, answer []byte) poptest.Reply {
		if f := strings.Fields(command); (f[0] == "add" || f[0] == "incr") && len(f[1]) == 29 && f[1][0] == 'c' {
			c.mu.Lock()
			keys[f[1]] = true
			c.mu.Unlock()
		}
		return poptest.Reply{Bytes: answer}
	})
}

func (c *counted) hits(t *testing.T) (sum uint64) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, keys := range c.keys {
		for k := range keys {
			v, err := strconv.ParseUint(strings.TrimSpace(string(n.Do(time.Now(), get(k)).Values[0])), 10, 64)
			must(t, err)
			for ; v > 0; v >>= 16 {
				sum += v & 0xffff
			}
		}
	}
	return sum
}

// hit counts a request of a source at an edge, with so many hits.
func (e *edge) hit(s counter.Source, hits uint32) {
	ask := [1]counter.Reservation{{Rule: e.rule.Counter, Source: s, Hits: hits}}
	e.Counters.Reserve(ask[:], time.Now())
}

// TestLastReportIsComplete: however far the nodes are, and however many rounds a counter's hits need, an edge that stops reports all
// that it has counted.
func TestLastReportIsComplete(t *testing.T) {
	for _, roundTrip := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond} {
		t.Run(roundTrip.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const sources, hits, heavy = 40_000, 2, 3000
				nodes, names := newPipes(1)
				defer nodes.close()
				var c counted
				for _, n := range nodes {
					c.watch(n)
				}
				e := startLargeEdge(t, 10*sources, 1, newRule(t, 10_000, time.Minute, time.Minute), names, far(nodes.dial, roundTrip))
				time.Sleep(time.Second)
				for range hits {
					for s := range uint32(sources) {
						e.hit(address(s), 1)
					}
				}
				e.hit(address(sources), heavy) // more than a command carries
				start := time.Now()
				if err := e.stop(); err != nil {
					t.Error(err)
				}
				took := time.Since(start)
				s := e.Counters.Stats()
				if lost := s.LostUnknown + s.LostFull + s.LostExpired + s.LostBacklog + s.LostSaturated + s.LostEvicted; s.Unreported+lost > 0 {
					t.Errorf("%d hits unreported, %d lost", s.Unreported, lost)
				}
				if got := c.hits(t); got != sources*hits+heavy {
					t.Errorf("the nodes hold %d hits, want %d", got, sources*hits+heavy)
				}
				t.Logf("the last report took %v", took)
				time.Sleep(roundTrip) // polls that were under way arrive
			})
		})
	}
}

// TestLastReportWithoutNodes: what cannot be reported is named to the hit, and not waited for long.
func TestLastReportWithoutNodes(t *testing.T) {
	for name, fail := range map[string]func(*poptest.Node){
		"killed": (*poptest.Node).Kill,
		"hung":   (*poptest.Node).Hang,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, names := newPipes(2)
				defer nodes.close()
				e := startLargeEdge(t, 100_000, 1, newRule(t, 10_000, time.Minute, time.Minute), names, nodes.dial)
				time.Sleep(time.Second)
				for s := range uint32(1000) { // these are reported
					e.hit(address(s), 1)
				}
				time.Sleep(100 * time.Millisecond)
				for _, n := range nodes {
					fail(n)
				}
				const hits = 12_345
				for i := range uint32(hits) {
					e.hit(address(i%5000), 1)
				}
				start := time.Now()
				err := e.stop()
				var incomplete *memcached.IncompleteError
				if !errors.As(err, &incomplete) || incomplete.Hits != hits || !strings.Contains(err.Error(), fmt.Sprint(hits)) {
					t.Errorf("%v, want %d hits", err, hits)
				}
				if d := time.Since(start); d > 1500*time.Millisecond {
					t.Errorf("took %v, want about a second", d)
				}
			})
		})
	}
}

// TestLastReportMovesOn: what a node does not take that fails meanwhile goes to the one that is left.
func TestLastReportMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hits = 20_000
		nodes, names := newPipes(2)
		defer nodes.close()
		var c counted
		c.watch(nodes[names[1]])
		e := startLargeEdge(t, 100_000, 1, newRule(t, 10_000, time.Minute, time.Minute), names, nodes.dial)
		time.Sleep(time.Second)
		nodes[names[0]].Kill()
		for i := range uint32(hits) {
			e.hit(address(i%5000), 1)
		}
		err := e.stop()
		lost := e.Counters.Stats().LostUnknown // what was on its way when the connection broke
		if got := c.hits(t); got+lost != hits || lost > wire.MaxKeys*100 {
			t.Errorf("%d hits arrived, %d were lost, of %d: %v", got, lost, hits, err)
		}
		if (err == nil) != (lost == 0) {
			t.Errorf("%d lost: %v", lost, err)
		}
	})
}
