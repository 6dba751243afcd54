//go:build system

package memcached_test

import (
	"testing"
	"time"
)

// The same with real parts: two memcached processes, three edges, real time.
func TestEdgesOverMemcached(t *testing.T) {
	names := []string{startMemcached(t), startMemcached(t)}
	rule := newRule(t, 100, time.Minute, time.Minute)
	var edges []*edge
	for i := range uint64(3) {
		e := startEdge(t, i+1, rule, names, nil)
		defer e.stop()
		edges = append(edges, e)
	}
	deadline := time.Now().Add(time.Minute)
	// An edge follows the log from where it finds it, so what was blocked before it looked for the first time it learns at first sight alone. The
	// third edge is asked nothing: it has to have looked before the attack.
	for n, learned := uint32(2), 0; learned < 8; n++ {
		early := address(n)
		for !edges[0].blocked(early) {
			edges[0].ask(early)
		}
		if edges[2].learns(early, time.Second) {
			learned++
		} else if learned = 0; time.Now().After(deadline) {
			t.Fatal("the third edge has learned of no block for a minute")
		}
	}
	attacker, admitted := address(1), 0
	for i := 0; !(edges[0].blocked(attacker) && edges[1].blocked(attacker) && edges[2].blocked(attacker)); i++ {
		if edges[i%2].ask(attacker) {
			admitted++
		}
		if time.Now().After(deadline) {
			t.Fatalf("not blocked everywhere after a minute and %d requests: %v %v %v %+v", i, edges[0].blocked(attacker), edges[1].blocked(attacker), edges[2].blocked(attacker), edges[2].tier.Stats())
		}
	}
	if admitted < 100 {
		t.Errorf("%d admitted of a limit of 100", admitted)
	}
	for _, e := range edges {
		if err := e.stop(); err != nil {
			t.Error(err)
		}
		for _, n := range e.tier.Stats().Nodes {
			if n.Closed+n.Silent+n.Wrong > 0 {
				t.Errorf("connections lost: %+v", n)
			}
		}
	}
}
