package cli

import (
	"time"

	"github.com/spf13/pflag"

	"sluice/counter"
	"sluice/loadgen/judge"
	"sluice/mitigation"
	"sluice/pop"
)

// Rule says what the limiter allows.
type Rule struct {
	Limits     []uint
	Window     time.Duration
	Timeout    time.Duration
	SubWindows int
	Estimates  []string
	Mode       string
}

// AddRule registers its flags.
func AddRule(flags *pflag.FlagSet) *Rule {
	f := new(Rule)
	flags.UintSliceVar(&f.Limits, "limit", []uint{100}, "requests allowed in a window; several for a run each")
	flags.DurationVar(&f.Window, "window", time.Minute, "`LENGTH` of the sliding window; one limit in one window is judged here:\na rule with several windows or prefixes is for what-if --config")
	flags.DurationVar(&f.Timeout, "mitigation-timeout", time.Minute, "how `LONG` a source that went over is refused; 0 throttles")
	flags.IntVar(&f.SubWindows, "sub-windows", 12, "1 (two plain counters), 2, 4, 8 or 12")
	flags.StringSliceVar(&f.Estimates, "estimate", []string{"nearest"}, "nearest, lower or unrounded; several for a run each")
	flags.StringVar(&f.Mode, "mode", "deployed", "estimator (nothing is blocked) or deployed")
	return f
}

// Rules gives the mode, and a rule for each limit and estimate, named alike, so that they would share counters of one shape.
func (f *Rule) Rules() (mode judge.Mode, rules []pop.Rule, err error) {
	if mode, err = judge.ParseMode(f.Mode); err != nil {
		return 0, nil, Usagef("--%v", err)
	}
	if f.Timeout < 0 || f.Timeout > mitigation.MaxTimeout {
		return 0, nil, Usagef("--mitigation-timeout %v: want 0 to %v", f.Timeout, mitigation.MaxTimeout)
	}
	for _, limit := range f.Limits {
		for _, name := range f.Estimates {
			e := counter.Unrounded
			if name != "unrounded" {
				if e, err = counter.ParseEstimate(name); err != nil {
					return 0, nil, Usagef("--estimate %s: want nearest, lower or unrounded", name)
				}
			}
			if limit > counter.MaxLimit {
				return 0, nil, Usagef("--limit %d: want 1 to %d", limit, counter.MaxLimit)
			}
			r, err := counter.NewRule("default", uint32(limit), f.Window, f.SubWindows, e)
			if err != nil {
				return 0, nil, Usagef("--%v", err)
			}
			rules = append(rules, pop.Rule{Counter: r, Timeout: f.Timeout})
		}
	}
	return mode, rules, nil
}
