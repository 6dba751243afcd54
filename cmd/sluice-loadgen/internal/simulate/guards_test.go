//go:build !race

package simulate

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/virtual"
	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
	"sluice/loadgen/workload"
)

// all is for make properties: what is dear is left to it, and what remains of each guard finds what its comment says.
var all = flag.Bool("all", false, "run the guards of every size and seed, not only the cheap ones")

// figure is what is guarded of a run: counts of wrong decisions, gaps as shares, times in milliseconds.
type figure struct {
	allowed, limited          float64
	gap, hot                  float64 // mean_gap and mean_gap_hot
	first99, every50, every99 float64 // time to block
	commands                  float64 // per 1,000 requests
}

// guarded is what each kind of run gave when this was written, the same in every run of it.
var guarded = []struct {
	mode     string
	edges    int
	estimate string
	figure
}{
	{"estimator", 1, "nearest", figure{allowed: 20, limited: 16, gap: 0.00061, hot: 0.00082}},
	{"estimator", 1, "lower", figure{allowed: 70, gap: 0.00080, hot: 0.00124}},
	{"estimator", 8, "nearest", figure{allowed: 72, limited: 1, gap: 0.0304, hot: 0.0423, commands: 1766}},
	{"estimator", 8, "lower", figure{allowed: 98, gap: 0.0315, hot: 0.0453, commands: 1772}},
	{"deployed", 1, "nearest", figure{allowed: 14, limited: 6, gap: 0.00057, hot: 0.00082}},
	{"deployed", 1, "lower", figure{allowed: 40, gap: 0.00073, hot: 0.00125}},
	{"deployed", 8, "nearest", figure{allowed: 7, gap: 0.0291, hot: 0.0446, first99: 1, every50: 5.70, every99: 7.21, commands: 1654}},
	{"deployed", 8, "lower", figure{allowed: 13, gap: 0.0300, hot: 0.0477, first99: 1, every50: 5.77, every99: 7.21, commands: 1658}},
	{"deployed", 24, "nearest", figure{allowed: 7, gap: 0.0325, hot: 0.0504, first99: 1, every50: 5.90, every99: 10.3, commands: 1660}},
	{"deployed", 64, "nearest", figure{allowed: 11, gap: 0.0343, hot: 0.0545, first99: 1, every50: 5.97, every99: 20.3, commands: 1606}},
}

// What a figure may be at least, whatever was written of it: of none, there is no double.
const (
	someWrong  = 4
	roundTrips = 2 // ms, one each
)

// TestGuards fails when the limiter decides worse, later or at a higher price than it did when this was written, by a factor of two, on
// made traffic in virtual time. A change that is meant to cost so much writes the new figures here, and says why. It runs without the
// race detector, which takes ten times as long for what one goroutine does.
//
// Among what goes wrong here: own hits are no longer known finer than a sub-window; nearest does not round; the mitigation log is read every
// 100 ms; counters near their limit are not announced; edges do not tell each other when their hits came; reports are held back by 50 ms;
// mitigations are not written; a sub-window is counted twice.
func TestGuards(t *testing.T) {
	for _, g := range guarded {
		if g.edges > 8 && !*all {
			continue
		}
		t.Run(fmt.Sprintf("%s, %d edges, %s", g.mode, g.edges, g.estimate), func(t *testing.T) {
			t.Parallel()
			got := guardedRun(t, g.mode, g.edges, g.estimate)
			t.Logf("%+v", got)
			for _, f := range []struct {
				name             string
				want, got, least float64
			}{
				{"let pass above the limit", g.allowed, got.allowed, someWrong},
				{"limited at or under it", g.limited, got.limited, someWrong},
				{"mean gap", g.gap, got.gap, 0},
				{"mean gap from half the limit on", g.hot, got.hot, 0},
				{"ms to block on the first edge, p99", g.first99, got.first99, roundTrips},
				{"ms to block on every edge, p50", g.every50, got.every50, roundTrips},
				{"ms to block on every edge, p99", g.every99, got.every99, roundTrips},
				{"tier commands per 1,000 requests", g.commands, got.commands, 0},
			} {
				if f.got > max(2*f.want, f.least) {
					t.Errorf("%s: %.6g, where it was %.6g", f.name, f.got, f.want)
				}
			}
		})
	}
}

// shortBlocks is what sources that are on and off at the window's period made of blocks shorter than it, over so many edges, when this
// was written: requests let pass above the limit, answered wrongly, and ms until a block was in force on every edge, at most.
var shortBlocks = []struct {
	edges            int
	block            time.Duration
	allowed, answers float64
	most             float64
}{
	{2, 5 * time.Second, 307, 4503, 2045},
	{3, 5 * time.Second, 142, 4471, 2036},
	{8, 5 * time.Second, 142, 3524, 2642},
	{2, 10 * time.Second, 263, 3849, 2033},
	{3, 10 * time.Second, 193, 3677, 2048},
	{8, 10 * time.Second, 246, 3372, 2890},
}

