package pop_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/pop/marks"
	"sluice/pop/operatorlog"
	"sluice/pop/poptest"
	"sluice/pop/secret"
	"sluice/pop/sim"
	"sluice/pop/wire"
)

var (
	oldSecret, newSecret = secret.Of([]byte("the secret of last year")), secret.Of([]byte("the secret of this year"))
	bothSecrets          = newSecret.After(oldSecret)
)

// isMark reports whether a command is about marks: nothing else in the tier has such names.
func isMark(c wire.Command) bool { return c.Key[0] == 'm' }

// One edge of four has another secret, and comes later. All learn of it, it alone is held back, and that costs what
// package marks says it does, which is no command that requests pay for.
func TestMarks(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
	commands := 0
	w := newWorld(t, sim.Config{Edges: 4, Nodes: 2, RTT: time.Millisecond, Counters: 1000, PoP: "fra1",
		Secrets: func(edge int) secret.Secret {
			if edge == 3 {
				return newSecret
			}
			return oldSecret
		},
		Carry: func(c wire.Command, node *poptest.Node, now time.Time) wire.Result {
			if isMark(c) {
				commands++
				if c.Report {
					t.Error("requests pay for a mark")
				}
			}
			return node.Do(now, c)
		},
	}, r)
	w.Stop(3, false)
	pass(w, 2*time.Minute) // nobody is on trial any more
	must(t, w.Start(3))
	before := commands
	pass(w, time.Minute)
	if perEdge := float64(commands-before) / 4 / 2 / 60; perEdge > 4.0/3 || perEdge < 1 {
		t.Errorf("%.2f commands a second for marks, per edge and node", perEdge)
	}
	for i, e := range w.Edges {
		s := e.Machine.ForeignSecrets.Secrets()
		want, held := 1, false
		if i == 3 {
			want, held = 3, true
		}
		if len(s.Apart) != want || s.Apart[0].Rotating || s.Held != held {
			t.Errorf("edge %d: held %v, apart %+v", i, s.Held, s.Apart)
		}
		if n := e.Machine.Stats().Forged; n != 0 {
			t.Errorf("edge %d: %d forged", i, n)
		}
	}
	// What was there belongs to no edge once no node has it any more.
	w.Kill(0)
	w.Kill(1)
	pass(w, 15*time.Second)
	if s := w.Edges[3].Machine.ForeignSecrets.Secrets(); s.Held || len(s.Apart) != 0 {
		t.Errorf("without a node: held %v, apart %+v", s.Held, s.Apart)
	}
}

// Whoever writes to the nodes forges marks of as many strangers as there is room for, and deletes what edges say of themselves: those in service stay ready.
func TestForgedMarks(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
	attack := false
	board := marks.New("fra1", newSecret, 1, began)
	w := newWorld(t, sim.Config{Edges: 3, Nodes: 1, RTT: time.Millisecond, Counters: 1000, PoP: "fra1", Secrets: func(int) secret.Secret { return oldSecret },
		Carry: func(c wire.Command, node *poptest.Node, now time.Time) wire.Result {
			result := node.Do(now, c)
			if attack && c.Op == wire.Get && c.Key == board.Keys {
				for i := range result.Values {
					result.Values[i] = fmt.Appendf(nil, `{"id":%d,"written":%d,"secrets":["x"],"name":"forged%d"}`, 1000+i, now.UnixMilli(), i)
				}
			}
			if attack && strings.Contains(c.Key, oldSecret.SlotKey(0)) {
				result.Values = make([][]byte, len(result.Values))
			}
			return result
		},
	}, r)
	pass(w, 3*time.Second)
	attack = true
	pass(w, 2*time.Minute)
	for i, e := range w.Edges {
		if s := e.Machine.ForeignSecrets.Secrets(); s.Held || len(s.Apart) != 64 {
			t.Errorf("edge %d: held %v, %d apart", i, s.Held, len(s.Apart))
		}
	}
	// One that starts now is held back, for as long as that goes on.
	w.Stop(0, true)
	must(t, w.Start(0))
	pass(w, 5*time.Second)
	if s := w.Edges[0].Machine.ForeignSecrets.Secrets(); !s.Held {
		t.Error("documents say that an edge which starts now is held back")
	}
	attack = false
	pass(w, 5*time.Second)
	if s := w.Edges[0].Machine.ForeignSecrets.Secrets(); s.Held {
		t.Error("held back by nobody")
	}
}

// Edges change their secret one after the other. What operators said before, and say meanwhile at any of them, is soon in force on all.
func TestOrdersWhileTheSecretChanges(t *testing.T) {
	r := newRule(t, 5, time.Minute, 10*time.Minute, algorithm.Nearest)
	keys := slices.Repeat([]secret.Secret{oldSecret}, 3)
	w := newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond, Counters: 1000, PoP: "fra1", Secrets: func(edge int) secret.Secret { return keys[edge] }}, r)
	pass(w, time.Second)
	var blocked []counter.Source
	speak := func(when string) {
		t.Helper()
		for _, e := range w.Edges {
			s := address(uint32(100 + len(blocked)))
			say(t, w, e, operatorlog.Block, s, time.Hour)
			blocked = append(blocked, s)
		}
		pass(w, 2*time.Second)
		if wrong := inForce(w, r, blocked, nil); len(wrong) > 0 {
			t.Errorf("%s: %v", when, wrong)
		}
	}
	speak("before")
	for step, key := range []secret.Secret{bothSecrets, newSecret} {
		for i := range keys {
			keys[i] = key
			w.Stop(i, true)
			must(t, w.Start(i)) // with nothing in memory
			speak(fmt.Sprintf("step %d, edge %d", step+1, i))
			for j, e := range w.Edges {
				if n := e.Machine.Stats().Forged; n != 0 {
					t.Errorf("step %d, edge %d: %d forged at edge %d", step+1, i, n, j)
				}
				if s := e.Machine.ForeignSecrets.Secrets(); s.Held || slices.ContainsFunc(s.Apart, func(e marks.Edge) bool { return !e.Rotating }) {
					t.Errorf("step %d, edge %d: edge %d is held %v, apart %+v", step+1, i, j, s.Held, s.Apart)
				}
			}
		}
	}
}
