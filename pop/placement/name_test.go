package placement_test

import (
	"strings"
	"testing"

	"sluice/pop/placement"
)

func TestCanonical(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		if got, err := placement.Canonical(name); got != want || err != nil {
			t.Errorf("%q: %q (%v), want %q", name, got, err, want)
		}
		if again, err := placement.Canonical(want); again != want || err != nil {
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
		if got, err := placement.Canonical(name); err == nil || !strings.Contains(err.Error(), says) {
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

func FuzzCanonical(f *testing.F) {
	for _, name := range []string{"LOCALHOST.:011211", "[::ffff:192.0.2.1]:1", "[2001:DB8::1]:65535", "::1:1", "a.b.:1", "[fe80::1%a:b]:1"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		c, err := placement.Canonical(name)
		if err != nil {
			return
		}
		if again, err := placement.Canonical(c); again != c || err != nil {
			t.Errorf("%q becomes %q, and that %q (%v)", name, c, again, err)
		}
	})
}
