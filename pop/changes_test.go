package pop_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/member"
	"sluice/pop"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
	"sluice/pop/sim"
	"sluice/pop/wire"
)

// change has an operator change a rule at an edge.
func change(t testing.TB, w *sim.World, e *sim.Edge, rule, text string) operatorlog.Mark {
	t.Helper()
	mark, err := e.Order(operatorlog.Order{Rule: rule, Kind: operatorlog.Change, Start: w.Now(), Text: text})
	must(t, err)
	return mark
}

// stands is what an edge knows of a rule, and how much it knows of its past.
func stands(e *sim.Edge, rule string) (text string, past int) {
	list, _, _ := e.Machine.Operators.Changes()
	for _, c := range list {
		if c.Rule == rule {
			if past == 0 {
				text = c.Text
			}
			past++
		}
	}
	return text, past
}

// TestRulesUnderAttack: changes of rules at eight edges are everywhere within two seconds, each, whatever attackers have to
// say meanwhile.
func TestRulesUnderAttack(t *testing.T) {
	r := newRule(t, 5, time.Minute, 10*time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 8, Nodes: 2, RTT: time.Millisecond}, r)
	rng := rand.New(rand.NewPCG(3, 2))
	attacker := uint32(1 << 20)
	perSecond, changes := time.Duration(1000), min(25**manyHistories, 100)
	if raceEnabled {
		perSecond, changes = 200, 8
	}
	attack := func(d time.Duration) {
		for end := w.Now().Add(d); w.Now().Before(end); w.Run(w.Now().Add(time.Second / perSecond)) {
			for range r.Counter.Limit + 2 {
				ask(w.Edges[rng.IntN(8)], r, address(attacker))
			}
			attacker++
		}
	}
	attack(2 * time.Second)
	for n := range changes {
		rule, text := fmt.Sprint("rule", n%7), fmt.Sprint(n)
		change(t, w, w.Edges[rng.IntN(8)], rule, text)
		said := w.Now()
		for i := 0; i < len(w.Edges); {
			if got, _ := stands(w.Edges[i], rule); got == text {
				i++
				continue
			}
			if w.Now().Sub(said) > 2*time.Second {
				t.Fatalf("change %d has not reached edge %d in two seconds", n, i)
			}
			attack(20 * time.Millisecond)
		}
	}
}

// TestTwoEdgesChangeOneRule at once, cut off from each other, and in the same millisecond: they end the same, and so does everybody else,
// with what both said in the rule's past. Nodes that start anew, and edges, have it from the others.
func TestTwoEdgesChangeOneRule(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond}, r)
	pass(w, 2*time.Second)
	same := func(past int) {
		t.Helper()
		want, _ := stands(w.Edges[0], "login")
		for i, e := range w.Edges {
			if got, n := stands(e, "login"); got != want || got == "" || n != past {
				t.Fatalf("edge %d: %q with a past of %d, want %q with %d", i, got, n, want, past)
			}
		}
	}
	change(t, w, w.Edges[0], "login", "first")
	change(t, w, w.Edges[1], "login", "second")
	pass(w, 2*time.Second)
	same(2)
	w.Cut(2)
	change(t, w, w.Edges[2], "login", "older")
	pass(w, time.Second)
	change(t, w, w.Edges[0], "login", "newer")
	pass(w, 2*time.Second)
	w.Mend(2)
	pass(w, 2*time.Second)
	if got, _ := stands(w.Edges[2], "login"); got != "newer" {
		t.Errorf("%q stands", got)
	}
	same(4)
	for i := range w.Nodes {
		must(t, w.Restart(i))
	}
	pass(w, 2*time.Second)
	must(t, w.Start(1))
	pass(w, 2*time.Second)
	same(4)
}

// TestWhoHasAChange: an edge counts among those that have a change once it says that it is in force there, and never if it refuses it.
func TestWhoHasAChange(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 3, Nodes: 1, RTT: time.Millisecond}, r)
	pass(w, 2*time.Second)
	mark := change(t, w, w.Edges[0], "login", "x")
	block := say(t, w, w.Edges[0], operatorlog.Block, address(1), time.Hour)
	pass(w, 2*time.Second)
	if s := w.Edges[0].Machine.Operators.Spread(mark); s.Known != 3 || s.Have != 0 {
		t.Errorf("in force nowhere: %+v", s)
	}
	about := member.About{Address: "a:1", Version: "v", Started: w.Now(), Since: w.Now(), ConfigHash: 7, Generation: mark.Generation}
	for i, e := range w.Edges {
		_, version, _ := e.Machine.Operators.Changes()
		var refused []operatorlog.Mark
		if i == 2 {
			refused = []operatorlog.Mark{mark}
		}
		e.Machine.Operators.Describe(about)
		e.Machine.Operators.InForce(version, refused)
	}
	pass(w, 2*time.Second)
	if s := w.Edges[0].Machine.Operators.Spread(mark); s.Known != 3 || s.Have != 2 || !slices.Equal(s.Missing, []string{"edge2"}) || !slices.Equal(s.Refused, s.Missing) {
		t.Errorf("refused by one: %+v", s)
	}
	if s := w.Edges[0].Machine.Operators.Spread(block); s.Have != 3 {
		t.Errorf("the block: %+v", s)
	}
	for i, e := range w.Edges {
		edges := e.Machine.Operators.Edges()
		if len(edges) != 3 || edges[0].Name != fmt.Sprint("edge", i) {
			t.Errorf("edge %d knows of %+v", i, edges)
		}
		for _, other := range edges {
			if other.ConfigHash != 7 || other.Address != "a:1" || other.Version != "v" || !other.Started.Equal(about.Started) || other.Generation != about.Generation ||
				len(other.Refused) != map[string]int{"edge2": 1}[other.Name] {
				t.Errorf("edge %d knows %+v", i, other)
			}
		}
	}
}

