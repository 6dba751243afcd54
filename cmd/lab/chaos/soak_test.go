package chaos

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"sluice/cmd/lab/check"
	"sluice/loadgen/lab"
	"sluice/loadgen/replay"
)

func TestSoakComparesWhatIsHeld(t *testing.T) {
	before := used{goroutines: 60, descriptors: 30, memory: 80e6}
	f := func(goroutines, descriptors, memory float64, want string) {
		t.Helper()
		line, flat := used{goroutines, descriptors, memory, 1}.since(before)
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

// What goes wrong if a round that lost something passes for sound, or one edge that grows is outvoted by others: a soak is kept that should not be.
func TestWhatBreaksASoak(t *testing.T) {
	out := &lab.Outcome{Outcome: &replay.Outcome{Sent: 5, Errors: map[string]int{}}, Happened: []string{"1s kill memcached/0"}}
	if line, sound := soakRound(2, out); !sound || line != "round 2: 1s kill memcached/0; 5 requests, balance exact, no client error" {
		t.Errorf("%t: %s", sound, line)
	}
	out.Balance.Rows = []lab.BalanceRow{{Name: "a, b", Left: 1, Right: 2}}
	if line, sound := soakRound(2, out); sound || !strings.HasSuffix(line, "a, b: 1 IS NOT 2") {
		t.Errorf("%t: %s", sound, line)
	}
	out.Balance.Rows, out.Errors["reset"] = nil, 1
	if line, sound := soakRound(2, out); sound || !strings.Contains(line, "reset: 1") {
		t.Errorf("%t: %s", sound, line)
	}
	little, much := used{60, 30, 80e6, 1}, used{600, 30, 80e6, 1}
	for _, last := range [][]used{{little, little}, {much, little}, {little, much}} {
		c := new(check.Result)
		if flat := flat(c, []used{little, little}, last); flat != (last[0] == last[1]) || len(c.Seen) != 2 {
			t.Errorf("%v: flat is %t; %q", last, flat, c.Seen)
		}
	}
}

// The last edge is the one whose memory counts: nothing ends it. Every kind of fault is done, and has its end in time.
func TestFaultsOfASoak(t *testing.T) {
	s := &lab.Site{NodeProcesses: make([]*lab.Member, 2), EdgeProcesses: make([]*lab.Member, 3)}
	rng := rand.New(rand.NewPCG(1, 2))
	seen := make(map[string]bool)
	for range 400 {
		faults := randomFault(s, rng, time.Minute)
		a, b := faults[0], faults[1]
		if a.Target() != b.Target() || a.At < 0 || b.At-a.At < time.Second || b.At > 40*time.Second || a.By+b.By != 0 {
			t.Fatalf("%v, then %v", a, b)
		}
		seen[string(a.Action)+" "+a.Target()+" "+string(b.Action)] = true
	}
	for _, want := range []string{
		"kill memcached/0 restart", "stop memcached/1 cont", "kill edge/0 restart", "term edge/1 restart", "stop edge/2 cont", "step-clock edge/2 step-clock",
		"kill origin/0 restart", "stop origin/0 cont",
	} {
		if !seen[want] {
			t.Errorf("in 400 rounds no %s: %v", want, seen)
		}
	}
	if seen["kill edge/2 restart"] || seen["term edge/2 restart"] {
		t.Error("the last edge is ended")
	}
}
