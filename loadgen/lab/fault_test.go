package lab

import (
	"strings"
	"testing"
	"time"
)

func TestParseFault(t *testing.T) {
	good := func(in string, want Fault) {
		t.Helper()
		got, err := ParseFault(in)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", in, got, err, want)
		}
		if again, err := ParseFault(got.String()); err != nil || again != got {
			t.Errorf("%q is written %q and read as %+v, %v", in, got, again, err)
		}
	}
	good("20s kill memcached/0", Fault{20 * time.Second, Kill, "memcached", 0})
	good("0s term edge/12", Fault{0, Term, "edge", 12})
	good("  1m30s  stop\ttwemproxy/1 ", Fault{90 * time.Second, Stop, "twemproxy", 1})
	good("1.5s cont twemproxy/1", Fault{1500 * time.Millisecond, Cont, "twemproxy", 1})
	good("3s kill wall/0", Fault{3 * time.Second, Kill, "wall", 0})
	good("250ms restart origin/0", Fault{250 * time.Millisecond, Restart, "origin", 0})

	bad := func(in, want string) {
		t.Helper()
		_, err := ParseFault(in)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), in) {
			t.Errorf("%q: error %v, want one that names it and says %q", in, err, want)
		}
	}
	bad("", "20s kill memcached/0")
	bad("20s kill", "20s kill memcached/0")
	bad("20s kill edge/0 edge/1", "20s kill memcached/0")
	bad("20 kill edge/0", "no time")
	bad("-1s kill edge/0", "no time")
	bad("1s explode edge/0", "no action explode")
	bad("1s KILL edge/0", "no action KILL")
	bad("1s kill edge", "no target edge")
	bad("1s kill edge/", "no target")
	bad("1s kill edge/-1", "no target")
	bad("1s kill edge/01", "no target")
	bad("1s kill edge/99999", "no target")
	bad("1s kill router/0", "no target router/0")
}
