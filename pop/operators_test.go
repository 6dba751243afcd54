package pop_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/operatorlog"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/sim"
	"sluice/pop/wire"
)

// say has an operator say something at an edge.
func say(t testing.TB, w *sim.World, e *sim.Edge, kind operatorlog.Kind, source counter.Source, d time.Duration) operatorlog.Mark {
	t.Helper()
	word := operatorlog.Order{Rule: "test", Source: source, Kind: kind, Start: w.Now(), Reason: "because"}
	if kind == operatorlog.Block {
		word.End = w.Now().Add(d)
	}
	mark, err := e.Order(word)
	must(t, err)
	return mark
}

// pass lets time pass on all edges, whether they have something to do or not.
func pass(w *sim.World, d time.Duration) { passBy(w, d, pop.Tick) }

func passBy(w *sim.World, d, tick time.Duration) {
	for end := w.Now().Add(d); w.Now().Before(end); w.Run(w.Now().Add(tick)) {
		for i := range w.Edges {
			if w.Runs(i) {
				w.Tick(i)
			}
		}
	}
}

// byAdmin reports whether an operator's block is in force.
func byAdmin(w *sim.World, e *sim.Edge, r mitigation.Rule, s counter.Source) bool {
	bit, ok := e.Blocks.Get(mitigation.Key{Rule: r.Counter.ID, Source: s}, w.Now())
	return ok && bit.By == mitigation.ByAdmin && bit.Reason == "because"
}

// inForce finds edges on which one of the sources from is not blocked by an operator, or one of lifted is mitigated.
func inForce(w *sim.World, r mitigation.Rule, blocked, lifted []counter.Source) (wrong []string) {
	for i, e := range w.Edges {
		for _, s := range blocked {
			if !byAdmin(w, e, r, s) {
				wrong = append(wrong, fmt.Sprintf("edge %d: %s not blocked", i, s))
			}
		}
		for _, s := range lifted {
			if mitigated(w, e, r, s) {
				wrong = append(wrong, fmt.Sprintf("edge %d: %s not lifted", i, s))
			}
		}
	}
	return wrong
}

// blockAll has edge 0 find sources over their limit, and waits until all edges have blocked them.
func blockAll(t testing.TB, w *sim.World, r mitigation.Rule, from, n uint32) (list []counter.Source) {
	t.Helper()
	for s := range n {
		list = append(list, address(from+s))
		for range r.Counter.Limit + 3 {
			ask(w.Edges[0], r, address(from+s))
		}
	}
	pass(w, time.Second)
	for _, s := range list {
		for i, e := range w.Edges {
			if !mitigated(w, e, r, s) {
				t.Fatalf("edge %d does not block %s", i, s)
			}
		}
	}
	return list
}

// TestOrdersUnderAttack: what operators say is in force everywhere in two seconds, whatever attackers have to say
// meanwhile.
func TestOrdersUnderAttack(t *testing.T) {
	r := newRule(t, 5, time.Minute, 10*time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 8, Nodes: 2, RTT: time.Millisecond}, r)
	rng := rand.New(rand.NewPCG(1, 2))
	lifted := blockAll(t, w, r, 1, 100)
	var blocked []counter.Source
	const perSecond = 5000
	attacker := uint32(1 << 20)
	attack := func(d time.Duration) {
		for end := w.Now().Add(d); w.Now().Before(end); w.Run(w.Now().Add(time.Second / perSecond)) {
			e := w.Edges[rng.IntN(8)]
			for range r.Counter.Limit + 2 {
				ask(e, r, address(attacker))
			}
			attacker++
		}
	}
	attack(300 * time.Millisecond)
	for i := range 100 {
		s := address(uint32(1000 + i))
		blocked = append(blocked, s)
		say(t, w, w.Edges[rng.IntN(8)], operatorlog.Block, s, time.Hour)
		say(t, w, w.Edges[rng.IntN(8)], operatorlog.Lift, lifted[i], 0)
		if i%10 == 9 { // some at once, some one after the other
			attack(5 * time.Millisecond)
		}
	}
	said := w.Now()
	for wrong := inForce(w, r, blocked, lifted); len(wrong) > 0; wrong = inForce(w, r, blocked, lifted) {
		if w.Now().Sub(said) > 2*time.Second {
			t.Fatalf("%d wrong, such as %s", len(wrong), wrong[0])
		}
		attack(100 * time.Millisecond)
	}
}

