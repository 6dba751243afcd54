package rules

import (
	"sluice/edge/limiter"
	"sluice/edge/metric"
)

// RequestsMetric is the metric of what rules said. What a list denies is a value of it as well.
const (
	RequestsMetric = "sluice_requests_total"
	RequestsHelp   = "Requests under a rule, by what it said; rule is empty where no rule did, as of the list deny (denied); open: not asked, because no node answered. Requests of a source that is blocked under a rule about all requests count under such rules alone."
)

// Collect gives what every rule of the set has said.
func (s *Set) Collect(to metric.Sink) {
	for _, r := range s.All {
		for v := range limiter.Verdicts {
			to.Count(r.Tally.Verdicts[v].Load(), RequestsMetric, RequestsHelp,
				"rule", r.Config.Name, "verdict", v.String())
		}
		to.Count(r.Tally.Open.Load(), RequestsMetric, RequestsHelp, "rule", r.Config.Name,
			"verdict", "open")
		if r.Config.Mode != Off {
			to.Spread(r.Tally.Used, "sluice_rule_utilization",
				"Share of its limit that a source has used, the request included, where a rule's counter was asked; one decision in 64.",
				"rule", r.Config.Name)
		}
		if r.plans != nil && r.Config.Mode != Off {
			r.plans.collect(to, r.Config.Name)
		}
		if p := r.OnStoreFailure; p == limiter.Open || p == limiter.Closed {
			to.Count(r.Tally.Open.Load(), "sluice_store_failure_total",
				"Decisions made without the tier because a node was down.",
				"rule", r.Config.Name, "posture", string(limiter.Open))
			to.Count(r.Tally.Closed.Load(), "sluice_store_failure_total",
				"Decisions made without the tier because a node was down.",
				"rule", r.Config.Name, "posture", string(limiter.Closed))
		}
	}
}

// collect gives what the rule said to clients, by their plan.
func (v *planned) collect(to metric.Sink, rule string) {
	each := func(plan string, t *PlanTally) {
		for verdict := range limiter.Verdicts {
			to.Count(t.Verdicts[verdict].Load(), "sluice_plan_requests_total",
				"Requests under a rule that knows clients by their plan, by plan and by what the rule said; other: a plan that the rule does not name; none given: the client is on no plan.",
				"rule", rule, "plan", plan, "verdict", verdict.String())
		}
		to.Spread(t.Used, "sluice_plan_utilization",
			"Share of its limit that a client has used, the request included, by plan, where a rule's counter was asked; one decision in 64.",
			"rule", rule, "plan", plan)
	}
	for plan, t := range v.tallies {
		each(plan, t)
	}
	if v.tallies[otherPlans] == nil {
		each(otherPlans, v.others)
	}
}
