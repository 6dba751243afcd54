package pop_test

import (
	"fmt"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/secret"
	"sluice/pop/sim"
)

// adverse is what happens to the clocks of a PoP.
type adverse struct {
	name    string
	skew    func(edge int) time.Duration               // at the start
	after   time.Duration                              // the sources come so long after the start
	do      func(w *sim.World, second int) (more bool) // called once in a second of the run
	slews   bool                                       // the clocks step again and again
	company bool                                       // it takes edges that go on
}

// steps has the clocks of edges step once, after ten seconds.
func steps(name string, by time.Duration, of func(edges, e int) bool) adverse {
	return adverse{name: fmt.Sprint(name, " by ", by), do: func(w *sim.World, second int) bool {
		for e := range w.Edges {
			if second == 10 && of(len(w.Edges), e) {
				w.StepClock(e, by)
			}
		}
		return second < 30
	}}
}

func everyEdge(_, _ int) bool     { return true }
func oneEdge(edges, e int) bool   { return e == edges/2 }
func allButOne(edges, e int) bool { return e != edges/2 }

// adversities are what clocks do to a PoP.
func adversities() (list []adverse) {
	for _, by := range []time.Duration{-5 * time.Second, 5 * time.Second, 20 * time.Minute, -time.Hour} {
		list = append(list, steps("one steps", by, oneEdge), steps("all step", by, everyEdge), steps("all but one step", by, allButOne))
		list = append(list, adverse{company: true, name: fmt.Sprint("all step by ", by, ", and all are restarted, one after the other"), do: func(w *sim.World, second int) bool {
			for e := range w.Edges {
				if second == 10 {
					w.StepClock(e, by)
				}
			}
			if e := (second - 25) / 4; second >= 25 && (second-25)%4 == 0 && e < min(len(w.Edges), 6) {
				w.Stop(e, true)
				if err := w.Start(e); err != nil {
					panic(err)
				}
			}
			return second < 60
		}})
		list = append(list, adverse{name: fmt.Sprint("all step by ", by, ", and one is without the tier for 15 s"), do: func(w *sim.World, second int) bool {
			for e := range w.Edges {
				if second == 10 {
					w.StepClock(e, by)
				}
			}
			switch second {
			case 12:
				w.Cut(0)
			case 27:
				w.Mend(0)
			}
			return second < 60
		}})
	}
	for _, apart := range []time.Duration{3 * time.Second, -3 * time.Second, time.Minute, time.Hour} {
		list = append(list, adverse{
			name: fmt.Sprint("one begins apart by ", apart), after: 5 * time.Second,
			skew: func(e int) time.Duration {
				if e == 0 {
					return apart
				}
				return 0
			},
			do: func(_ *sim.World, second int) bool { return second < 30 },
		})
	}
	for _, by := range []time.Duration{-time.Second, time.Second} {
		list = append(list, adverse{slews: true, name: fmt.Sprint("all step ten times by ", by), do: func(w *sim.World, second int) bool {
			for e := range w.Edges {
				if second >= 10 && second < 20 {
					w.StepClock(e, by)
				}
			}
			return second < 40
		}})
	}
	return list
}

// TestAdverseClocks: whatever the clocks of a PoP do, sources at nine tenths of a limit in ten seconds are refused on no edge, Retry-After is
// one that a client may be told, and one window later all sources get what they would if all clocks agreed.
func TestAdverseClocks(t *testing.T) {
	const (
		sources, limit = 20, 50
		window         = 10 * time.Second
		every          = window / 45
	)
	for _, edges := range []int{1, 2, 3, 8, 24, 64} {
		if edges > 8 && *manyHistories == 1 { // as many seconds as all others together
			continue
		}
		for _, c := range adversities() {
			if edges == 1 && c.company || edges == 24 && !c.company || edges == 64 && c.skew == nil && !c.slews {
				continue
			}
			t.Run(fmt.Sprint(edges, " edges, ", c.name), func(t *testing.T) {
				t.Parallel()
				spec, err := algorithm.NewSliding("clock", limit, window, 12, algorithm.Nearest)
				must(t, err)
				rule := limiter.Rule{Rule: mitigation.Rule{Counter: spec, Timeout: window}}
				w, err := sim.New(sim.Config{Edges: edges, Nodes: 2, RTT: time.Millisecond, Skew: c.skew, Secret: secret.Of([]byte("s"))},
					[]limiter.Rule{rule}, time.Unix(1_700_000_000, 0))
				must(t, err)
				w.Run(w.Now().Add(c.after))
				start, refused, sent, admitted, second := w.Now(), 0, 0, 0, -1
				var last int
				for n := 0; ; n++ {
					w.Run(start.Add(time.Duration(n) * every))
					if s := int(w.Now().Sub(start) / time.Second); s != second {
						second = s
						if !c.do(w, s) {
							last = n
							break
						}
					}
					for s := range sources { // all edges get some: in virtual time one that gets none does not look at the others' time
						sent++
						if w.Edges[(n/2+s)%edges].Request(&rule, address(uint32(s+1))).Refused() {
							refused++
						}
					}
				}
				// An attacker comes when all is quiet: what it sends within half a second may be hidden by what the clocks are still apart.
				for n := range 400 {
					w.Run(start.Add(time.Duration(last)*every + time.Duration(n)*20*time.Millisecond))
					d := w.Edges[n%edges].Request(&rule, address(1000))
					if !d.Refused() {
						admitted++
					} else if wait := d.Results[0].Wait; wait <= 0 || wait > 2*window {
						t.Errorf("Retry-After of %v", wait)
					}
				}
				if refused > 0 {
					t.Errorf("%d of %d requests refused", refused, sent)
				}
				if admitted > limit+25 {
					t.Errorf("%d admitted of a limit of %d", admitted, limit)
				}
			})
		}
	}
}

