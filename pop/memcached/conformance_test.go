package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pop/memcached"
	"sluice/pop/poptest"
	"sluice/pop/wire"
)

// do carries out one command and waits for its result.
type do func(wire.Command) wire.Result

// conformance is what Sluice expects of a node, whoever it is and however it is reached. Keys persist from line to line.
var conformance = []struct {
	command wire.Command
	status  wire.Status
	number  uint64
	values  []string // of a get; "-" is none
}{
	// Increments count only what is there.
	{command: incr("n"), status: wire.NotThere},
	{command: add("n", "00000000000000000041"), status: wire.Done},
	{command: add("n", "7"), status: wire.NotThere},
	{command: incr("n"), number: 42},
	{command: wire.Command{Op: wire.Incr, Key: "n", Delta: 1 << 48}, number: 42 + 1<<48},
	{command: wire.Command{Op: wire.Incr, Key: "n", Delta: 0}, number: 42 + 1<<48},
	// A number stays as long as what was there, which keeps it in place.
	{command: get("n"), values: []string{"281474976710698     "}},
	{command: add("short", "9"), status: wire.Done},
	{command: incr("short"), number: 10},
	{command: get("short"), values: []string{"10"}},
	// 64 bits, and around.
	{command: set("big", "09223372036854775807"), status: wire.Done},
	{command: incr("big"), number: 1 << 63},
	{command: wire.Command{Op: wire.Incr, Key: "big", Delta: 1<<63 - 1}, number: 1<<64 - 1},
	{command: wire.Command{Op: wire.Incr, Key: "big", Delta: 5}, number: 4},
	{command: get("big"), values: []string{"4" + strings.Repeat(" ", 19)}},
	// What is no number says so, and stays.
	{command: set("word", "word"), status: wire.Done},
	{command: incr("word"), status: wire.Unsent},
	{command: get("word"), values: []string{"word"}},
	{command: set("nothing", ""), status: wire.Done},
	{command: get("nothing"), values: []string{""}},
	{command: incr("nothing"), status: wire.Unsent},
	// A value may hold what looks like the end of an answer.
	{command: set("log", "a\nb\r\nEND\r\n"), status: wire.Done},
	{command: get("log"), values: []string{"a\nb\r\nEND\r\n"}},
	// Reads of several keys answer for each.
	{command: get("none", "short", "nil", "log", "word"), values: []string{"-", "10", "-", "a\nb\r\nEND\r\n", "word"}},
	{command: get("none"), values: []string{"-"}},
	// Delete.
	{command: wire.Command{Op: wire.Delete, Key: "short"}, status: wire.Done},
	{command: wire.Command{Op: wire.Delete, Key: "short"}, status: wire.NotThere},
	{command: incr("short"), status: wire.NotThere},
	// A value that nobody has stored since it was read may be replaced; who has missed a change, by whatever command, may not.
	{command: gets("cas"), values: []string{"-"}},
	{command: cas("cas", "1", 1), status: wire.NotThere},
	{command: add("cas", "1"), status: wire.Done},
	{command: gets("cas"), values: []string{"1"}},
	{command: cas("cas", "a\r\nb", read), status: wire.Done},
	{command: get("cas"), values: []string{"a\r\nb"}},
	{command: cas("cas", "late", read), status: wire.NotThere},
	{command: gets("cas"), values: []string{"a\r\nb"}},
	{command: set("cas", "2"), status: wire.Done},
	{command: cas("cas", "late", read), status: wire.NotThere},
	{command: gets("cas"), values: []string{"2"}},
	{command: incr("cas"), number: 3},
	{command: cas("cas", "late", read), status: wire.NotThere},
	{command: gets("cas"), values: []string{"3"}},
	{command: wire.Command{Op: wire.Delete, Key: "cas"}, status: wire.Done},
	{command: add("cas", "3"), status: wire.Done},
	{command: cas("cas", "late", read), status: wire.NotThere},
	{command: get("cas"), values: []string{"3"}},
	// The longest key there may be.
	{command: add(strings.Repeat("k", 250), "1"), status: wire.Done},
	{command: incr(strings.Repeat("k", 250)), number: 2},
	// An expiry of up to thirty days is one; beyond, it would mean a date in 1970.
	{command: wire.Command{Op: wire.Set, Key: "month", Value: []byte("1"), Expire: 30 * 24 * 3600}, status: wire.Done},
	{command: get("month"), values: []string{"1"}},
	{command: wire.Command{Op: wire.Set, Key: "gone", Value: []byte("1"), Expire: 30*24*3600 + 1}, status: wire.Done},
	{command: get("gone"), values: []string{"-"}},
}

// read stands for the version that the script read last.
const read = 1 << 62

func gets(key string) wire.Command { return wire.Command{Op: wire.Gets, Key: key, Report: true} }

func cas(key, value string, version uint64) wire.Command {
	return wire.Command{Op: wire.Cas, Key: key, Value: []byte(value), Delta: version, Report: true}
}