// TestEdgeThatWasAway: an edge that reached no node for five minutes has all that was said within two seconds of its return, and what was
// said there has reached the others.
func TestEdgeThatWasAway(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond}, r)
	lifted := blockAll(t, w, r, 1, 20)
	w.Cut(2)
	var blocked []counter.Source
	for i := range 20 {
		blocked = append(blocked, address(uint32(1000+i)))
		say(t, w, w.Edges[i%2], operatorlog.Block, blocked[i], time.Hour)
		say(t, w, w.Edges[i%2], operatorlog.Lift, lifted[i], 0)
		pass(w, time.Second)
	}
	there := address(5000)
	say(t, w, w.Edges[2], operatorlog.Block, there, time.Hour)
	passBy(w, 5*time.Minute, 5*pop.Tick)
	if byAdmin(w, w.Edges[2], r, blocked[0]) || !mitigated(w, w.Edges[2], r, lifted[0]) || byAdmin(w, w.Edges[0], r, there) {
		t.Fatal("the edge was not away")
	}
	w.Mend(2)
	pass(w, 2*time.Second)
	if wrong := inForce(w, r, append(blocked, there), lifted); len(wrong) > 0 {
		t.Errorf("%d wrong, such as %s", len(wrong), wrong[0])
	}
}

// TestLiftedStaysLifted: however hard a source hits while it is lifted, it has its whole limit before it.
func TestLiftedStaysLifted(t *testing.T) {
	const limit, perSecond = 8000, 2000
	r := newRule(t, limit, time.Minute, 10*time.Minute, algorithm.Nearest)
	stayed, sources := 0, uint32(histories(30))
	for n := range sources {
		w := newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond}, r)
		rng := rand.New(rand.NewPCG(uint64(n), 3))
		s, admitted := address(n), 0
		hit := func(d time.Duration) {
			for end := w.Now().Add(d); w.Now().Before(end); w.Run(w.Now().Add(time.Second / perSecond)) {
				if ask(w.Edges[rng.IntN(3)], r, s) {
					admitted++
				}
			}
		}
		hit(limit*time.Second/perSecond + 500*time.Millisecond)
		if wrong := inForce(w, r, nil, []counter.Source{s}); len(wrong) != 3 {
			t.Fatalf("source %d is not blocked everywhere", n)
		}
		hit(time.Duration(rng.IntN(500)) * time.Millisecond)
		say(t, w, w.Edges[rng.IntN(3)], operatorlog.Lift, s, 0)
		admitted = 0
		good := true
		hit(2 * time.Second)
		good = good && len(inForce(w, r, nil, []counter.Source{s})) == 0
		hit(time.Second)
		good = good && len(inForce(w, r, nil, []counter.Source{s})) == 0 && admitted > 4500
		if good {
			stayed++
		} else {
			t.Logf("source %d: %d admitted, %v", n, admitted, inForce(w, r, nil, []counter.Source{s}))
		}
		hit(3 * time.Second) // by now it has used up its limit
		if len(inForce(w, r, nil, []counter.Source{s})) != 3 || admitted < limit-100 || admitted > limit+100 {
			t.Errorf("source %d: %d admitted at a limit of %d, %v", n, admitted, limit, inForce(w, r, nil, []counter.Source{s}))
		}
	}
	if stayed != int(sources) {
		t.Errorf("%d of %d stayed lifted", stayed, sources)
	}
}

// TestLiftMeetsAnswers: what was under way when a source was lifted brings nothing back, whenever it comes.
func TestLiftMeetsAnswers(t *testing.T) {
	r := newRule(t, 20, time.Minute, 10*time.Minute, algorithm.Nearest)
	for delay := time.Duration(0); delay < 60*time.Millisecond; delay += time.Millisecond {
		w := newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: 20 * time.Millisecond}, r)
		s := address(uint32(delay))
		for range 15 {
			ask(w.Edges[1], r, s)
		}
		pass(w, time.Second)
		ask(w.Edges[0], r, s) // asks the tier, and reports
		w.Run(w.Now().Add(delay))
		say(t, w, w.Edges[0], operatorlog.Lift, s, 0)
		w.Edges[0].Counters.Forget(r.Counter, s) // as the edge does, of which an operator asks it
		for range 2 {
			if !ask(w.Edges[0], r, s) {
				t.Fatalf("%v: refused at once", delay)
			}
		}
		pass(w, 2*time.Second)
		if v, _ := w.Edges[0].Counters.Peek(r.Counter, s, w.Now()); v.Estimate != 2 {
			t.Errorf("%v: %v are counted after two requests", delay, v.Estimate)
		}
		// The tier has them, and another edge learns them.
		ask(w.Edges[1], r, s)
		pass(w, 2*time.Second)
		if v, _ := w.Edges[1].Counters.Peek(r.Counter, s, w.Now()); v.Estimate != 3 {
			t.Errorf("%v: %v are counted on the other edge after three requests", delay, v.Estimate)
		}
	}
}

