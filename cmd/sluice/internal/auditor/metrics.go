package auditor

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/edge/audit/exactlog"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_"+name, help, labels, nil)
}

const perPoP = " Of the edge that judges for the PoP; it adds up over edges."

var (
	decisions = desc("audit_decisions_total", "Decisions about watched sources that were held against the exact log of all edges' hits."+perPoP, "rule")
	wrong     = desc("audit_wrong_total", "Those of them that the exact log contradicts. allowed: over the limit, and admitted; limited: within it, and refused.", "rule", "kind")
	uncertain = desc("audit_uncertain_total", "Those of them that would be judged otherwise by clocks of edges that are `"+exactlog.Tolerance.String()+
		"` apart: the share of wrong decisions is known but for their share.", "rule")
	unexplained = desc("audit_unexplained_total", "Wrong decisions that are a fault: neither what the rule's formula does not know, when the hits of one sub-window came, nor clocks of edges up to `"+
		exactlog.Clocks.String()+"` apart explain them.", "rule")
	detection = desc("detection_seconds", "From when a watched source crossed its limit, by the exact log of all edges' hits, to its first refusal on an edge; 0 on one that let nothing more through."+perPoP, "rule")
	gap       = desc("audit_gap", "Mean of |estimate - exact| / exact over the latest decisions that this edge has judged.")
	logs      = desc("audit_logs", "Exact logs under way, each of a source under a rule.")
	skipped   = desc("audit_skipped_total", "Decisions about watched sources that were not judged. incomplete: hits before them may be missing; full: there was no room.", "reason")
	judging   = desc("audit_judges", "Whether this edge judges what the edges of its PoP decide: the oldest does.")
	commands  = desc("audit_commands_total", "Commands to the tier for the audit; sluice_tier_operations_total has them as well.")
)

// Describe sends nothing: whose metrics there are depends on the rules (an unchecked collector).
func (a *Auditor) Describe(chan<- *prometheus.Desc) {}

// Collect shows what was found of the rules that are in force.
func (a *Auditor) Collect(out chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	dropped, names := a.Notes.Dropped(), make(map[string]bool)
	for _, name := range a.Rules() {
		names[name] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	found := a.judge.Rules()
	for name := range maps.Keys(names) {
		f := found[name]
		if f == nil {
			f = new(exactlog.Figures)
		}
		count(decisions, f.Decisions, name)
		count(wrong, f.Allowed, name, "allowed")
		count(wrong, f.Limited, name, "limited")
		count(uncertain, f.Uncertain, name)
		count(unexplained, f.Unexplained, name)
		buckets, n, sum := f.Lags.Snapshot()
		out <- prometheus.MustNewConstHistogram(detection, n, sum, buckets, name)
	}
	gauge(gap, a.judge.Gap())
	gauge(logs, float64(a.judge.Logs()))
	count(skipped, a.judge.Skipped.Incomplete, "incomplete")
	count(skipped, a.judge.Skipped.Full+dropped, "full")
	judges := 0.0
	if a.judges || a.Tier == nil {
		judges = 1
	}
	gauge(judging, judges)
	if a.Tier != nil {
		count(commands, a.commands)
	}
}
