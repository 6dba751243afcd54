package pop_test

import (
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/secret"
	"sluice/pop/sim"
)

// TestBlocksSurviveRotation: edges are restarted one after the other under a new secret with the old one behind it, and know nothing of before.
// A source that was blocked under the old one is refused after its first request, and from then on every edge under the new one has the block:
// it has its full length, and an edge that has the new secret alone finds it.
func TestBlocksSurviveRotation(t *testing.T) {
	older, newer := secret.Of([]byte("the secret until now")).At("fra1"), secret.Of([]byte("the secret from now on")).At("fra1")
	both := newer.After(older)
	secrets := []secret.Secret{older, older, older}
	r := newRule(t, 30, time.Minute, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 3, Nodes: 3, RTT: time.Millisecond, PoP: "fra1", Secrets: func(i int) secret.Secret { return secrets[i] }}, r)
	const sources = 40 // on all nodes, and of most not on the same under the other secret
	for i := range uint32(sources) {
		for range 35 {
			ask(w.Edges[0], r, address(i))
			w.Run(w.Now().Add(10 * time.Millisecond)) // a burst might spend what pays for bits at their own keys
		}
	}
	w.Run(w.Now().Add(time.Second))
	restart := func(i int, s secret.Secret) {
		t.Helper()
		secrets[i] = s
		w.Stop(i, true)
		w.Run(w.Now().Add(time.Second))
		must(t, w.Start(i))
		w.Run(w.Now().Add(time.Second))
	}
	for i := range w.Edges {
		if !mitigated(w, w.Edges[i], r, address(0)) {
			t.Fatalf("edge %d does not know of the block", i)
		}
	}
	ends := w.Edges[2].Blocks.Until(keyOf(r, address(0)), w.Now())
	restart(0, both)
	restart(1, both)
	for i := range uint32(sources) {
		if !ask(w.Edges[0], r, address(i)) {
			t.Fatal("an edge that has just started knows of no block")
		}
	}
	w.Run(w.Now().Add(600 * time.Millisecond)) // edge 1 serves nobody, and reads the log twice a second
	for i := range uint32(sources) {
		for edge := range 2 {
			if !mitigated(w, w.Edges[edge], r, address(i)) {
				t.Errorf("edge %d does not refuse source %d, blocked before the rotation", edge, i)
			}
		}
	}
	if now := w.Edges[1].Blocks.Until(keyOf(r, address(0)), w.Now()); now.Sub(ends).Abs() > time.Millisecond {
		t.Errorf("the block ends at %v, ended at %v before", now, ends)
	}

	// The second step: nobody reads under the old one any more.
	restart(2, newer)
	restart(1, newer)
	for i := range uint32(sources) {
		ask(w.Edges[2], r, address(i))
	}
	w.Run(w.Now().Add(100 * time.Millisecond))
	for i := range uint32(sources) {
		if !mitigated(w, w.Edges[2], r, address(i)) {
			t.Errorf("source %d is not refused under the new secret alone", i)
		}
	}
	for i, e := range w.Edges {
		if n := e.Machine.Stats().Forged; n > 0 {
			t.Errorf("edge %d has read %d forged values", i, n)
		}
	}
}

// TestBlocksAreAnnouncedAnew: an edge that is replaced in place holds its blocks (Table.Resend), and gives them to the others under the new secret
// before any of their sources comes.
func TestBlocksAreAnnouncedAnew(t *testing.T) {
	r := newRule(t, 5, time.Minute, time.Hour, algorithm.Nearest)
	w := newWorld(t, sim.Config{Edges: 2, Nodes: 2, RTT: time.Millisecond}, r)
	for i := range uint32(20) {
		k, b := keyOf(r, address(i)), blockOf(r, w.Now())
		if i == 7 { // what operators said has a list of its own
			b.By = mitigation.ByAdmin
		}
		w.Edges[0].Blocks.Start(k, b, w.Now())
	}
	w.Run(w.Now().Add(time.Second))
	if mitigated(w, w.Edges[1], r, address(0)) {
		t.Fatal("what was taken over is announced by itself")
	}
	w.Edges[0].Blocks.Resend(w.Now())
	w.Tick(0)
	w.Run(w.Now().Add(time.Second))
	for i := range uint32(20) {
		if got := mitigated(w, w.Edges[1], r, address(i)); got != (i != 7) {
			t.Errorf("source %d: %v", i, got)
		}
	}
}

func keyOf(r mitigation.Rule, s counter.Source) mitigation.Key {
	return mitigation.Key{Rule: r.Counter.ID, Source: s}
}

// blockOf is a block as an older process hands it over.
func blockOf(r mitigation.Rule, now time.Time) mitigation.Bit {
	return mitigation.Bit{Start: now, End: now.Add(time.Hour), By: mitigation.ByPoP, Version: r.Version()}
}