// TestReplayedBit: what somebody who reaches the tier has recorded before a lift is worth nothing after it.
func TestReplayedBit(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: time.Millisecond}, r)
	s := blockAll(t, w, r, 7, 1)[0]
	shared := secret.Of([]byte("test"))
	old := pop.Seal(shared, r, s, w.Now(), w.Now().Add(time.Hour))
	bit := w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Get, Key: shared.BitKey(counter.Counter{Rule: r.Counter, Source: s}, 0)}).Values[0]
	keys := pop.CounterKeys(shared, r, s, w.Now())
	say(t, w, w.Edges[0], operatorlog.Lift, s, 0)
	pass(w, 2*time.Second)
	for range 3 {
		for _, value := range [][]byte{old, bit} {
			w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Set, Key: shared.BitKey(counter.Counter{Rule: r.Counter, Source: s}, 0), Value: value, Expire: 100})
			number := w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Incr, Key: shared.LogHeadKey(), Delta: 1}).Number
			w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Set, Key: shared.LogItemKey(number), Value: record.Append(nil, value), Expire: 100})
			for _, key := range keys {
				w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Set, Key: key, Value: []byte("00000000000000001000"), Expire: 100})
			}
			pass(w, time.Second)
			if wrong := inForce(w, r, nil, []counter.Source{s}); len(wrong) > 0 {
				t.Fatal(wrong)
			}
		}
		if !ask(w.Edges[1], r, s) {
			t.Fatal("refused")
		}
	}
	// Of an edge that has only just started, too.
	must(t, w.Start(1))
	pass(w, time.Second)
	if !ask(w.Edges[1], r, s) {
		t.Error("refused by an edge that has started since")
	}
	pass(w, time.Second)
	if wrong := inForce(w, r, nil, []counter.Source{s}); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// TestLooserLimit: a bit of a stricter rule stands in the tier, and nobody minds it. What an operator has blocked stays blocked.
func TestLooserLimit(t *testing.T) {
	strict, loose := newRule(t, 5, time.Minute, time.Hour, algorithm.Nearest), newRule(t, 50, time.Minute, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 3, Nodes: 1, RTT: time.Millisecond}, strict)
	s, blocked := blockAll(t, w, strict, 7, 1)[0], address(8)
	say(t, w, w.Edges[1], operatorlog.Block, blocked, time.Hour)
	pass(w, 2*time.Second)
	for i, e := range w.Edges {
		if i == 2 {
			pass(w, time.Second) // it reads its file later
		}
		e.Machine.SetRules([]mitigation.Rule{loose})
		e.Blocks.Lift(mitigation.Key{Rule: strict.Counter.ID, Source: s}, w.Now()) // as an edge does
	}
	for range 10 {
		for _, e := range w.Edges {
			e.Counters.Forget(loose.Counter, address(9)) // nobody: time passes
			if !ask(e, loose, s) {
				t.Fatal("refused")
			}
		}
		pass(w, 100*time.Millisecond)
	}
	if wrong := inForce(w, loose, []counter.Source{blocked}, []counter.Source{s}); len(wrong) > 0 {
		t.Error(wrong)
	}
	// An edge that starts now finds the old bit at first sight.
	must(t, w.Start(0))
	w.Edges[0].Machine.SetRules([]mitigation.Rule{loose})
	ask(w.Edges[0], loose, s)
	pass(w, time.Second)
	if wrong := inForce(w, loose, []counter.Source{blocked}, []counter.Source{s}); len(wrong) > 0 {
		t.Error(wrong)
	}
	// The new limit is enforced all the same, in spite of the bit in its place.
	for range 40 {
		ask(w.Edges[1], loose, s)
	}
	pass(w, time.Second)
	for i, e := range w.Edges {
		if !mitigated(w, e, loose, s) {
			t.Errorf("edge %d does not block a source over the new limit", i)
		}
	}
}

