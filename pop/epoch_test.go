package pop

import (
	"net/netip"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// TestEpochCostsNothing while nobody was lifted.
func TestEpochCostsNothing(t *testing.T) {
	rule, err := algorithm.NewRule("login source enforce", 5, time.Minute, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMachine(Config{Nodes: []string{"node:11211"}, Secret: secret.Of([]byte("test")), ID: 1,
		Counters: counter.New(counter.Options{Counters: 1000, Tier: true}), Bits: mitigation.New(1000, nil)}, time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	m.SetRules([]Rule{{Name: "login", Counter: rule, Timeout: time.Minute}})
	source := counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 32, 64)
	if n := testing.AllocsPerRun(100, func() {
		if m.Operators.Epoch(rule, source) != 0 {
			t.Error("an epoch of nothing")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
