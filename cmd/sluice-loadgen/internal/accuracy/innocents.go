package accuracy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/virtual"
	"sluice/loadgen/judge"
	"sluice/loadgen/workload"
)

// An innocent keeps within its limit, in a window and what clocks are apart: an exact log by the
// edges' clocks would refuse it else. cell is where some are judged: under a rule as it is by
// default, over so many edges.
type cell struct {
	limit         uint
	edges         int
	throttles     bool
	perConnection int
	skew          time.Duration
}

func (c *cell) String() string {
	does := "blocks"
	if c.throttles {
		does = "throttles"
	}
	return fmt.Sprintf("limit %d, %d edges, %s, %d requests a connection, clocks %v apart", c.limit,
		c.edges, does, c.perConnection, c.skew)
}

// cells are all in which no innocent may be refused.
func cells() (all []cell) {
	for _, limit := range []uint{1, 5, 10, 60, 100, 600} {
		for _, edges := range []int{1, 2, 8, 64} {
			for _, throttles := range []bool{false, true} {
				all = append(all, cell{limit, edges, throttles, 1, 0})
				if edges > 1 {
					all = append(all, cell{limit, edges, throttles, 20, 0},
						cell{limit, edges, throttles, 1, 100 * time.Millisecond})
				}
			}
		}
	}
	return all
}

// judgeInnocents judges the workload of that name for so many windows of a minute.
func judgeInnocents(ctx context.Context, c cell, estimate string, windows int,
	seed uint64) (judge.Figures, error) {
	const window = time.Minute
	t, err := workload.Generate("innocents", workload.Options{Seed: seed, Limit: uint32(c.limit),
		Window: window, Duration: time.Duration(windows) * window, Apart: c.skew})
	if err != nil {
		return judge.Figures{}, err
	}
	f := &cli.RuleFlags{Limits: []uint{c.limit}, Window: window, Timeout: window, SubWindows: 12,
		Estimates: []string{estimate}, Mode: judge.Deployed.String()}
	if c.throttles {
		f.Timeout = 0
	}
	mode, rules, err := f.Rules()
	if err != nil {
		return judge.Figures{}, err
	}
	rule := rules[0]
	o := judge.Options{Limit: rule.Counter.Limit, Window: window, Timeout: rule.Timeout,
		Truth: virtual.TruthOf(t, rule.Counter)}
	v := judge.VirtualOptions{Edges: c.edges, PerConnection: c.perConnection, Seed: seed}
	size := &cli.PoP{Size: virtual.Size{Edges: c.edges, Nodes: min(c.edges/2, mostNodes),
		RTT: time.Millisecond, Skew: c.skew}, PerConnection: c.perConnection, Quiet: true}
	if err := size.Check(); err != nil {
		return judge.Figures{}, err
	}
	if size.Nodes == 0 {
		return judge.Simulate(ctx, t, mode, o, v, virtual.NewOracle(t, mode, rule).Limiter())
	}
	site, err := virtual.NewSite(t, mode, rule, &size.Size, true)
	if err != nil {
		return judge.Figures{}, err
	}
	found, err := judge.Simulate(ctx, t, mode, o, site.Options(v), site.Limiter())
	if err == nil {
		commands, _ := site.Cost()
		found.SetTierOps(commands)
	}
	return found, errors.Join(err, site.Err)
}

// refusesInnocents says what a run did to sources that never were over their limit, or nothing.
func refusesInnocents(c cell, f *judge.Figures) error {
	if f.FalsePositiveSources+int(f.WronglyLimited) == 0 {
		return nil
	}
	return fmt.Errorf("innocents, %v: %d of %d sources refused, though they never were over", &c,
		f.FalsePositiveSources, f.Sources)
}

// runInnocents judges innocents in every cell, ten minutes each, with each seed, and prints a line
// for each.
func (s *suite) runInnocents(ctx context.Context, w io.Writer) error {
	all := cells()
	type result struct {
		sources, refused, requests, wrong uint64
		commands                          float64
	}
	results, errs := make([]result, len(all)), make([]error, len(all))
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all) &&
				ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				for seed := range s.seeds {
					f, err := judgeInnocents(ctx, all[i], "nearest", 11, s.seed+uint64(seed))
					if err != nil {
						errs[i] = err
						break
					}
					errs[i] = errors.Join(errs[i], refusesInnocents(all[i], &f))
					r := &results[i]
					r.sources, r.refused = r.sources+uint64(f.Sources),
						r.refused+uint64(f.FalsePositiveSources)
					r.requests, r.wrong = r.requests+f.Requests, r.wrong+f.Requests-f.Admitted
					if f.TierOpsPer1000 != nil {
						r.commands += *f.TierOpsPer1000 / 1000 / float64(s.seeds)
					}
				}
				fmt.Fprintf(os.Stderr, "\rinnocents: %d of %d ", done.Add(1), len(all))
			}
		})
	}
	wg.Wait()
	fmt.Fprintln(os.Stderr)
	fmt.Fprintf(w,
		"innocents: sources within their limit in a minute, ten minutes, nearest, 1 ms, seeds %d to %d\n", s.seed, s.seed+uint64(s.seeds)-1)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t,
		"  limit\tedges\t\tper connection\tclocks apart\tsources\trefused\trequests\trefused\tcommands a request\t")
	for i, c := range all {
		r, does := results[i], "blocks"
		if c.throttles {
			does = "throttles"
		}
		fmt.Fprintf(t, "  %d\t%d\t%s\t%d\t%v\t%d\t%d\t%d\t%d\t%.2f\t\n", c.limit, c.edges, does,
			c.perConnection, c.skew, r.sources, r.refused, r.requests, r.wrong, r.commands)
	}
	t.Flush()
	return errors.Join(append(errs, ctx.Err())...)
}