// TestRulesThatComeBack: a block is for the rule's name, so it is in force again when a rule of that name is.
func TestRulesThatComeBack(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: time.Millisecond}, r)
	s := address(1)
	say(t, w, w.Edges[0], operatorlog.Block, s, time.Hour)
	pass(w, 2*time.Second)
	for _, e := range w.Edges {
		e.Machine.SetRules(nil)
		e.Blocks.Lift(mitigation.Key{Rule: r.Counter.ID, Source: s}, w.Now())
	}
	pass(w, time.Second)
	longer := newRule(t, 5, 2*time.Minute, time.Hour, algorithm.Nearest) // counted otherwise
	for _, e := range w.Edges {
		e.Machine.SetRules([]mitigation.Rule{longer})
	}
	pass(w, time.Second)
	if wrong := inForce(w, longer, []counter.Source{s}, nil); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// TestListSurvivesNodes: a node that comes back empty gets the list again; so does one whose list was spoilt, whoever spoilt what of it.
func TestListSurvivesNodes(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond}, r)
	blocked := []counter.Source{address(1), address(2)}
	for i, s := range blocked {
		say(t, w, w.Edges[i], operatorlog.Block, s, time.Hour)
	}
	pass(w, 2*time.Second)
	list, head := secret.Of([]byte("test")).OperatorListKeys()
	get := func(key string) []byte {
		return w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Get, Key: key}).Values[0]
	}
	set := func(key string, value []byte) {
		w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Set, Key: key, Value: value, Expire: 1000})
	}
	good, goodHead := get(list), get(head)
	if good == nil || goodHead == nil {
		t.Fatal("the node has no list")
	}
	older := func() []byte { // an authentic list of another time
		other := newWorld(t, sim.Config{Edges: 1, Nodes: 1, RTT: time.Millisecond}, r)
		say(t, other, other.Edges[0], operatorlog.Block, address(2), time.Minute)
		pass(other, time.Second)
		return other.Nodes[0].Do(other.Now(), wire.Command{Op: wire.Get, Key: list}).Values[0]
	}()
	var forged uint64
	for _, test := range []struct {
		name  string
		spoil func()
	}{
		{"restarted", func() {
			must(t, w.Restart(0))
		}},
		{"list gone", func() { w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Delete, Key: list}) }},
		{"head gone", func() { w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Delete, Key: head}) }},
		{"head forged", func() { set(head, []byte("garbage")) }},
		{"list forged", func() { set(list, bytes.Repeat([]byte("x"), 500)) }},
		{"list cut", func() { set(list, good[:len(good)/2]) }},
		{"empty list", func() { set(list, nil); set(head, nil) }},
		{"an older list", func() { set(list, older) }},
		{"an older list and its head", func() { set(list, older); set(head, goodHead) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.spoil()
			pass(w, 100*time.Millisecond)
			if err := w.Start(2); err != nil { // it reads what is there, and has nothing else
				t.Fatal(err)
			}
			w.Kill(1) // nor another node
			pass(w, 5*time.Second)
			if wrong := inForce(w, r, blocked, nil); len(wrong) > 0 {
				t.Error(wrong)
			}
			if !bytes.Equal(get(head), goodHead) {
				t.Error("the node has another head")
			}
			must(t, w.Restart(1))
			pass(w, 3*time.Second)
			forged += w.Edges[2].Machine.Stats().Forged // of this life
		})
	}
	if forged+w.Edges[0].Machine.Stats().Forged == 0 {
		t.Error("nothing forged was counted")
	}
}

// TestSilentEdges: an edge that went without a word is not forgotten at once: where it is cut off, it goes on by what it had.
func TestSilentEdges(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Minute, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 4, Nodes: 2, RTT: time.Millisecond, Counters: 1000}, r)
	silent := func(what string, known int, want ...string) {
		t.Helper()
		if s := w.Edges[0].Machine.Operators.Spread(say(t, w, w.Edges[0], operatorlog.Block, address(1), time.Hour)); s.Known != known || !slices.Equal(s.Silent, want) {
			t.Errorf("%s: %d edges are known, and silent are %v, want %d and %v", what, s.Known, s.Silent, known, want)
		}
	}
	pass(w, 5*time.Second)
	silent("all there", 4)
	w.Stop(1, true)
	pass(w, 10*time.Second)
	silent("one has said that it ends", 3)
	w.Cut(2)
	w.Stop(3, false)
	pass(w, 10*time.Second)
	silent("one is cut off, and one killed", 1, "edge2", "edge3")
	w.Mend(2)
	pass(w, 10*time.Second)
	silent("one is back", 2, "edge3")
	passBy(w, 10*time.Minute, 20*pop.Tick)
	silent("ten minutes later", 2)
}

