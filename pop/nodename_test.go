package pop_test

import (
	"strings"
	"testing"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop"
)

func TestCanonicalNode(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		if got, err := pop.CanonicalNode(name); got != want || err != nil {
			t.Errorf("%q: %q (%v), want %q", name, got, err, want)
		}
		if again, err := pop.CanonicalNode(want); again != want || err != nil {
			t.Errorf("%q is canonical, and becomes %q (%v)", want, again, err)
		}
	}
	f("localhost:11211", "localhost:11211")
	f("LOCALHOST.:011211", "localhost:11211")
	f("Cache-1.Example.COM.:1", "cache-1.example.com:1")
	f("a_b:65535", "a_b:65535")
	f("127.0.0.1:11211", "127.0.0.1:11211")
	f("[127.0.0.1]:11211", "127.0.0.1:11211")
	f("[::ffff:192.0.2.1]:11211", "192.0.2.1:11211")
	f("[::FFFF:c000:0201]:11211", "192.0.2.1:11211")
	f("[2001:DB8:0:0::1]:11211", "[2001:db8::1]:11211")
	f("[fe80::1%eth0]:11211", "[fe80::1%eth0]:11211")

	bad := func(name, says string) {
		t.Helper()
		if got, err := pop.CanonicalNode(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %q, %v, want %q", name, got, err, says)
		}
	}
	bad("", "a node without a name")
	bad("localhost", `"localhost" is not the address of a node: it has no port: want HOST:PORT, such as localhost:11211`)
	bad(":11211", "it has no host")
	bad("[]:11211", "it has no host")
	bad("localhost:", "want a port from 1 to 65535")
	bad("localhost:0", "want a port from 1 to 65535")
	bad("localhost:65536", "want a port from 1 to 65535")
	bad("localhost:+1", "want a port from 1 to 65535")
	bad("localhost:http", "want a port from 1 to 65535")
	bad("::1:11211", "want [IPV6]:PORT")
	bad("[::1:11211", "want HOST:PORT or [IPV6]:PORT")
	bad("[localhost]:11211", "want the name of a host")
	bad("[::1]", "") // where its port would begin is not clear
	bad("127.1:11211", "want the name of a host")
	bad("0x7f000001:11211", "want the name of a host")
	bad("256.0.0.1:11211", "want the name of a host")
	bad("a..b:11211", "want the name of a host")
	bad("a b:11211", "want the name of a host")
	bad("http://a:11211", "want [IPV6]:PORT")
	bad("häuschen:11211", "want the name of a host")
	bad(strings.Repeat("a", 64)+":1", "want the name of a host")
}

func FuzzCanonicalNode(f *testing.F) {
	for _, name := range []string{"LOCALHOST.:011211", "[::ffff:192.0.2.1]:1", "[2001:DB8::1]:65535", "::1:1", "a.b.:1", "[fe80::1%a:b]:1"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		c, err := pop.CanonicalNode(name)
		if err != nil {
			return
		}
		if again, err := pop.CanonicalNode(c); again != c || err != nil {
			t.Errorf("%q becomes %q, and that %q (%v)", name, c, again, err)
		}
	})
}

// TestNodesAreNamedOnce: however a node is spelled, it is one, and sources are placed alike by all edges.
func TestNodesAreNamedOnce(t *testing.T) {
	machine := func(nodes ...string) (*pop.Machine, error) {
		secret := pop.SecretOf([]byte("test"))
		table := counter.New(counter.Options{Counters: 1000, Tier: true, Phase: secret.Phase})
		return pop.NewMachine(pop.Config{Nodes: nodes, Secret: secret, ID: 1, Counters: table, Bits: mitigation.New(100, nil)}, began)
	}
	for _, c := range []struct {
		nodes []string
		says  string
	}{
		{nil, "no memcached node"},
		{[]string{"LOCALHOST:11211", "localhost:11211"}, `"LOCALHOST:11211" and "localhost:11211" are the same node: name it once`},
		{[]string{"a:1", "[::ffff:192.0.2.1]:1", "192.0.2.1:01"}, `"[::ffff:192.0.2.1]:1" and "192.0.2.1:01" are the same node`},
		{[]string{"a:1", ""}, "a node without a name"},
	} {
		if _, err := machine(c.nodes...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.nodes, err, c.says)
		}
	}
	one, err1 := machine("cache-1.example:11211", "cache-2.example:11211", "[2001:db8::1]:11211")
	other, err2 := machine("CACHE-1.example.:011211", "Cache-2.Example:11211", "[2001:db8:0::1]:11211")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	for s := range uint32(1000) {
		if a, b := pop.Place(one, address(s)), pop.Place(other, address(s)); a != b {
			t.Fatalf("source %d is on node %d of one edge and on %d of the other", s, a, b)
		}
	}
}
