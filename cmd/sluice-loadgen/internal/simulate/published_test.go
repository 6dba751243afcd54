//go:build !race

package simulate

import (
	"os"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/loadgen/judge"
	"sluice/loadgen/workload"
)

// TestPublished judges the limiter on parts of the published stream, beside two plain counters, which on a fortieth of the Poisson one are about
// as good as was published: 0.003 % wrong, a gap of 6 %. What goes wrong if nearest did not round: three sources in place of one are limited at
// their limit. If own hits were known no finer than to a sub-window: the gap is twenty times as wide. Of one seed's wrong decisions, which are
// one to four of ten million, chance decides, such as where windows begin. So those of nearest
// with four seeds are added up.
func TestPublished(t *testing.T) {
	f := &cli.RuleFlags{Limits: []uint{100}, Window: time.Minute, SubWindows: 12, Estimates: []string{"nearest", "lower"}, Mode: judge.Estimator.String()}
	_, rules, err := f.Rules()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	defer func(stderr *os.File) { os.Stderr = stderr }(os.Stderr)
	os.Stderr = null // there is a bar
	for _, p := range []struct {
		stream         string
		scale          int
		seeds          uint64
		wrong, limited [2]uint64  // nearest, over all seeds, and lower, of the first
		gap            [2]float64 // %
		calibrated     bool       // it has hot visits enough for the share of wrong decisions: tens of millions, which is for make properties
	}{
		{workload.PublishedBursty, 400, 1, [2]uint64{}, [2]uint64{}, [2]float64{0.0123, 0.0158}, false},
		{workload.PublishedPoisson, 400, 1, [2]uint64{}, [2]uint64{}, [2]float64{0.0821, 0.123}, false},
		{workload.PublishedPoisson, 40, 4, [2]uint64{10, 2}, [2]uint64{6, 0}, [2]float64{0.0821, 0.123}, true},
	} {
		if p.calibrated && !*all {
			continue
		}
		reports, err := Published(t.Context(), p.stream, p.scale, 1, rules)
		if err != nil {
			t.Fatal(err)
		}
		for seed := uint64(2); seed <= p.seeds; seed++ {
			more, err := Published(t.Context(), p.stream, p.scale, seed, rules[:1])
			if err != nil {
				t.Fatal(err)
			}
			f := &reports[0].Figures
			f.Wrong, f.WronglyLimited = f.Wrong+more[0].Figures.Wrong, f.WronglyLimited+more[0].Figures.WronglyLimited
		}
		for i, r := range reports {
			b, f := r.Baseline, &r.Figures
			t.Logf("%s, %s: two counters %.5f %% wrong, gap %.3f %%; %d wrong, %d limited, gap %.4f %%", p.stream, r.Run.Estimate,
				100*b.WrongRatio, 100*b.MeanGap, f.Wrong, f.WronglyLimited, 100*f.MeanGap)
			if f.Requests != uint64(400_000_000/p.scale) || b.Requests != f.Requests {
				t.Errorf("%s: %d requests, two counters %d", p.stream, f.Requests, b.Requests)
			}
			if b.MeanGap < 0.055 || b.MeanGap > 0.065 || p.calibrated && (b.WrongRatio < 0.00002 || b.WrongRatio > 0.00004) {
				t.Errorf("%s: two counters: %.5f %% wrong, gap %.3f %%: published are 0.003 %% and 6 %%", p.stream, 100*b.WrongRatio, 100*b.MeanGap)
			}
			if f.Wrong > 2*p.wrong[i] || f.WronglyLimited > 2*p.limited[i] || 100*f.MeanGap > 2*p.gap[i] {
				t.Errorf("%s, %s: %d wrong, %d limited, gap %.4f %%, where it was %d, %d and %.4f %%", p.stream, r.Run.Estimate,
					f.Wrong, f.WronglyLimited, 100*f.MeanGap, p.wrong[i], p.limited[i], p.gap[i])
			}
		}
	}
}
