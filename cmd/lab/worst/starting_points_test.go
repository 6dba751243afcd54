package worst

import (
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// TestSuspectsKeepTheBudget: what searches have found, and what looks expensive to who knows the code, each behaviour by itself.
func TestSuspectsKeepTheBudget(t *testing.T) {
	t.Parallel()
	const second = time.Second
	most, timeouts := 64, []time.Duration{0, 10 * second}
	if raceEnabled { // one goroutine's arithmetic
		most, timeouts = 8, timeouts[1:]
	}
	f := func(edges int, limit uint32, window, timeout time.Duration, fresh bool, phase Phase) {
		t.Helper()
		b := Behaviour{Edges: edges, Limit: limit, Window: window, Timeout: timeout, SubWindows: 12, Estimate: algorithm.Nearest, Fresh: fresh, Phases: []Phase{phase}}
		r, err := b.run(1, full, 2)
		if err != nil {
			t.Fatal(err)
		}
		if r.Requests < full {
			t.Errorf("%d requests, want %d, by %v", r.Requests, full, &r)
		}
		t.Logf("%.3g commands for each of %d requests by %v", per(r.Commands, r.Requests), r.Requests, &r)
		for _, o := range Objectives() {
			if got, budget := o.Value(&r), o.Budget(&r); got > budget {
				t.Errorf("%s: %.3g, the budget is %.3g, by %v", o.Name, got, budget, &r)
			}
		}
	}
	atOnce := func(n int, pause time.Duration) Phase { return Phase{Requests: n, AtOnce: n, Pause: pause} }
	for _, timeout := range timeouts {
		// Who is over the limit: a block costs commands of its own.
		for _, edges := range []int{2, most} {
			f(edges, 1, second, timeout, true, atOnce(2, second/10))
			f(edges, 2, second, timeout, true, atOnce(3, second/10))
		}
		for _, edges := range []int{8, most} {
			f(edges, 4, second, timeout, true, atOnce(5, second/10))
			f(edges, 16, second, timeout, true, atOnce(64, second))
		}
		// Who is at it: a block changes nothing, or ends what costs.
		few, several := []int{2}, []int{8}
		if timeout == 0 {
			few, several = append(few, most), append(several, most)
		}
		for _, edges := range few {
			f(edges, 1, second, timeout, true, atOnce(1, second/10))
			f(edges, 2, second, timeout, true, atOnce(2, second/10))
			f(edges, uint32(edges), second, timeout, false, atOnce(edges, second/3))
			f(edges, 4*uint32(edges), second, timeout, false, atOnce(edges, second/3))
		}
		for _, edges := range several {
			f(edges, 11, second, timeout, true, atOnce(11, second))
			f(edges, 64, second, timeout, true, atOnce(64, second))
			f(edges, 4, second, timeout, false, atOnce(4, second))
			f(edges, 16, second, timeout, false, atOnce(16, second))
			f(edges, 64, second, timeout, false, atOnce(64, second))
		}
	}
}

// TestSuspectsUnderSync: what asking before each decision costs at worst, each behaviour by itself. It is more than the budget where sources
// that nobody has seen go over a small limit through several edges: docs/operating/rule-kinds.md says how much.
func TestSuspectsUnderSync(t *testing.T) {
	t.Parallel()
	const second = time.Second
	windows := []time.Duration{second, 60 * second}
	if raceEnabled {
		windows = windows[:1]
	}
	for _, window := range windows {
		budget := 4.6
		if window > 18*second { // groups of sub-windows are longer than clocks are apart
			budget = 4.2
		}
		f := func(edges int, limit uint32, timeout time.Duration, fresh bool, phase Phase) {
			t.Helper()
			b := Behaviour{Edges: edges, Limit: limit, Window: window, Timeout: timeout, SubWindows: 12, Estimate: algorithm.Nearest, Fresh: fresh, Sync: true, Phases: []Phase{phase}}
			r, err := b.run(1, full, 2)
			if err != nil {
				t.Fatal(err)
			}
			if got := per(r.Commands, r.Requests); got > budget || r.Requests < full {
				t.Errorf("%.3g commands for each of %d requests, the budget is %.3g, by %v", got, r.Requests, budget, &r)
			}
			if got := per(r.Bytes, r.Requests); got > 1024 {
				t.Errorf("%.4g bytes for each of %d requests, by %v", got, r.Requests, &r)
			}
		}
		timeouts := []time.Duration{0, window, 2 * window}
		if raceEnabled {
			timeouts = timeouts[1:2]
		}
		for _, timeout := range timeouts {
			for _, edges := range []int{2, 8} {
				for _, limit := range []int{1, 5} {
					f(edges, uint32(limit), timeout, true, Phase{Requests: limit + 1, AtOnce: limit + 1, Pause: second})
				}
				f(edges, 2, timeout, true, Phase{Requests: 3, AtOnce: 1, Gap: second / 20, Pause: second})
				f(edges, 5, timeout, true, Phase{Requests: 1, AtOnce: 1, Pause: second / 10})
				f(edges, 5, timeout, false, Phase{Requests: 10, AtOnce: 1, Gap: second / 10, Pause: second / 2})
			}
		}
	}
}