// TestRulesNeedASecret: where the PoP's secret can be guessed, no change of a rule is taken from the tier, and none is sent.
func TestRulesNeedASecret(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 1, Nodes: 1, RTT: time.Millisecond}, r)
	change(t, w, w.Edges[0], "login", "x")
	say(t, w, w.Edges[0], operatorlog.Block, address(1), time.Hour)
	pass(w, time.Second)
	list, _ := secret.Of([]byte("test")).OperatorListKeys()
	written := w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Get, Key: list}).Values[0]
	m, err := pop.NewMachine(pop.Config{Nodes: []string{"a:1"}, Secret: secret.Of([]byte("test")), ID: 9, Counters: w.Edges[0].Counters, Blocks: w.Edges[0].Blocks}, w.Now())
	must(t, err)
	must(t, m.Operators.Restore(written, w.Now()))
	if changes, _, _ := m.Operators.Changes(); len(changes) != 0 || m.Stats().OperatorEntries != 1 {
		t.Errorf("%+v, %d words", changes, m.Stats().OperatorEntries)
	}
	if _, err := m.Operators.Add(operatorlog.Order{Rule: "login", Kind: operatorlog.Change, Text: "x"}, w.Now()); err == nil {
		t.Error("said to a PoP whose secret anybody can guess")
	}
}

// TestTwoOperatorsAtOnce: two edges get a change of a rule at the same moment. Within a second both know of both
// changes, and that all edges have them; and neither says that all edges have its own before it knows of the other's.
func TestTwoOperatorsAtOnce(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
	for seed := range uint64(histories(20)) {
		rng := rand.New(rand.NewPCG(seed, 9))
		w := newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond}, r)
		laid := make([]int, len(w.Edges)) // changes that an edge knew of when it last put them in force
		run := func(d time.Duration, each func()) {
			for end := w.Now().Add(d); w.Now().Before(end); {
				pass(w, pop.Tick)
				for i, e := range w.Edges {
					if list, version, _ := e.Machine.Operators.Changes(); len(list) != laid[i] {
						laid[i] = len(list)
						e.Machine.Operators.InForce(version, nil)
					}
				}
				each()
			}
		}
		run(3*time.Second+time.Duration(rng.IntN(1000))*time.Millisecond, func() {})
		apart := time.Duration(rng.IntN(151)) * time.Millisecond
		if seed < 5 {
			apart = 0
		}
		said, at := make([]operatorlog.Mark, 2), make([]time.Time, 2)
		saw := make([]bool, 2) // what was said first, before this was
		done := make([]time.Duration, 2)
		for i := range said {
			list, _, _ := w.Edges[i].Machine.Operators.Changes()
			saw[i], at[i] = len(list) > 0, w.Now()
			said[i] = change(t, w, w.Edges[i], "login", fmt.Sprint("edge", i))
			wait := apart
			if i == 1 {
				wait = 2 * time.Second
			}
			run(wait, func() {
				for i := range said {
					if said[i] == (operatorlog.Mark{}) || done[i] > 0 {
						continue
					}
					marks := []operatorlog.Mark{said[i]}
					list, _, _ := w.Edges[i].Machine.Operators.Changes()
					for _, c := range list {
						if c.Mark().Compare(said[i]) > 0 {
							marks = append(marks, c.Mark())
						}
					}
					if s := w.Edges[i].Machine.Operators.Spread(marks...); s.Have == s.Known && !s.Newer {
						done[i] = w.Now().Sub(at[i])
						if len(list) != 2 && i == 0 && said[1] != (operatorlog.Mark{}) && !saw[1] && said[1].Compare(said[0]) > 0 {
							t.Errorf("seed %d, %s apart: all edges have a change, and another that was said at the same moment is not known", seed, apart)
						}
					}
				}
			})
		}
		for i, took := range done {
			if took == 0 || took > time.Second {
				t.Errorf("seed %d, %s apart: edge %d knew after %s what stands", seed, apart, i, took)
			}
		}
	}
}