// TestSpread: the author of an order can see which edges have it.
func TestSpread(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 4, Nodes: 2, RTT: time.Millisecond}, r)
	pass(w, 3*time.Second)
	marks := make([]operatorlog.Mark, 3) // several at once
	for i := range marks {
		marks[i] = say(t, w, w.Edges[i], operatorlog.Block, address(uint32(i)), time.Hour)
	}
	if s := w.Edges[0].Machine.Operators.Spread(marks[0]); s.Known != 4 || s.Have != 1 || len(s.Missing) != 3 {
		t.Errorf("at once: %+v", s)
	}
	pass(w, 1900*time.Millisecond)
	for i := range marks {
		if s := w.Edges[i].Machine.Operators.Spread(marks[i]); s.Known != 4 || s.Have != 4 {
			t.Errorf("edge %d, two seconds later: %+v", i, s)
		}
	}
	w.Cut(3)
	mark := say(t, w, w.Edges[0], operatorlog.Lift, address(0), 0)
	pass(w, 1900*time.Millisecond)
	if s := w.Edges[0].Machine.Operators.Spread(mark); s.Known != 4 || s.Have != 3 || !slices.Equal(s.Missing, []string{"edge3"}) {
		t.Errorf("with an edge that is away: %+v", s)
	}
	pass(w, 5*time.Second)
	if s := w.Edges[0].Machine.Operators.Spread(mark); s.Known != 3 || s.Have != 3 {
		t.Errorf("with an edge that is gone: %+v", s)
	}
}

// TestShorterBlock: an operator's word replaces the one before, also by a shorter time.
func TestShorterBlock(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: time.Millisecond}, r)
	s := address(1)
	say(t, w, w.Edges[0], operatorlog.Block, s, time.Hour)
	pass(w, time.Second)
	say(t, w, w.Edges[1], operatorlog.Block, s, 10*time.Second)
	pass(w, time.Second)
	for i, e := range w.Edges {
		if until := e.Blocks.Until(mitigation.Key{Rule: r.Counter.ID, Source: s}, w.Now()); until.Sub(w.Now()) > 10*time.Second || until.IsZero() {
			t.Errorf("edge %d: until %v from now", i, until.Sub(w.Now()))
		}
	}
}

// TestVariants: each limit of a rule has counters and mitigations of its own on all edges; what operators say of a source under the rule holds
// under all of them, in one bit, and a lift ends the mitigations of each.
func TestVariants(t *testing.T) {
	r := newRule(t, 40, time.Minute, time.Hour, algorithm.Nearest)
	own, err := algorithm.NewSliding("test limit 10", 10, time.Minute, 12, algorithm.Nearest)
	must(t, err)
	rule := limiter.Rule{Rule: r}
	lesser := mitigation.Rule{Name: r.Counter.Name, Counter: own, Timeout: r.Timeout, VariantOf: r.Counter.ID}
	variant := limiter.Rule{Rule: lesser}
	w, err := sim.New(sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond, Secret: secret.Of([]byte("test"))}, []limiter.Rule{rule, variant}, began)
	must(t, err)
	s := address(1)
	refused := func(r *limiter.Rule) (n int) {
		for _, e := range w.Edges {
			if e.Request(r, s).Refused() {
				n++
			}
		}
		return n
	}
	f := func(when string, byRule, byVariant int) {
		t.Helper()
		pass(w, time.Second)
		a, b := 0, 0
		for _, e := range w.Edges {
			if mitigated(w, e, r, s) {
				a++
			}
			if mitigated(w, e, lesser, s) {
				b++
			}
		}
		if a != byRule || b != byVariant {
			t.Errorf("%s: mitigated under the rule on %d edges, under the variant on %d, want %d and %d", when, a, b, byRule, byVariant)
		}
	}
	over := func() {
		for range 5 {
			refused(&variant)
			pass(w, 100*time.Millisecond)
		}
	}
	over()
	f("over the variant's limit", 0, 3)
	if n := refused(&rule); n != 0 {
		t.Errorf("%d edges refuse it under another limit", n)
	}
	say(t, w, w.Edges[0], operatorlog.Lift, s, 0)
	f("lifted", 0, 0)
	for range 2 {
		if n := refused(&variant); n != 0 {
			t.Errorf("%d edges refuse it after the lift", n)
		}
	}
	f("below the limit since the lift: what was counted before is forgotten in the tier as well", 0, 0)
	over()
	f("over again", 0, 3)
	say(t, w, w.Edges[0], operatorlog.Lift, s, 0)
	f("lifted again", 0, 0)
	say(t, w, w.Edges[1], operatorlog.Block, s, 10*time.Second)
	f("blocked by an operator", 3, 0)
	if n, m := refused(&rule), refused(&variant); n != 3 || m != 3 {
		t.Errorf("%d edges refuse it under the rule, %d under the variant, want all", n, m)
	}
	pass(w, 11*time.Second)
	if n := refused(&variant); n != 0 {
		t.Errorf("%d edges refuse it after the operator's block", n)
	}
}