// TestAloneAndPutBack: an edge without others that is started anew after its clock was put back goes forward to the time that it wrote as the edge before,
// which is kept for a minute: so no hit is dated into a time that the tier has counted.
func TestAloneAndPutBack(t *testing.T) {
	const (
		limit  = 50
		window = 10 * time.Second
		step   = 20 * time.Millisecond
		stop   = 30900 * time.Millisecond // the last presence is nearly as old as it can be
	)
	for _, c := range []struct {
		by, gone time.Duration
	}{
		{time.Second, 200 * time.Millisecond},
		{time.Second, 2 * time.Second},
		{3 * time.Second, 200 * time.Millisecond},
		{3 * time.Second, 2 * time.Second},
		{5 * time.Second, 2 * time.Second},
		{5 * time.Second, 6 * time.Second},
		{12 * time.Second, 2 * time.Second},
		{12 * time.Second, 6 * time.Second},
		{45 * time.Second, 40 * time.Second},
		{time.Hour, 2 * time.Second},
		{time.Hour, 6 * time.Second},
		{75 * time.Second, 70 * time.Second}, // what it wrote is gone, and what was counted as well
	} {
		t.Run(fmt.Sprint("put back by ", c.by, ", away for ", c.gone), func(t *testing.T) {
			t.Parallel()
			spec, err := algorithm.NewSliding("clock", limit, window, 12, algorithm.Nearest)
			must(t, err)
			rule := limiter.Rule{Rule: mitigation.Rule{Counter: spec, Timeout: window}}
			w, err := sim.New(sim.Config{Edges: 1, Nodes: 2, RTT: time.Millisecond, Secret: secret.Of([]byte("s"))}, []limiter.Rule{rule}, time.Unix(1_700_000_000, 0))
			must(t, err)
			start, stopped, refused, last, most := w.Now(), false, 0, time.Duration(0), 0
			var attacks [10][]time.Duration // what was admitted in the last window
			for at := time.Duration(0); at < stop+c.gone+45*time.Second; at += step {
				w.Run(start.Add(at))
				switch {
				case at >= stop && !stopped:
					stopped = true
					w.Stop(0, false)
					w.StepClock(0, -c.by)
				case at >= stop+c.gone && !w.Runs(0):
					must(t, w.Start(0))
				}
				if !w.Runs(0) {
					continue
				}
				if at/step%11 == 0 { // nine tenths of the limit
					for s := range uint32(20) {
						if w.Edges[0].Request(&rule, address(s+1)).Refused() {
							refused, last = refused+1, at-stop-c.gone
						}
					}
				}
				for s := range attacks { // each begins a second after the other
					if at < stop-10*time.Second+time.Duration(s)*time.Second || at/step%2 > 0 || w.Edges[0].Request(&rule, address(uint32(1000+s))).Refused() {
						continue
					}
					attacks[s] = append(attacks[s], at)
					for at-attacks[s][0] >= window {
						attacks[s] = attacks[s][1:]
					}
					most = max(most, len(attacks[s]))
				}
			}
			t.Logf("%d refused, the last %v after; %d of an attacker", refused, last, most)
			if most > limit+5 {
				t.Errorf("%d admitted of an attacker, of a limit of %d", most, limit)
			}
			if refused > 0 {
				t.Errorf("%d requests refused, the last %v after the restart", refused, last)
			}
		})
	}
}