// TestShortBlocks fails when blocks that are shorter than the window are decided worse or later than when this was written, by half. Such a
// source goes on at its limit, so nearly every decision depends on when, within a sub-window, other edges' hits came.
func TestShortBlocks(t *testing.T) {
	const limit, window = 100, time.Minute
	for _, g := range shortBlocks {
		if g.edges != 3 && !*all {
			continue
		}
		t.Run(fmt.Sprintf("%d edges, %v", g.edges, g.block), func(t *testing.T) {
			t.Parallel()
			var allowed, answers, most float64
			for seed := range uint64(2) {
				f := shortBlocksRun(t, seed+1, limit, window, g.block, g.edges)
				allowed, answers = allowed+float64(f.WronglyAllowed), answers+f.WrongAnswersRatio*float64(f.Requests)
				most = max(most, 1000*f.TimeToBlock.EveryEdge.Max)
			}
			t.Logf("%.0f, %.0f, %.0f", allowed, answers, most)
			for _, f := range []struct {
				name      string
				want, got float64
			}{
				{"let pass above the limit", g.allowed, allowed},
				{"answered wrongly", g.answers, answers},
				{"ms to block on every edge, at most", g.most, most},
			} {
				if f.got > 1.5*f.want {
					t.Errorf("%s: %.6g, where it was %.6g", f.name, f.got, f.want)
				}
			}
		})
	}
}

func shortBlocksRun(t *testing.T, seed uint64, limit uint, window, block time.Duration, edges int) judge.Figures {
	t.Helper()
	traffic, err := workload.Generate("onoff", workload.Options{Seed: seed, Limit: uint32(limit), Window: window, Duration: 4 * window})
	if err != nil {
		t.Fatal(err)
	}
	f := &cli.RuleFlags{Limits: []uint{limit}, Window: window, Timeout: block, SubWindows: 12, Estimates: []string{"nearest"}, Mode: "deployed"}
	mode, rules, err := f.Rules()
	if err != nil {
		t.Fatal(err)
	}
	size := &cli.PoP{Size: virtual.Size{Edges: edges, Nodes: max(edges/2, 1), RTT: time.Millisecond}, PerConnection: 20, Quiet: true}
	if err := size.Check(); err != nil {
		t.Fatal(err)
	}
	site, err := virtual.NewSite(traffic, mode, rules[0], &size.Size, true)
	if err != nil {
		t.Fatal(err)
	}
	o := judge.Options{Limit: uint32(limit), Window: window, Timeout: block, Ideal: virtual.IdealOf(traffic, rules[0])}
	v := judge.VirtualOptions{Edges: edges, PerConnection: size.PerConnection, Seed: seed}
	found, err := judge.Simulate(t.Context(), traffic, mode, o, site.Options(v), site.Limiter())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// guardedRun simulates traffic that asks for everything that is guarded: bursts, sources just above the limit, and abusers that go round
// the edges. One edge takes so much less time than eight that it gets more of it.
func guardedRun(t *testing.T, mode string, edges int, estimate string) figure {
	t.Helper()
	const limit, window = 20, 10 * time.Second
	duration := 40 * time.Second
	if edges == 1 {
		duration = 5 * time.Minute
	}
	var all []*trace.Trace
	for _, name := range []string{"burst", "just-above", "stuffing"} {
		w, err := workload.Generate(name, workload.Options{Seed: 1, Limit: limit, Window: window, Duration: duration, Edges: 8})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	f := &cli.RuleFlags{Limits: []uint{limit}, Window: window, Timeout: window, SubWindows: 12, Estimates: []string{estimate}, Mode: mode}
	m, rules, err := f.Rules()
	if err != nil {
		t.Fatal(err)
	}
	size := &cli.PoP{Size: virtual.Size{Edges: edges, Nodes: min(edges/2, 8), RTT: time.Millisecond}, PerConnection: 20, Quiet: true}
	if err := size.Check(); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), trace.Merge(all...), m, rules[0], size)
	if err != nil {
		t.Fatal(err)
	}
	if r.Figures.BeyondBound > 0 {
		t.Errorf("%d sources were admitted more than the design allows", r.Figures.BeyondBound)
	}
	return figureOf(&r.Figures)
}

func figureOf(f *judge.Figures) figure {
	out := figure{allowed: float64(f.WronglyAllowed), limited: float64(f.WronglyLimited), gap: f.MeanGap, hot: f.MeanGapHot}
	if b := f.TimeToBlock; b != nil {
		out.first99, out.every50, out.every99 = 1000*b.FirstEdge.P99, 1000*b.EveryEdge.P50, 1000*b.EveryEdge.P99
	}
	if f.TierOpsPer1000 != nil {
		out.commands = *f.TierOpsPer1000
	}
	return out
}
