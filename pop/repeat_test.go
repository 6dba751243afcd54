package pop_test

import (
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
	"sluice/pop/sim"
)

// Who comes back is blocked for longer on every edge: on one that was away while the block before was in force, too, however soon after the
// source's first request there it goes over. A lift forgets it everywhere.
func TestWhoComesBackIsBlockedForLonger(t *testing.T) {
	for _, burst := range []bool{false, true} {
		rule := newRule(t, 5, 10*time.Second, 40*time.Second, algorithm.Nearest)
		rule.Repeat = mitigation.Repeat{Timeouts: []time.Duration{2 * time.Minute, 10 * time.Minute}, Within: 5 * time.Minute}
		r := limiter.Rule{Rule: rule}
		w, err := sim.New(sim.Config{Edges: 3, Nodes: 2, RTT: time.Millisecond, Secret: secret.Of([]byte("test"))}, []limiter.Rule{r}, began)
		must(t, err)
		s := address(9)
		over := func(want time.Duration, edges ...int) {
			t.Helper()
			for i := range 6 {
				w.Edges[edges[i%len(edges)]].Request(&r, s)
				if !burst {
					w.Run(w.Now().Add(5 * time.Millisecond))
				}
			}
			pass(w, 600*time.Millisecond) // an edge that nobody asks reads the log twice a second
			for i, e := range w.Edges {
				until := e.Blocks.Until(mitigation.Key{Rule: r.Counter.ID, Source: s}, w.Now())
				if left := until.Sub(w.Now()); !w.Runs(i) || until.IsZero() || left > want || left < want-time.Second {
					t.Errorf("burst %v: edge %d blocks it until %v from now, want %v", burst, i, left, want)
				}
			}
			passBy(w, want, 25*pop.Tick)
		}
		over(40*time.Second, 0) // longer than the log is kept
		must(t, w.Start(2))
		pass(w, 2*time.Second)
		over(2*time.Minute, 2)
		over(10*time.Minute, 0)
		say(t, w, w.Edges[1], operatorlog.Lift, s, 0)
		pass(w, 2*time.Second)
		over(40*time.Second, 1)
		must(t, w.Start(2))
		pass(w, 2*time.Second)
		over(2*time.Minute, 2)
		passBy(w, 5*time.Minute, 25*pop.Tick)
		over(40*time.Second, 1)
		over(2*time.Minute, 0, 1, 2) // none of them counts too many itself
	}
}
