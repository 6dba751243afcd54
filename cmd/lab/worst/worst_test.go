package worst

import (
	"strings"
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// TestBudget holds what a small search finds against the budget.
func TestBudget(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{Seed: 2, Rounds: 12, Edges: 4, Timeout: -1},
		{Seed: 3, Rounds: 8, Edges: 8, Limit: 100, Window: 10 * time.Second, Timeout: 10 * time.Second, Nodes: 2},
	} {
		if raceEnabled {
			o.Rounds = 1
		}
		found, err := Search(o, nil)
		if err != nil {
			t.Fatal(err)
		}
		var table strings.Builder
		if err := Write(&table, found); err != nil {
			t.Fatal(err)
		}
		t.Log(table.String())
		for i := range found {
			f := &found[i]
			if f.Over() {
				t.Errorf("%s: %.3g, the budget is %.3g, by %v", f.Name, f.Value(&f.Run), f.Budget(&f.Run), &f.Run)
			}
		}
	}
}

// TestAllEdgesAtOnce: where each edge has one request of a source in a group, each of them adds in vain, increments, and would read.
func TestAllEdgesAtOnce(t *testing.T) {
	t.Parallel()
	for _, b := range []Behaviour{
		{Edges: 24, Limit: 16, SubWindows: 12}, {Edges: 48, Limit: 48, SubWindows: 12}, {Edges: 48, Limit: 48, SubWindows: 4}, {Edges: 64, Limit: 64, SubWindows: 12},
	} {
		b.Window, b.Estimate = time.Second, algorithm.Nearest
		b.Phases = []Phase{{Requests: int(b.Limit), AtOnce: int(b.Limit), Pause: time.Second}}
		r, err := b.run(1, 1000, 1)
		if err != nil {
			t.Fatal(err)
		}
		if n := per(r.Commands, r.Requests); n > 3 {
			t.Errorf("%.3g commands a request by %v", n, &r)
		}
	}
}

// TestSearchIsRepeatable: the same seed finds the same.
func TestSearchIsRepeatable(t *testing.T) {
	t.Parallel()
	rounds := 8
	if raceEnabled {
		rounds = 2
	}
	f := func() string {
		found, err := Search(Options{Seed: 4, Rounds: rounds, Edges: 2, Limit: 5, Timeout: 0}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var table strings.Builder
		if err := Write(&table, found); err != nil {
			t.Fatal(err)
		}
		return table.String()
	}
	if once, twice := f(), f(); once != twice {
		t.Errorf("found\n%sand then\n%s", once, twice)
	}
}
