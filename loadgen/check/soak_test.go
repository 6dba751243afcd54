package check

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"sluice/loadgen/lab"
)

func TestSoakComparesWhatIsHeld(t *testing.T) {
	before := used{goroutines: 60, descriptors: 30, memory: 80e6}
	f := func(goroutines, descriptors, memory float64, want string) {
		t.Helper()
		line, flat := used{goroutines, descriptors, memory}.since(before)
		if line != want || flat == strings.Contains(want, "GROWS") {
			t.Errorf("flat is %v: %s\nwant %s", flat, line, want)
		}
	}
	f(60, 30, 80e6, "60 and 60 goroutines, 30 and 30 descriptors, 80 and 80 MB")
	f(10, 10, 10e6, "60 and 10 goroutines, 30 and 10 descriptors, 80 and 10 MB")
	f(71, 38, 91e6, "60 and 71 goroutines, 30 and 38 descriptors, 80 and 91 MB")
	f(72, 30, 80e6, "60 and 72 goroutines (IT GROWS), 30 and 30 descriptors, 80 and 80 MB")
	f(60, 39, 80e6, "60 and 60 goroutines, 30 and 39 descriptors (IT GROWS), 80 and 80 MB")
	f(60, 30, 93e6, "60 and 60 goroutines, 30 and 30 descriptors, 80 and 93 MB (IT GROWS)")
}

func TestFaultsOfASoak(t *testing.T) {
	s := &lab.Site{NodeProcesses: make([]*lab.Member, 2), ProxyProcesses: make([]*lab.Member, 1)}
	rng := rand.New(rand.NewPCG(1, 2))
	seen := make(map[string]bool)
	for range 200 {
		faults := tierFault(s, rng, time.Minute)
		a, b := faults[0], faults[1]
		if a.Target() != b.Target() || a.At < 0 || b.At-a.At < time.Second || b.At > 40*time.Second {
			t.Fatalf("%v, then %v", a, b)
		}
		seen[string(a.Action)+" "+a.Target()+" "+string(b.Action)] = true
	}
	for _, want := range []string{"kill memcached/0 restart", "stop memcached/1 cont", "kill twemproxy/0 restart", "stop twemproxy/0 cont"} {
		if !seen[want] {
			t.Errorf("in 200 rounds no %s: %v", want, seen)
		}
	}
}
