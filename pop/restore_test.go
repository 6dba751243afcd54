package pop

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/secret"
	"sluice/pop/words"
)

var listBegan = time.Unix(1_700_000_000, 0)

func someone(n byte) counter.Source {
	return counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, n}), 32, 64)
}

func saying(kind words.Kind, n byte) words.Word {
	w := words.Word{Rule: "login", Source: someone(n), Kind: kind, Start: listBegan, Reason: "because"}
	if kind == words.Block {
		w.End = listBegan.Add(time.Hour)
	}
	return w
}

// TestEpochCostsNothing while nobody was lifted.
func TestEpochCostsNothing(t *testing.T) {
	m := loginMachine(t)
	rule, source := m.rules.Load().byName["login"][0].Counter, someone(1)
	if n := testing.AllocsPerRun(100, func() {
		if m.epoch(rule, source) != 0 {
			t.Error("an epoch of nothing")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func loginMachine(t testing.TB) *Machine {
	t.Helper()
	rule, err := algorithm.NewRule("login source enforce", 5, time.Minute, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMachine(Config{Nodes: []string{"node:11211"}, Secret: secret.Of([]byte("test")), ID: 1,
		Counters: counter.New(counter.Options{Counters: 1000, Tier: true}), Bits: mitigation.New(1000, nil)}, listBegan)
	if err != nil {
		t.Fatal(err)
	}
	m.SetRules([]Rule{{Name: "login", Counter: rule, Timeout: time.Minute}})
	return m
}

// TestRestoredListIsInForce at once, and lifts in it do not lift what was handed over with it.
func TestRestoredListIsInForce(t *testing.T) {
	m := loginMachine(t)
	for n, word := range []words.Word{saying(words.Block, 1), saying(words.Lift, 2)} {
		if _, err := m.Say(word, listBegan); err != nil {
			t.Fatal(n, err)
		}
	}
	kept, changed := m.Words(listBegan)
	select {
	case <-changed:
		t.Error("changed, and nobody said anything")
	default:
	}
	next := loginMachine(t)
	if err := next.Restore(kept, listBegan); err != nil {
		t.Fatal(err)
	}
	rule := next.rules.Load().byName["login"][0].Counter
	after := mitigation.Key{Rule: rule.ID, Source: someone(2)} // mitigated after it was lifted
	next.bits.Start(after, mitigation.Bit{Start: listBegan, End: listBegan.Add(time.Hour), By: mitigation.ByPoP}, listBegan)
	next.Step(listBegan, Event{})
	if next.epoch(rule, someone(2)) == 0 {
		t.Error("no epoch")
	}
	if next.bits.Until(after, listBegan).IsZero() {
		t.Error("a mitigation was lifted that had begun after the lift")
	}
	bit, _ := next.bits.Get(mitigation.Key{Rule: rule.ID, Source: someone(1)}, listBegan)
	if bit.By != mitigation.ByAdmin || !bit.End.Equal(listBegan.Add(time.Hour)) || bit.Reason != "because" {
		t.Errorf("%+v", bit)
	}
	if err := next.Restore(kept[:len(kept)-1], listBegan); !errors.Is(err, words.ErrList) {
		t.Errorf("a list that is cut: %v", err)
	}
	if _, err := m.Say(saying(words.Block, 3), listBegan); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("a word was said, and nobody is told")
	}
}
