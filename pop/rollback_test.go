package pop_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/secret"
	"sluice/pop/sim"
)

// TestRollback: a limit that is lowered for some seconds, and put back while the verdicts under it wait in edges, on their way and in the tier,
// blocks nobody afterwards: neither on an edge that has seen it, nor on one that starts later and reads what the tier holds.
func TestRollback(t *testing.T) {
	t.Parallel()
	blocked := 0
	for seed := range histories(8) {
		rng := rand.New(rand.NewPCG(seed, 7))
		const limit, sources, edges, rate = 100, 400, 3, 200
		rules := make(map[uint32][]limiter.Rule)
		for _, l := range []uint32{1, limit} {
			r := newRule(t, l, time.Minute, 10*time.Minute, algorithm.Nearest)
			rules[l] = []limiter.Rule{{Rule: r}}
		}
		w, err := sim.New(sim.Config{
			Edges: edges, Nodes: 1 + rng.IntN(2), RTT: time.Duration(1+rng.IntN(20)) * time.Millisecond, Secret: secret.Of([]byte("test")),
		}, rules[limit], began)
		must(t, err)
		// Each edge learns of a change at another time, within half a second.
		of, due := make([]uint32, edges), make([][]time.Time, edges)
		for i := range edges {
			of[i] = limit
			for _, at := range []time.Duration{time.Second, time.Second + time.Duration(500+rng.IntN(3000))*time.Millisecond} {
				due[i] = append(due[i], began.Add(at+time.Duration(rng.IntN(500))*time.Millisecond))
			}
		}
		change := func(i int) {
			before := rules[of[i]]
			of[i] = 1 + limit - of[i]
			w.Pause(i, w.Now().Add(time.Duration(rng.IntN(3))*time.Millisecond))
			for range 8 { // whose verdicts the machine has not seen when the rules change
				w.Edges[i].Request(&before[0], address(rng.Uint32N(sources)))
			}
			w.Edges[i].SetRules(rules[of[i]])
			for range rng.IntN(4) { // under way while the rules change, and judged by those that were
				w.Edges[i].Request(&before[0], address(rng.Uint32N(sources)))
			}
			due[i] = due[i][1:]
		}
		for n := range uint32(8 * rate) {
			for i := range due {
				for len(due[i]) > 0 && !due[i][0].After(w.Now()) {
					change(i)
				}
			}
			i := rng.IntN(edges)
			if w.Edges[i].Request(&rules[of[i]][0], address(n%sources)).Refused() {
				blocked++
			}
			w.Run(w.Now().Add(time.Second / rate))
		}
		free := func(after string) {
			t.Helper()
			for i, e := range w.Edges {
				for s := range uint32(sources) {
					if until := e.Blocks.Until(mitigationKey(rules[limit][0].Counter, s), w.Now()); !until.IsZero() {
						t.Fatalf("seed %d, %s: edge %d blocks source %d for %v", seed, after, i, s, until.Sub(w.Now()))
					}
				}
			}
		}
		for s := range uint32(sources) { // at first sight, and again when the tier has answered
			for _, e := range w.Edges {
				e.Request(&rules[limit][0], address(s))
			}
		}
		w.Run(w.Now().Add(100 * time.Millisecond))
		free("after the rollback")
		w.Run(w.Now().Add(3 * time.Minute))
		w.Stop(0, true)
		must(t, w.Start(0))
		for s := range uint32(sources) {
			w.Edges[0].Request(&rules[limit][0], address(s))
			w.Run(w.Now().Add(time.Millisecond))
		}
		w.Run(w.Now().Add(time.Second))
		free("minutes later")
	}
	if blocked == 0 {
		t.Error("the lower limit refused nobody")
	}
}

func mitigationKey(r *algorithm.Spec, n uint32) mitigation.Key {
	return mitigation.Key{Rule: r.ID, Source: address(n)}
}

