package whatif

import (
	"slices"
	"strings"

	"sluice/cmd/internal/cli"
	"sluice/cmd/sluice-loadgen/internal/dryrun"
	"sluice/counter/algorithm"
	"sluice/edge/config"
	"sluice/edge/rules"
	"sluice/loadgen/whatif"
)

// curved is the rules to try at other limits.
func (f *askFlags) curved(c *config.Config) (list []int, err error) {
	if len(f.curves) == 0 && len(c.Rules) == 1 {
		return []int{0}, nil
	}
	for _, name := range f.curves {
		i := slices.IndexFunc(c.Rules, func(r rules.Config) bool { return r.Name == name })
		if i < 0 {
			var names []string
			for _, r := range c.Rules {
				names = append(names, r.Name)
			}
			return nil, cli.Usagef("--curve %s: no rule of that name is on; there is %s", name,
				strings.Join(names, ", "))
		}
		list = append(list, i)
	}
	return list, nil
}

// drawCurve tries a rule's own limit at others, alone and enforced.
func drawCurve(c *config.Config, r rules.Config, run func(*config.Config,
	uint32) (*whatif.Report, error)) (whatif.Curve, error) {
	curve := whatif.Curve{Rule: r.Name, Limit: r.Limit}
	for _, limit := range whatif.LimitsAround(r.Limit, algorithm.MaxLimit) {
		alone := *c
		r = r.OwnLimit()
		if r.Limit, r.Mode, r.Plans = limit, rules.Enforce, nil; r.Action == rules.Tag ||
			r.Action == dryrun.Challenge {
			r.Action = rules.Refuse
		}
		if _, err := r.CheckAlgorithm(); err != nil {
			continue // it has no such limit
		}
		alone.Rules, alone.Shadow = []rules.Config{r}, false
		w, err := run(&alone, limit)
		if err != nil {
			return curve, err
		}
		curve.Points = append(curve.Points, w.Point(limit))
	}
	return curve, nil
}