// TestShadowOfAllSources: a shadow that would block everybody, on tables that are full of that, unblocks nobody on any edge.
func TestShadowOfAllSources(t *testing.T) {
	r := newRule(t, 40, time.Minute, time.Minute, algorithm.Nearest)
	of, err := algorithm.NewSliding("test shadow", 1, time.Minute, 12, algorithm.Nearest)
	must(t, err)
	rule, shadow := limiter.Rule{Rule: r}, limiter.Rule{Rule: mitigation.Rule{Counter: of, Timeout: time.Hour, Shadow: true}}
	counters := 2000
	if raceEnabled {
		counters = 400
	}
	w, err := sim.New(sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond, Counters: counters, Secret: secret.Of([]byte("test"))}, []limiter.Rule{rule, shadow}, began)
	must(t, err)
	request := func(n uint32, source counter.Source) {
		var d limiter.Decision
		d.Add(&rule, source)
		d.Add(&shadow, source)
		w.Edges[n%3].Decide(&d)
	}
	const blocked = 100
	for n := range uint32(blocked) {
		for range r.Counter.Limit + 1 {
			request(n, address(n))
		}
	}
	pass(w, time.Second)
	for n := range uint32(3 * counters) {
		for range 2 {
			request(n, address(1000+n))
		}
		if n%10 == 0 {
			pass(w, pop.Tick)
		}
	}
	for i, e := range w.Edges {
		lost := 0
		for n := range uint32(blocked) {
			if !mitigated(w, e, r, address(n)) {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("edge %d: %d of %d sources are no longer blocked", i, lost, blocked)
		}
	}
}

// TestManyWriters: operators at all edges, all the time, lose nothing.
func TestManyWriters(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 8, Nodes: 3, RTT: 2 * time.Millisecond}, r)
	rng := rand.New(rand.NewPCG(5, 5))
	var blocked []counter.Source
	for n := range uint32(200) {
		blocked = append(blocked, address(n))
		say(t, w, w.Edges[rng.IntN(8)], operatorlog.Block, address(n), time.Hour)
		if n%8 == 0 {
			w.Restart(rng.IntN(3))
		}
		pass(w, time.Duration(rng.IntN(3))*pop.Tick)
	}
	pass(w, 3*time.Second)
	if wrong := inForce(w, r, blocked, nil); len(wrong) > 0 {
		t.Errorf("%d wrong, such as %s", len(wrong), wrong[0])
	}
	list, _ := secret.Of([]byte("test")).OperatorListKeys()
	first := w.Nodes[0].Do(w.Now(), wire.Command{Op: wire.Get, Key: list}).Values[0]
	for i, n := range w.Nodes {
		if got := n.Do(w.Now(), wire.Command{Op: wire.Get, Key: list}).Values[0]; !bytes.Equal(got, first) || got == nil {
			t.Errorf("node %d has another list", i)
		}
	}
}

// TestEpochsEndTogether: a day after a lift all edges count the source under one name again, one that was restarted meanwhile included.
func TestEpochsEndTogether(t *testing.T) {
	const limit = 60
	r := newRule(t, limit, time.Minute, time.Minute, algorithm.Lower)
	w := newWorld(t, sim.Config{Edges: 4, Nodes: 1, RTT: time.Millisecond}, r)
	pass(w, 2*time.Second)
	s := address(7)
	ask(w.Edges[0], r, s)
	say(t, w, w.Edges[0], operatorlog.Lift, s, 0)
	pass(w, 3*time.Second)
	passBy(w, 12*time.Hour, 30*time.Second)
	must(t, w.Start(1))
	pass(w, 3*time.Second)
	passBy(w, 13*time.Hour, 30*time.Second)
	admitted := 0
	for i := range 550 {
		if ask(w.Edges[i%4], r, s) {
			admitted++
		}
		w.Run(w.Now().Add(100 * time.Millisecond))
	}
	if admitted > limit+4 {
		t.Errorf("%d admitted of a limit of %d: the edges count apart", admitted, limit)
	}
}
