package rules

import (
	"errors"
	"time"

	"sluice/edge/limiter"
	"sluice/edge/peaks"
	"sluice/edge/rules/key"
)

// HasPeaks returns why no limit can be suggested for a rule; nil: its sources' peaks say one.
func (c *Config) HasPeaks() error {
	switch {
	case c.Limit == 0:
		return errors.New("it counts nothing, so nothing says how much of a limit sources use")
	case c.HasPlans():
		return errors.New("it has a limit for each plan, and which clients are on a plan decides of them: sluice usage shows what one has used")
	case c.Match.Descriptors != nil:
		return errors.New("proxies ask it by descriptors, and the edge sees none of the answers that would say who looks honest")
	case c.Algorithm != Sliding && c.Algorithm != Fixed:
		return errors.New("its algorithm is " + string(c.Algorithm) +
			", and limits are suggested for those that count in windows: sliding and fixed")
	}
	return nil
}

// Peaks notes how near the request's sources have come to the limits of their rules, and appends
// those that are of a sample.
func (d *Decision) Peaks(secret key.Secret, to []*peaks.Source, now time.Time) []*peaks.Source {
	next := 0
	for _, r := range d.Rules {
		results := d.resultsOf(r, next)
		next += len(results)
		result := &results[0]
		if r.Peaks == nil || r.of != nil || result.Rule != &r.Rule || result.Probe {
			continue
		}
		source := r.Peaks.Of(secret.Tag("", result.Source), now)
		if source == nil {
			continue
		}
		source.Is(&result.Source)
		ask := result.Reservation
		if ask != nil {
			source.Hits(ask.Estimate)
		}
		if counted := ask != nil && (ask.Always || !ask.Over && !d.Refused()); !counted ||
			result.Verdict == limiter.Mitigated {
			source.Cut()
		}
		to = append(to, source)
	}
	return to
}
