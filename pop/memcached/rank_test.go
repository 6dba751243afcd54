package memcached_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/wire"
)

// startRanking starts edges whose rule asks the tier before each decision; a request waits so long at most.
func startRanking(t *testing.T, n int, wait time.Duration, rule mitigation.Rule, names []string, nodes pipes, posture limiter.Posture) (edges []*edge) {
	t.Helper()
	rule.Counter.Sync = true
	for i := range uint64(n) {
		e := startEdge(t, i+1, rule, names, nodes.dial)
		e.rule.OnStoreFailure = posture
		e.Fetch = func(*algorithm.Spec, counter.Source) {}
		e.Wait = func(replies []<-chan struct{}) {
			late := time.NewTimer(wait)
			defer late.Stop()
			for _, r := range replies {
				select {
				case <-r:
				case <-late.C:
					return
				}
			}
		}
		edges = append(edges, e)
	}
	return edges
}

// together sends requests of a source through all edges at once, and says how many were admitted.
func together(edges []*edge, each int, s counter.Source) int {
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for _, e := range edges {
		for range each {
			wg.Go(func() {
				var d limiter.Decision
				d.Add(&e.rule, s)
				if e.Decide(&d, time.Now()); !d.Refused() {
					admitted.Add(1)
				}
			})
		}
	}
	wg.Wait()
	return int(admitted.Load())
}

// Of parallel requests over eight edges exactly the limit is admitted, whether a refusal blocks or only throttles, and what is refused
// does not count.
func TestParallelRequestsAreRanked(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		for _, limit := range []uint32{1, 5, 50, 400} {
			synctest.Test(t, func(t *testing.T) {
				nodes, names := newPipes(2)
				defer nodes.close()
				edges := startRanking(t, 8, time.Second, newRule(t, limit, time.Minute, timeout), names, nodes, limiter.Closed)
				for _, e := range edges {
					defer e.stop()
				}
				time.Sleep(2 * time.Second) // until all know of each other
				before := uint64(0)
				for _, e := range edges {
					before += e.commands() + e.gets()
				}
				const rounds = 10
				for round := range uint32(rounds) {
					s := address(round)
					if got := together(edges, 25, s); got != int(min(limit, 200)) {
						t.Errorf("limit %d, timeout %v: admitted %d", limit, timeout, got)
					}
					synctest.Wait()
					if timeout > 0 || limit > 200 {
						continue
					}
					time.Sleep(200 * time.Millisecond) // then an edge asks anew
					if got := together(edges[:1], 1, s); got != 0 {
						t.Errorf("limit %d: one more is admitted later", limit)
					}
					v, _ := edges[0].Counters.Peek(edges[0].rule.Counter, s, time.Now())
					if v.Estimate != float64(limit) {
						t.Errorf("limit %d: %v count", limit, v.Estimate)
					}
				}
				after := uint64(0)
				for _, e := range edges {
					after += e.commands() + e.gets()
				}
				t.Logf("limit %d, timeout %v: %d commands for %d requests", limit, timeout, after-before, rounds*200)
			})
		}
	}
}

// While a node does not answer, a request waits as long as it may, and then the posture decides. What that refused does
// not count once the node goes on: what was reported is taken back.
func TestPosturesWithoutARank(t *testing.T) {
	f := func(posture limiter.Posture, room int, verdicts ...limiter.Verdict) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			nodes, names := newPipes(1)
			defer nodes.close()
			const wait = 5 * time.Millisecond
			e := startRanking(t, 1, wait, newRule(t, 2, time.Minute, 0), names, nodes, posture)[0]
			defer e.stop()
			time.Sleep(2 * time.Second)
			nodes[names[0]].Hang()
			for i, want := range verdicts {
				began := time.Now()
				e.ask(address(1))
				if took := time.Since(began); e.decision.Verdict != want || took > wait {
					t.Errorf("%s, request %d: %v after %v, want %v within %v", posture, i, e.decision.Verdict, took, want, wait)
				}
			}
			nodes[names[0]].Resume()
			time.Sleep(time.Second)
			left := 0
			for e.ask(address(1)) {
				left++
			}
			if left != room {
				t.Errorf("%s: %d admitted afterwards, want %d", posture, left, room)
			}
		})
	}
	pass, limited, closed := limiter.Passed, limiter.Limited, limiter.FailedClosed
	f(limiter.Local, 0, pass, pass, limited, limited)
	f(limiter.Open, 0, pass, pass, pass, pass)
	f(limiter.Closed, 2, closed, closed, closed, closed)
}

func (e *edge) gets() (n uint64) {
	for _, node := range e.tier.Stats().Nodes {
		n += node.Operations[wire.Get][wire.Done]
	}
	return n
}
