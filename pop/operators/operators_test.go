package operators_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/operatorlog"
	"sluice/pop/operators"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

var began = time.Unix(1_700_000_000, 0)

func someone(n byte) counter.Source {
	return counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, n}), 32, 64)
}

func announcing(kind operatorlog.Kind, n byte) operatorlog.Order {
	w := operatorlog.Order{Rule: "login", Source: someone(n), Kind: kind, Start: began, Reason: "because"}
	if kind == operatorlog.Block {
		w.End = began.Add(time.Hour)
	}
	return w
}

// edge is a List and the table on which it puts words in force.
type edge struct {
	*operators.List
	rule *algorithm.Spec
	bits *mitigation.Table
}

func (e *edge) key(n byte) mitigation.Key {
	return mitigation.Key{Rule: e.rule.ID, Source: someone(n)}
}

// blocked reports whether an operator's block of a source is in force.
func (e *edge) blocked(n byte, now time.Time) bool {
	bit, there := e.bits.Get(e.key(n), now)
	return there && bit.By == mitigation.ByAdmin && bit.End.Equal(began.Add(time.Hour)) && bit.Reason == "because"
}

func newEdge(t testing.TB, id uint64) *edge {
	t.Helper()
	rule, err := algorithm.NewSliding("login source enforce", 5, time.Minute, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	e := &edge{rule: rule, bits: mitigation.New(1000, nil)}
	e.List = operators.New(operators.Config{Secret: secret.Of([]byte("test")), ID: id, Blocks: e.bits,
		Counters: counter.New(counter.Options{Counters: 1000, Tier: true}), Jitter: func(d time.Duration) time.Duration { return d }}, began)
	e.SetRules(operators.Rules{"login": {{Counter: rule}}})
	return e
}

// TestRestoredListIsInForce at once, and lifts in it do not lift what was handed over with it.
func TestRestoredListIsInForce(t *testing.T) {
	first := newEdge(t, 1)
	for n, word := range []operatorlog.Order{announcing(operatorlog.Block, 1), announcing(operatorlog.Lift, 2)} {
		if _, err := first.Add(word, began); err != nil {
			t.Fatal(n, err)
		}
	}
	kept, changed := first.Encoded(began)
	select {
	case <-changed:
		t.Error("changed, and nobody said anything")
	default:
	}
	next := newEdge(t, 1)
	if err := next.Restore(kept, began); err != nil {
		t.Fatal(err)
	}
	after := next.key(2) // mitigated after it was lifted
	next.bits.Start(after, mitigation.Bit{Start: began, End: began.Add(time.Hour), By: mitigation.ByPoP}, began)
	if next.Apply(began); next.Epoch(next.rule, someone(2)) == 0 {
		t.Error("no epoch")
	}
	if next.bits.Until(after, began).IsZero() {
		t.Error("a mitigation was lifted that had begun after the lift")
	}
	if !next.blocked(1, began) {
		t.Error("a block is not in force")
	}
	if err := next.Restore(kept[:len(kept)-1], began); !errors.Is(err, operatorlog.ErrList) {
		t.Errorf("a list that is cut: %v", err)
	}
	if _, err := first.Add(announcing(operatorlog.Block, 3), began); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("a word was said, and nobody is told")
	}
}

// store is a node that has values by key, and counts commands; while it is down it answers none.
type store struct {
	values   map[string][]byte
	down     bool
	commands int
}

// look has an edge look at the node's copy, and goes on as long as a command follows. It reports whether it was time to.
func (s *store) look(e *edge, n *operators.Node, now time.Time) (due bool) {
	c, due := e.Look(n, 0, now)
	for follows := due; follows; {
		s.commands++
		r := &wire.Result{Command: c, Status: wire.Done}
		switch {
		case s.down:
			r.Status = wire.Unsent
		case c.Op == wire.Get:
			r.Values = [][]byte{s.values[c.Key]}
		case c.Op == wire.Set:
			s.values[c.Key] = c.Value
		case c.Op == wire.Delete:
			delete(s.values, c.Key)
			return due
		}
		c, follows = e.Answered(n, r, now)
	}
	return due
}

