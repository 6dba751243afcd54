package memcached_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"sluice/pop"
	"sluice/pop/memcached"
	"sluice/pop/poptest"
	"sluice/pop/wire"
)

func set(key, value string) wire.Command {
	return wire.Command{Op: wire.Set, Key: key, Value: []byte(value), Expire: 60}
}

// Whatever a node says to gomemcache, there is no panic, no memory taken for a length that cannot be, and an outcome within
// the time that an exchange may take. The next command is carried out on a fresh connection.
func TestClientWrongAnswers(t *testing.T) {
	reply := func(s string) poptest.Reply { return poptest.Reply{Bytes: []byte(s)} }
	for _, c := range []struct {
		name    string
		command wire.Command
		answer  poptest.Reply
		want    wire.Status
	}{
		{"incr: honest", incr("k"), reply("7\r\n"), wire.Done},
		{"incr: empty line", incr("k"), reply("\r\n"), wire.Unknown},
		{"incr: bare newline", incr("k"), reply("\n"), wire.Unknown},
		{"incr: client error", incr("k"), reply("CLIENT_ERROR \r\n"), wire.Unknown},
		{"incr: client error, cut", incr("k"), reply("CLIENT_ERROR \n"), wire.Unknown},
		{"incr: not a number there", incr("k"), reply("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"), wire.Unsent},
		{"incr: server error", incr("k"), reply("SERVER_ERROR Connection refused\r\n"), wire.Unknown},
		{"incr: negative", incr("k"), reply("-7\r\n"), wire.Unknown},
		{"incr: cut", incr("k"), poptest.Reply{Bytes: []byte("12"), Close: true}, wire.Unknown},
		{"incr: endless", incr("k"), reply(strings.Repeat("1", 10_000)), wire.Unknown},
		{"incr: silence", incr("k"), poptest.Reply{Wait: 400 * time.Millisecond}, wire.Unknown},
		{"incr: one byte at a time", incr("k"), poptest.Reply{Bytes: []byte("12345\r\n"), Each: 100 * time.Millisecond}, wire.Unknown},
		{"incr: two answers", incr("k"), reply("7\r\n8\r\n"), wire.Unknown},
		{"incr: unasked value", incr("k"), reply("VALUE k 0 1\r\n7\r\nEND\r\n"), wire.Unknown},
		{"add: number", add("k", "1"), reply("7\r\n"), wire.Unknown},
		{"add: no memory", add("k", "1"), reply("SERVER_ERROR out of memory storing object\r\n"), wire.Unsent},
		{"get: honest", get("k"), reply("VALUE k 0 1 1\r\n7\r\nEND\r\n"), wire.Done},
		{"get: another key", get("k"), reply("VALUE j 0 1 1\r\n7\r\nEND\r\n"), wire.Unknown},
		{"get: another key of several", get("k", "l"), reply("VALUE j 0 1 1\r\n7\r\nVALUE l 0 1 1\r\n7\r\nEND\r\n"), wire.Unknown},
		{"get: huge length", get("k", "l"), reply("VALUE k 0 4294967295 1\r\n"), wire.Unknown},
		{"get: negative length", get("k"), reply("VALUE k 0 -1 1\r\n"), wire.Unknown},
		{"get: wrong length", get("k"), reply("VALUE k 0 1 1\r\n777\r\nEND\r\n"), wire.Unknown},
		{"get: a part, then an error", get("k", "l"), reply("VALUE k 0 1 1\r\n7\r\nSERVER_ERROR \r\n"), wire.Unknown},
		{"get: drips line by line", get("k", "l"), poptest.Reply{Bytes: []byte("VALUE k 0 1 1\r\n7\r\nEND\r\n"), Each: 50 * time.Millisecond}, wire.Unknown},
		{"delete: number", wire.Command{Op: wire.Delete, Key: "k"}, reply("7\r\n"), wire.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := poptest.New(0)
				defer n.Close()
				mc := memcached.NewClient(n.Dial, "node:11211")
				defer mc.Close()
				n.Misbehave(func(string, []byte) poptest.Reply { return c.answer })
				start := time.Now()
				r := mc.Do(c.command)
				if r.Status != c.want || (r.Err == nil) != (r.Status == wire.Done) {
					t.Errorf("%v (%v), want %v", r.Status, r.Err, c.want)
				}
				if d := time.Since(start); d > 250*time.Millisecond {
					t.Errorf("took %v", d)
				}
				n.Misbehave(nil)
				if r := mc.Do(set("after", "1")); r.Status != wire.Done {
					t.Errorf("afterwards: %v (%v)", r.Status, r.Err)
				}
				if mc.Panics() > 0 {
					t.Errorf("%d panics reached us: the guard has a hole", mc.Panics())
				}
			})
		})
	}
}

// After a restart of its node a pooled connection is dead. The pool is dropped with the first operation that any of the
// node's connections loses, so that this one costs none.
func TestClientAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		mc := memcached.NewClient(n.Dial, "node:11211")
		defer mc.Close()
		if r := mc.Do(set("k", "1")); r.Status != wire.Done {
			t.Fatal(r.Err)
		}
		n.Restart()
		mc.Lost() // as the pipeline does, whose reader sees it at once
		if r := mc.Do(set("k", "1")); r.Status != wire.Done {
			t.Errorf("%v (%v), want done", r.Status, r.Err)
		}
		if mc.Dials() != 2 {
			t.Errorf("%d dials, want 2", mc.Dials())
		}
		n.Kill()
		if r := mc.Do(set("k", "1")); r.Status != wire.Unknown {
			t.Errorf("on a lost connection: %v (%v), want unknown", r.Status, r.Err)
		}
		if r := mc.Do(set("k", "1")); r.Status != wire.Unsent {
			t.Errorf("on none: %v (%v), want unsent", r.Status, r.Err)
		}
		if r := mc.Do(set("k", "1")); r.Status != wire.Unsent || !errors.Is(r.Err, memcached.ErrBackoff) {
			t.Errorf("right after: %v (%v), want unsent for a while", r.Status, r.Err)
		}
	})
}

