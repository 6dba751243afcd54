package main

import (
	"time"

	"github.com/spf13/pflag"

	"sluice/counter"
	"sluice/loadgen/judge"
	"sluice/mitigation"
	"sluice/pop"
)

// ruleFlags say what the limiter allows.
type ruleFlags struct {
	limits     []uint
	window     time.Duration
	timeout    time.Duration
	subWindows int
	estimates  []string
	mode       string
}

func addRule(flags *pflag.FlagSet) *ruleFlags {
	f := new(ruleFlags)
	flags.UintSliceVar(&f.limits, "limit", []uint{100}, "requests allowed in a window; several for a run each")
	flags.DurationVar(&f.window, "window", time.Minute, "`LENGTH` of the sliding window")
	flags.DurationVar(&f.timeout, "mitigation-timeout", time.Minute, "how `LONG` a source that went over is refused; 0 throttles")
	flags.IntVar(&f.subWindows, "sub-windows", 12, "1 (two plain counters), 2, 4, 8 or 12")
	flags.StringSliceVar(&f.estimates, "estimate", []string{"nearest"}, "nearest, lower or unrounded; several for a run each")
	flags.StringVar(&f.mode, "mode", "deployed", "estimator (nothing is blocked) or deployed")
	return f
}

// rules gives the mode, and a rule for each limit and estimate, named alike, so that they would share counters of one shape.
func (f *ruleFlags) rules() (mode judge.Mode, rules []pop.Rule, err error) {
	if mode, err = judge.ParseMode(f.mode); err != nil {
		return 0, nil, usagef("--%v", err)
	}
	if f.timeout < 0 || f.timeout > mitigation.MaxTimeout {
		return 0, nil, usagef("--mitigation-timeout %v: want 0 to %v", f.timeout, mitigation.MaxTimeout)
	}
	for _, limit := range f.limits {
		for _, name := range f.estimates {
			e := counter.Unrounded
			if name != "unrounded" {
				if e, err = counter.ParseEstimate(name); err != nil {
					return 0, nil, usagef("--estimate %s: want nearest, lower or unrounded", name)
				}
			}
			if limit > counter.MaxLimit {
				return 0, nil, usagef("--limit %d: want 1 to %d", limit, counter.MaxLimit)
			}
			r, err := counter.NewRule("default", uint32(limit), f.window, f.subWindows, e)
			if err != nil {
				return 0, nil, usagef("--%v", err)
			}
			rules = append(rules, pop.Rule{Counter: r, Timeout: f.timeout})
		}
	}
	return mode, rules, nil
}