// TestThrottleLearnsNoBlock: a rule that no longer blocks lifts its blocks, and an edge that starts later does not learn what the tier has of them.
func TestThrottleLearnsNoBlock(t *testing.T) {
	t.Parallel()
	r := newRule(t, 3, 10*time.Second, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: time.Millisecond}, r)
	rule := limiter.Rule{Rule: r}
	blocked := func() (list []bool) {
		for _, e := range w.Edges {
			list = append(list, !e.Blocks.Until(mitigationKey(r.Counter, 1), w.Now()).IsZero())
		}
		return list
	}
	for range 5 {
		w.Edges[0].Request(&rule, address(1))
	}
	w.Run(w.Now().Add(time.Second))
	if got := blocked(); !got[0] || !got[1] {
		t.Fatalf("blocked on the edges: %v", got)
	}
	rule.Timeout = 0
	for _, e := range w.Edges {
		e.SetRules([]limiter.Rule{rule})
	}
	if got := blocked(); got[0] || got[1] {
		t.Errorf("blocked by a rule that throttles: %v", got)
	}
	w.Run(w.Now().Add(time.Minute))
	w.Stop(0, true)
	must(t, w.Start(0))
	for range 3 {
		if w.Edges[0].Request(&rule, address(1)).Refused() {
			t.Error("refused within the limit")
		}
		w.Run(w.Now().Add(100 * time.Millisecond))
	}
	if got := blocked(); got[0] || got[1] {
		t.Errorf("learned by a rule that throttles: %v", got)
	}
}

// TestVerdictKeepsItsLimit: a verdict that reaches the tier when its edge has a lower limit already is none of that:
// edges that still have the limit under which it fell learn it.
func TestVerdictKeepsItsLimit(t *testing.T) {
	t.Parallel()
	rules := make(map[uint32][]limiter.Rule)
	for _, l := range []uint32{1, 3} {
		rules[l] = []limiter.Rule{{Rule: newRule(t, l, 10*time.Second, time.Hour, algorithm.Nearest)}}
	}
	w, err := sim.New(sim.Config{Edges: 2, Nodes: 1, RTT: time.Millisecond, Secret: secret.Of([]byte("test"))}, rules[3], began)
	must(t, err)
	w.Pause(0, w.Now().Add(time.Millisecond))
	for range 5 {
		w.Edges[0].Request(&rules[3][0], address(1))
	}
	w.Edges[0].SetRules(rules[1]) // its machine has not seen the verdict yet
	w.Run(w.Now().Add(time.Second))
	for i, e := range w.Edges {
		if e.Blocks.Until(mitigationKey(rules[3][0].Counter, 1), w.Now()).IsZero() {
			t.Errorf("edge %d does not block who went over both limits", i)
		}
	}
}

// TestShorterTimeout: a block that began under a longer timeout ends when the rule says by now, also where it is learned of the tier later.
func TestShorterTimeout(t *testing.T) {
	t.Parallel()
	r := newRule(t, 3, 10*time.Second, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 2, Nodes: 1, RTT: time.Millisecond}, r)
	rule := limiter.Rule{Rule: r}
	for range 5 {
		w.Edges[0].Request(&rule, address(1))
	}
	verdict := w.Now()
	w.Run(w.Now().Add(time.Second))
	rule.Timeout = time.Minute
	for _, e := range w.Edges {
		e.SetRules([]limiter.Rule{rule})
	}
	w.Run(verdict.Add(50 * time.Second))
	w.Stop(0, true)
	must(t, w.Start(0))
	w.Edges[0].Request(&rule, address(1)) // at first sight
	w.Run(w.Now().Add(time.Second))
	if until := w.Edges[0].Blocks.Until(mitigationKey(r.Counter, 1), w.Now()); until.IsZero() || until.After(verdict.Add(rule.Timeout+3*time.Second)) {
		t.Errorf("blocked until %v after the verdict, under a timeout of %v", until.Sub(verdict), rule.Timeout)
	}
}