// TestListTravels by a node, from the edge where something was said to one that hears of it there; while nothing is said an edge asks for
// the head alone, and what is forged or lost is written again.
func TestListTravels(t *testing.T) {
	a, b := newEdge(t, 1), newEdge(t, 2)
	node := &store{values: make(map[string][]byte)}
	var ofA, ofB operators.Node
	now := began
	if node.look(a, &ofA, now); len(node.values) != 0 || node.commands != 1 {
		t.Errorf("%d values of nobody's words, after %d commands", len(node.values), node.commands)
	}
	if node.look(a, &ofA, now) {
		t.Error("looked again at once")
	}
	now = now.Add(time.Millisecond)
	if _, err := a.Add(announcing(operatorlog.Block, 1), now); err != nil {
		t.Fatal(err)
	}
	if !node.look(a, &ofA, now) || len(node.values) != 2 {
		t.Fatalf("%d values after something was said, want a list and a head", len(node.values))
	}
	node.look(b, &ofB, now)
	if b.Apply(now); !b.blocked(1, now) {
		t.Error("the other edge has not heard")
	}
	quiet := func(what string, want int) {
		t.Helper()
		now, node.commands = now.Add(time.Second), 0
		node.look(a, &ofA, now)
		node.look(b, &ofB, now)
		if node.commands != want {
			t.Errorf("%s: %d commands, want %d", what, node.commands, want)
		}
	}
	quiet("nothing was said", 2)
	for key, value := range node.values {
		node.values[key] = append([]byte("x"), value...)
	}
	quiet("both are forged", 1+2+1) // a cannot open the head, and writes both; b finds all well
	for key, value := range node.values {
		if len(value) > 100 { // the list: who reads it, as an edge does that is new, drops the head
			node.values[key] = append([]byte("x"), value...)
		}
	}
	c := newEdge(t, 3)
	var ofC operators.Node
	if node.look(c, &ofC, now); len(node.values) != 1 || c.Forged() != 1 || a.Forged() != 1 {
		t.Errorf("%d values and %d, %d forged", len(node.values), c.Forged(), a.Forged())
	}
	quiet("there is no head", 1+2+1)
	now = now.Add(time.Second)
	node.look(c, &ofC, now)
	if c.Apply(now); !c.blocked(1, now) || c.Len() != 1 {
		t.Error("a new edge has not heard")
	}
	node.down = true
	quiet("the node is down", 2)
	node.down = false
	if now = now.Add(50 * time.Millisecond); !node.look(a, &ofA, now) { // headHasty
		t.Error("no look soon after a command failed")
	}
}

// TestEpochCostsNothing while nobody was lifted.
func TestEpochCostsNothing(t *testing.T) {
	e := newEdge(t, 1)
	if n := testing.AllocsPerRun(100, func() {
		if e.Epoch(e.rule, someone(1)) != 0 {
			t.Error("an epoch of nothing")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestVariantsHaveTheEpochOfTheirRule.
func TestVariantsHaveTheEpochOfTheirRule(t *testing.T) {
	e := newEdge(t, 1)
	variant, err := algorithm.NewSliding("login of a plan", 50, time.Minute, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	e.SetRules(operators.Rules{"login": {{Counter: e.rule, Timeout: time.Minute}, {Counter: variant, Timeout: time.Minute, VariantOf: e.rule.ID}}})
	if _, err := e.Add(announcing(operatorlog.Lift, 1), began); err != nil {
		t.Fatal(err)
	}
	e.Apply(began)
	if of, its := e.Epoch(e.rule, someone(1)), e.Epoch(variant, someone(1)); of == 0 || its != of {
		t.Errorf("the rule's is %d, its variant's %d", of, its)
	}
	if other := e.Epoch(variant, someone(2)); other != 0 {
		t.Errorf("a source that nobody lifted has %d", other)
	}
}
