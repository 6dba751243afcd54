package memcached_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pop/memcached"
	"sluice/pop/poptest"
	"sluice/pop/wire"
)

// stopped is a connection of a process that is stopped, as by SIGSTOP, while a deadline passes: it sees that as much
// later as it was stopped for.
type stopped struct {
	net.Conn
	pauses []time.Duration
}

func (c *stopped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && len(c.pauses) > 0 {
		time.Sleep(c.pauses[0])
		c.pauses = c.pauses[1:]
	}
	return n, err
}

// paused reaches a node from a process that is stopped so long, whenever a deadline passes.
func paused(n *poptest.Node, pauses ...time.Duration) memcached.Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := n.Dial(ctx, network, address)
		return &stopped{c, pauses}, err
	}
}

// TestPausedProcess: a process that was stopped finds its connections well, where nodes are; where they are not, it finds that out as
// soon as another would.
func TestPausedProcess(t *testing.T) {
	const stop = 5 * time.Second
	for _, c := range []struct {
		name   string
		pauses []time.Duration
		answer time.Duration // after which the node answers
		want   string
		after  time.Duration
		drops  uint64
	}{
		{"not paused", nil, 1500 * time.Millisecond, "incr unknown", time.Second, 1},
		{"a little late", []time.Duration{100 * time.Millisecond}, 1500 * time.Millisecond, "incr unknown", 1100 * time.Millisecond, 1},
		{"paused", []time.Duration{stop}, 1500 * time.Millisecond, "incr done", stop + time.Second, 0},
		{"paused, and answered a little later", []time.Duration{stop}, stop + 1500*time.Millisecond, "incr done", stop + 1500*time.Millisecond, 0},
		{"paused, and never answered", []time.Duration{stop}, time.Minute, "incr unknown", stop + 2*time.Second, 1},
		{"paused twice", []time.Duration{stop, stop}, time.Minute, "incr unknown", 2*stop + 2*time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := poptest.New(0)
				defer n.Close()
				n.Do(time.Now(), add("k", "1"))
				n.Misbehave(func(_ string, honest []byte) poptest.Reply { return poptest.Reply{Bytes: honest, Wait: c.answer} })
				var o outcomes
				p, stop := start(paused(n, c.pauses...), &o)
				defer stop()
				p.Send([]wire.Command{incr("k")})
				time.Sleep(c.after - time.Millisecond)
				if got := o.take(); len(got) > 0 {
					t.Errorf("too early: %s", statuses(got))
				}
				time.Sleep(2 * time.Millisecond)
				if got := statuses(o.take()); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				if _, timeout, _ := p.Drops(); timeout != c.drops {
					t.Errorf("%d connections dropped, want %d", timeout, c.drops)
				}
			})
		})
	}
}

// The same for single commands, through gomemcache.
func TestPausedProcessAsksOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		n.Do(time.Now(), add("k", "1"))
		n.Misbehave(func(_ string, honest []byte) poptest.Reply {
			return poptest.Reply{Bytes: honest, Wait: 300 * time.Millisecond}
		})
		c := memcached.NewClient(paused(n, 5*time.Second), "node:11211")
		defer c.Close()
		if r := c.Do(get("k")); r.Status != wire.Done || string(r.Values[0]) != "1" {
			t.Errorf("%v %v", r.Status, r.Err)
		}
		if r := c.Do(get("k")); r.Status != wire.Unknown || c.Dials() != 1 {
			t.Errorf("not stopped, and too slow: %v; %d dials", r.Status, c.Dials())
		}
	})
}
