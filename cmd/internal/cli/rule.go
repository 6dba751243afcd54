package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/counter/algorithm"
	"sluice/edge/rules"
	"sluice/loadgen/judge"
	"sluice/mitigation"
)

// RuleFlags say what the limiter allows.
type RuleFlags struct {
	Limits     []uint
	Window     time.Duration
	Timeout    time.Duration
	SubWindows int
	Estimates  []string
	Mode       string
	Algorithm  string
	Burst      uint32
}

// AddRule registers its flags.
func AddRule(flags *pflag.FlagSet) *RuleFlags {
	f := new(RuleFlags)
	flags.UintSliceVar(&f.Limits, "limit", []uint{100},
		"requests allowed in a window; several, as those of plans, for a run each: no run here knows keys or plans")
	flags.DurationVar(&f.Window, "window", time.Minute,
		"`LENGTH` of the sliding window; one limit in one window is judged here:\na rule with several windows or prefixes is for what-if --config; no trace says how long\nrequests take, so a concurrency is judged by running edges alone")
	flags.DurationVar(&f.Timeout, "mitigation-timeout", time.Minute,
		"how `LONG` a source that went over is refused; 0 throttles")
	flags.IntVar(&f.SubWindows, "sub-windows", 12, "1 (two plain counters), 2, 4, 8 or 12")
	flags.StringSliceVar(&f.Estimates, "estimate", []string{"nearest"},
		"nearest, lower or unrounded; several for a run each")
	flags.StringVar(&f.Mode, "mode", "deployed", "estimator (nothing is blocked) or deployed")
	AddAlgorithm(flags, &f.Algorithm, &f.Burst)
	return f
}

// AddAlgorithm registers the flags of a rule's algorithm.
func AddAlgorithm(flags *pflag.FlagSet, algorithm *string, burst *uint32) {
	flags.StringVar(algorithm, "algorithm", string(rules.Sliding),
		"sliding, fixed, token_bucket, leaky_bucket or exact")
	flags.Uint32Var(burst, "burst", 0,
		"of token_bucket: how many at once, 0 for the limit; of leaky_bucket: how many may wait")
}

// OnlySliding says that a command knows no other algorithm.
func (f *RuleFlags) OnlySliding(command string) error {
	if f.algorithm() != rules.Sliding || f.Burst != 0 {
		return Usagef("--algorithm %s: %s knows sliding windows only: simulate and compare judge each algorithm by its own truth, and what-if asks a log", f.Algorithm, command)
	}
	return nil
}

// algorithm is that of the flag, or sliding where there is none.
func (f *RuleFlags) algorithm() rules.Algorithm {
	return cmp.Or(rules.Algorithm(f.Algorithm), rules.Sliding)
}

// counter makes the counter of a rule.
func (f *RuleFlags) counter(limit uint32, e algorithm.Estimate) (*algorithm.Spec, error) {
	c := rules.Default("default", limit)
	c.Window, c.SubWindows, c.Algorithm, c.Burst = rules.Duration(f.Window), f.SubWindows,
		f.algorithm(), f.Burst
	if c.Algorithm != rules.Sliding {
		c.Estimate = &e
	}
	if !slices.Contains(rules.Algorithms, c.Algorithm) {
		return nil, fmt.Errorf("algorithm %s: want one of %v", f.Algorithm, rules.Algorithms)
	}
	if field, err := c.CheckAlgorithm(); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.ReplaceAll(field, "_", "-"), err)
	}
	if f.Mode == judge.Estimator.String() && c.Algorithm != rules.Sliding &&
		c.Algorithm != rules.Exact {
		return nil,
			fmt.Errorf("mode estimator: %s has no estimate of the requests in a window: use --mode deployed", f.Algorithm)
	}
	return c.NewCounter("default", e)
}

// Rules gives the mode, and a rule for each limit and estimate, named alike, so that they would
// share counters of one shape.
func (f *RuleFlags) Rules() (mode judge.Mode, all []mitigation.Rule, err error) {
	if mode, err = judge.ParseMode(f.Mode); err != nil {
		return 0, nil, Usagef("--%v", err)
	}
	if f.Timeout < 0 || f.Timeout > mitigation.MaxTimeout {
		return 0, nil, Usagef("--mitigation-timeout %v: want 0 to %v", f.Timeout,
			mitigation.MaxTimeout)
	}
	for _, limit := range f.Limits {
		for _, name := range f.Estimates {
			e := algorithm.Unrounded
			if name != "unrounded" {
				if e, err = algorithm.ParseEstimate(name); err != nil {
					return 0, nil, Usagef("--estimate %s: want nearest, lower or unrounded", name)
				}
			}
			if limit > algorithm.MaxLimit {
				return 0, nil, Usagef("--limit %d: want 1 to %d", limit, algorithm.MaxLimit)
			}
			r, err := f.counter(uint32(limit), e)
			if err != nil {
				return 0, nil, Usagef("--%v", err)
			}
			all = append(all, mitigation.Rule{Counter: r, Timeout: f.Timeout})
		}
	}
	return mode, all, nil
}