// These are gomemcache's own traps, for which the guard and the check of keys exist. When one of these tests fails, gomemcache has
// become better, and some of that can go.
func TestGomemcacheTraps(t *testing.T) {
	raw := func(n *poptest.Node) *memcache.Client {
		c := memcache.New("127.0.0.1:1")
		c.DialContext = n.Dial
		c.Timeout = 200 * time.Millisecond
		return c
	}
	say := func(n *poptest.Node, s string) {
		n.Misbehave(func(string, []byte) poptest.Reply { return poptest.Reply{Bytes: []byte(s)} })
	}
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return
	}
	for name, f := range map[string]func(t *testing.T, n *poptest.Node, c *memcache.Client){
		"panics on an empty line": func(t *testing.T, n *poptest.Node, c *memcache.Client) {
			say(n, "\n")
			if !panics(func() { c.Increment("k", 1) }) {
				t.Error("no panic")
			}
		},
		"panics on an empty client error": func(t *testing.T, n *poptest.Node, c *memcache.Client) {
			say(n, "CLIENT_ERROR \n")
			if !panics(func() { c.Increment("k", 1) }) {
				t.Error("no panic")
			}
		},
		"its timeout is for each line": func(t *testing.T, n *poptest.Node, c *memcache.Client) {
			n.Misbehave(func(string, []byte) poptest.Reply {
				return poptest.Reply{Bytes: []byte("VALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n1\r\nVALUE c 0 1\r\n1\r\nEND\r\n"), Each: 11 * time.Millisecond}
			})
			start := time.Now()
			if _, err := c.GetMulti([]string{"a", "b", "c"}); err != nil || time.Since(start) < 400*time.Millisecond {
				t.Errorf("%v after %v, want success after more than the timeout of 200 ms", err, time.Since(start))
			}
		},
		"it accepts another key's value": func(t *testing.T, n *poptest.Node, c *memcache.Client) {
			say(n, "VALUE other 0 1\r\n1\r\nEND\r\n")
			if it, err := c.Get("k"); err != nil || it.Key != "other" {
				t.Error(it, err)
			}
		},
		"it takes what is left of an answer for the next": func(t *testing.T, n *poptest.Node, c *memcache.Client) {
			say(n, "7\r\n8\r\n")
			c.Increment("k", 1)
			say(n, "100\r\n")
			if v, err := c.Increment("k", 1); err != nil || v != 8 {
				t.Error(v, err)
			}
		},
		"every pooled connection costs an operation after a restart": func(t *testing.T, n *poptest.Node, c *memcache.Client) {
			c.Set(&memcache.Item{Key: "k"})
			n.Restart()
			if err := c.Set(&memcache.Item{Key: "k"}); err == nil {
				t.Error("no error on a dead connection")
			}
			if err := c.Set(&memcache.Item{Key: "k"}); err != nil {
				t.Error(err)
			}
		},
		"increment does not create": func(t *testing.T, n *poptest.Node, c *memcache.Client) {
			if _, err := c.Increment("k", 1); err != memcache.ErrCacheMiss {
				t.Error(err)
			}
		},
		"a number with spaces is none to it": func(t *testing.T, n *poptest.Node, c *memcache.Client) {
			say(n, "7 \r\n")
			if v, err := c.Increment("k", 1); err == nil {
				t.Error(v)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := poptest.New(0)
				defer n.Close()
				c := raw(n)
				defer c.Close()
				f(t, n, c)
			})
		})
	}
	t.Run("new drops an address error", func(t *testing.T) {
		if c := memcache.New("no such address"); c.Ping() != nil {
			t.Error("the error came late, but it came")
		}
		if new(memcache.ServerList).SetServers("no such address") == nil {
			t.Error("no error")
		}
	})
}

func TestNewTierAddresses(t *testing.T) {
	step := func(time.Time, pop.Event) []wire.Command { return nil }
	flush := func(time.Time) []wire.Command { return nil }
	for _, c := range []struct {
		nodes []string
		want  string // of the error; empty: none
	}{
		{[]string{"127.0.0.1:11211", "[::1]:11212", "memcached.example:11211"}, ""},
		{nil, "no node"},
		{[]string{"127.0.0.1"}, `"127.0.0.1"`},
		{[]string{"127.0.0.1:0"}, `"127.0.0.1:0"`},
		{[]string{"127.0.0.1:65536"}, `"127.0.0.1:65536"`},
		{[]string{":11211"}, `":11211"`},
		{[]string{"a:11211", "::1:11211"}, `"::1:11211"`},
		{[]string{"a:http"}, `"a:http"`},
		{[]string{"LOCALHOST:1", "localhost:1"}, `"LOCALHOST:1" and "localhost:1" are the same node`},
	} {
		_, err := memcached.NewScriptedTier(step, flush, nil, c.nodes)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.nodes, err, c.want)
		}
	}
}
