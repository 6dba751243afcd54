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
	good("20s kill memcached/0", Fault{At: 20 * time.Second, Action: Kill, Kind: "memcached", Index: 0})
	good("0s term edge/12", Fault{At: 0, Action: Term, Kind: "edge", Index: 12})
	good("  1m30s  stop\ttwemproxy/1 ", Fault{At: 90 * time.Second, Action: Stop, Kind: "twemproxy", Index: 1})
	good("1.5s cont twemproxy/1", Fault{At: 1500 * time.Millisecond, Action: Cont, Kind: "twemproxy", Index: 1})
	good("3s kill wall/0", Fault{At: 3 * time.Second, Action: Kill, Kind: "wall", Index: 0})
	good("250ms restart origin/0", Fault{At: 250 * time.Millisecond, Action: Restart, Kind: "origin", Index: 0})
	good("20s step-clock edge/1 -5s", Fault{At: 20 * time.Second, Action: StepClock, Kind: "edge", Index: 1, By: -5 * time.Second})

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
	bad("1s step-clock edge/0", "step-clock edge/1 -5s")
	bad("1s step-clock edge/0 5", "no step of a clock")
	bad("1s step-clock edge/0 0s", "no step of a clock")
	bad("1s step-clock memcached/0 5s", "edge/N instead of memcached/0")
	bad("1s kill edge/0 5s", "20s kill memcached/0")
}
