package edge

import (
	"time"

	"sluice/counter"
	"sluice/edge/limiter"
)

// A decision is a limiter's, with the edge's own of every rule.
type decision struct {
	limiter.Decision
	rules []*rule // in the order of Results
	buf   []byte
}

// Reset makes d ready for the next request.
func (d *decision) Reset() {
	d.Decision.Reset()
	clear(d.rules)
	d.rules = d.rules[:0]
}

// add puts d.rules to the limiter: each counts the source, or what its key makes of the request.
func (d *decision) add(key secret, h *head, source counter.Source) {
	for _, r := range d.rules {
		s := source
		if r.parts != nil {
			s, d.buf = key.digest(r.parts, h, source, d.buf)
		}
		d.Add(&r.Rule, s)
	}
}

// rule is the rule of a result.
func (d *decision) rule(r *limiter.RuleResult) *rule { return d.rules[r.Index] }

// tally counts the request in each rule: what the rule said of it, or, where another refused it before this one was asked, that
// this one had nothing against it.
func (d *decision) tally() {
	for i, r := range d.rules {
		result := &d.Results[i]
		r.tally.verdicts[result.Verdict].Add(1)
		if result.Skipped {
			r.tally.failed(r.OnStoreFailure)
		}
	}
}

// wait returns when all channels are closed, at most after the budget of a wait at first sight.
func (s *Server) wait(heard []<-chan struct{}) {
	timer := time.NewTimer(s.budget)
	defer timer.Stop()
	for _, h := range heard {
		select {
		case <-h:
		case <-timer.C:
			return
		}
	}
}
