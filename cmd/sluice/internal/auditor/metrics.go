package auditor

import (
	"sluice/edge/audit/exactlog"
	"sluice/edge/metric"
)

const perPoP = " Of the edge that judges for the PoP; it adds up over edges."

// Collect gives what was found of the rules that are in force.
func (a *Auditor) Collect(to metric.Sink) {
	dropped := a.Notes.Dropped()
	names := a.Rules()
	a.mu.Lock()
	defer a.mu.Unlock()
	found := a.judge.Rules()
	for _, rule := range names {
		f := found[rule]
		if f == nil {
			f = exactlog.NewFigures()
		}
		to.Count(f.Decisions, "sluice_audit_decisions_total", "Decisions about watched sources that were held against the exact log of all edges' hits."+perPoP, "rule", rule)
		const wrong = "Those of them that the exact log contradicts. allowed: over the limit, and admitted; limited: within it, and refused."
		to.Count(f.Allowed, "sluice_audit_wrong_total", wrong, "rule", rule, "kind", "allowed")
		to.Count(f.Limited, "sluice_audit_wrong_total", wrong, "rule", rule, "kind", "limited")
		to.Count(f.Uncertain, "sluice_audit_uncertain_total", "Those of them that would be judged otherwise by clocks of edges that are `"+exactlog.Tolerance.String()+
			"` apart: the share of wrong decisions is known but for their share.", "rule", rule)
		to.Count(f.Unexplained, "sluice_audit_unexplained_total", "Wrong decisions that are a fault: neither what the rule's formula does not know, when the hits of one sub-window came, "+
			"nor clocks of edges up to `"+exactlog.Clocks.String()+"` apart explain them.", "rule", rule)
		to.Spread(f.Lags, "sluice_detection_seconds", "From when a watched source crossed its limit, by the exact log of all edges' hits, to its first refusal on an edge; "+
			"0 on one that let nothing more through."+perPoP, "rule", rule)
	}
	to.Gauge(a.judge.Gap(), "sluice_audit_gap", "Mean of |estimate - exact| / exact over the latest decisions that this edge has judged.")
	to.Gauge(float64(a.judge.Logs()), "sluice_audit_logs", "Exact logs under way, each of a source under a rule.")
	const skipped = "Decisions about watched sources that were not judged. incomplete: hits before them may be missing; full: there was no room."
	to.Count(a.judge.Skipped.Incomplete, "sluice_audit_skipped_total", skipped, "reason", "incomplete")
	to.Count(a.judge.Skipped.Full+dropped, "sluice_audit_skipped_total", skipped, "reason", "full")
	to.Whether(a.judges || a.Tier == nil, "sluice_audit_judges", "Whether this edge judges what the edges of its PoP decide: the oldest does.")
	if a.Tier != nil {
		to.Count(a.commands, "sluice_audit_commands_total", "Commands to the tier for the audit; sluice_tier_operations_total has them as well.")
	}
}