// conform runs the script.
func conform(t *testing.T, node do) {
	t.Helper()
	version := uint64(0)
	for i, c := range conformance {
		if c.command.Op == wire.Cas && c.command.Delta == read {
			c.command.Delta = version
		}
		r := node(c.command)
		if r.Op == wire.Gets {
			version = r.Number
		}
		name := fmt.Sprintf("line %d: %s %.40s", i, c.command.Op, c.command.Key)
		switch {
		case r.Status != c.status:
			t.Errorf("%s: %v (%v), want %v", name, r.Status, r.Err, c.status)
		case r.Status == wire.Unsent && r.Op == wire.Incr && !errors.Is(r.Err, wire.ErrNotNumber):
			t.Errorf("%s: %v, want that it is no number", name, r.Err)
		case r.Op == wire.Incr && r.Number != c.number:
			t.Errorf("%s: %d, want %d", name, r.Number, c.number)
		case r.Op.Reads() && len(r.Values) != len(c.values):
			t.Errorf("%s: %d values, want %d", name, len(r.Values), len(c.values))
		case r.Op.Reads():
			for j, v := range r.Values {
				got := string(v)
				if v == nil {
					got = "-"
				}
				if got != c.values[j] {
					t.Errorf("%s: value %d: %.40q, want %.40q", name, j, got, c.values[j])
				}
			}
		}
	}
}

func TestConformance(t *testing.T) {
	t.Run("in memory", func(t *testing.T) {
		n := poptest.New(0)
		now := time.Now()
		conform(t, func(c wire.Command) wire.Result { return n.Do(now, c) })
	})
	servers := map[string]func(t *testing.T) (address string){
		"in memory, over a socket": func(t *testing.T) string {
			n := poptest.New(0)
			t.Cleanup(n.Close)
			address, err := n.Listen()
			must(t, err)
			return address
		},
	}
	maps.Copy(servers, programs)
	for name, serve := range servers {
		t.Run(name+"/pipeline", func(t *testing.T) { conform(t, overPipeline(t, serve(t))) })
		t.Run(name+"/gomemcache", func(t *testing.T) {
			c := memcached.NewClient(new(net.Dialer).DialContext, serve(t))
			t.Cleanup(c.Close)
			conform(t, patiently(c.Do))
			if c.Panics() > 0 {
				t.Errorf("%d panics", c.Panics())
			}
		})
	}
}

// patiently sends a command again while there is no connection: gomemcache closes its connection with every error that
// it gets, and a new one has to wait for its turn.
func patiently(node do) do {
	return func(c wire.Command) (r wire.Result) {
		deadline := time.Now().Add(time.Minute)
		for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
			if r = node(c); !memcached.NotConnected(r.Err) || time.Now().After(deadline) {
				return r
			}
		}
	}
}

func overPipeline(t *testing.T, address string) do {
	results := make(chan wire.Result, 1)
	p := memcached.NewPipeline(new(net.Dialer).DialContext, address, func(rs []wire.Result) {
		for _, r := range rs {
			results <- r
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if closed, timeout, wrong := p.Drops(); closed+timeout+wrong > 0 || p.Dials() != 1 {
			t.Errorf("connection lost: closed %d, silent %d, wrong %d; %d dials", closed, timeout, wrong, p.Dials())
		}
	})
	return func(c wire.Command) wire.Result {
		p.Send([]wire.Command{c})
		return <-results
	}
}

// The part of the script that needs time to pass, which only the node in memory can do without waiting.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		direct := func(c wire.Command) wire.Result { return n.Do(time.Now(), c) }
		c := memcached.NewClient(n.Dial, "node:11211")
		defer c.Close()
		for _, node := range []do{direct, c.Do} {
			node(wire.Command{Op: wire.Set, Key: "k", Value: []byte("1"), Expire: 10})
			time.Sleep(8 * time.Second)
			if r := node(incr("k")); r.Number != 2 {
				t.Errorf("after 8 s of 10: %d (%v), want 2", r.Number, r.Status)
			}
			time.Sleep(2 * time.Second) // an incr does not prolong it
			if r := node(incr("k")); r.Status != wire.NotThere {
				t.Errorf("after 10 s of 10: %v, want none", r.Status)
			}
			if r := node(add("k", "1")); r.Status != wire.Done {
				t.Errorf("add after expiry: %v", r.Status)
			}
			node(wire.Command{Op: wire.Delete, Key: "k"})
			// Seconds are coarse: an expiry of 1 ends with the second.
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1900 * time.Millisecond)))
			node(wire.Command{Op: wire.Set, Key: "brief", Value: []byte("1"), Expire: 1})
			time.Sleep(150 * time.Millisecond)
			if r := node(get("brief")); r.Values[0] != nil {
				t.Errorf("an expiry of 1 set late in a second lived into the next by more than its rest")
			}
		}
	})
}

// An evicting node drops first what nobody reads, and a counter that is only incremented is such a one.
func TestEviction(t *testing.T) {
	n := poptest.New(100)
	now := time.Now()
	n.Do(now, add("read", "0"))
	n.Do(now, add("counted", "0"))
	for i := range 1000 {
		n.Do(now, add(fmt.Sprint("other", i), "0"))
		n.Do(now, incr("counted"))
		n.Do(now, get("read"))
	}
	r := n.Do(now, get("read", "counted"))
	if r.Values[0] == nil || r.Values[1] != nil || n.Items() != 100 || n.Evicted() != 902 {
		t.Errorf("%q; %d items, %d evicted", r.Values, n.Items(), n.Evicted())
	}
}
