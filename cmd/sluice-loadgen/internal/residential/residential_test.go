package residential

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"sluice/loadgen/residential"
)

func cells(t *testing.T, args ...string) []residential.Cell {
	t.Helper()
	c, flags := newCommand(), pflag.NewFlagSet("residential", pflag.ContinueOnError)
	c.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	report, err := c.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report.Cells
}

// What the documents say of challenges, at 20 requests a second. A refusal by the same key has to
// be far worse, or the workload says nothing.
func TestChallengesSpareVisitors(t *testing.T) {
	for _, seed := range []string{"1", "2", "3", "4"} {
		for _, c := range cells(t, "--seed", seed, "--solvers", "0.2", "--key", "path,ja4",
			"--scraper", "own:20,common:20") {
			f := &c.Figures
			name := seed + ": " + string(c.Answer) + " by " + string(c.Key) + ", " + string(c.TLS)
			switch {
			case f.BesideSolvers() > 0.03:
				t.Errorf("%s: %.3g of the scraper is let in, beside who solves", name,
					f.BesideSolvers())
			case c.Answer == residential.Refuse:
				if c.Key == residential.Path && f.RefusedRatio() < 0.5 {
					t.Errorf("%s: only %.3g of visitors' requests are refused", name,
						f.RefusedRatio())
				}
			case f.RefusedRatio() > 0.025 || f.LockedOutWith+f.RefusedWith > 0:
				t.Errorf("%s: %.3g of visitors' requests are refused, %d of visitors with "+
					"JavaScript are locked out", name, f.RefusedRatio(), f.LockedOutWith+f.RefusedWith)
			}
		}
	}
}

// Edges challenge as soon as they refuse.
func TestEveryEdgeChallenges(t *testing.T) {
	for _, c := range cells(t, "--edges", "8", "--duration", "12m", "--key", "path",
		"--scraper", "own:20", "--scraper-from", "2m") {
		every := c.Figures.TimeToBlock.EveryEdge
		if limit := (50 * time.Millisecond).Seconds(); every.N == 0 || every.P99 > limit {
			t.Errorf("%s: %+v, want at most %g s", c.Answer, every, limit)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"--scraper", "own"}, {"--scraper", "some:20"},
		{"--scraper", "own:x"}, {"--limit", "path=0"}, {"--limit", "path=5"}, {"--key", "host"},
		{"--edges", "0"}, {"--solvers", "2"}} {
		c, flags := newCommand(), pflag.NewFlagSet("residential", pflag.ContinueOnError)
		c.addFlags(flags)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		if _, err := c.run(t.Context()); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
