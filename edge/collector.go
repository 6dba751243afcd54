package edge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/counter"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/metric"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// Collector returns the edge's metrics: each package collects its own. Which there are depends on
// the rules.
func (s *Server) Collector() prometheus.Collector {
	return metric.Collector(func(to metric.Sink) {
		now, snap := time.Now(), s.snap.Load()
		s.stats.collect(to)
		s.listening.open.Collect(to)
		s.listening.http2.Collect(to)
		snap.collect(to)
		snap.rules.Collect(to)
		snap.origins.Collect(to, now)
		s.collectLeaves(to)
		for _, m := range s.use {
			if m.Collect != nil {
				m.Collect(to)
			}
		}
		s.collectInFlight(to, snap)
		s.collectMitigations(to, snap, now)
		s.collectAtLimit(to, snap, now)
		s.collectCounters(to)
	})
}

// collect gives which configuration is in force.
func (snap *snapshot) collect(to metric.Sink) {
	to.Gauge(float64(snap.generation), "sluice_rules_generation",
		"How many sets of rules have been in force.")
	to.Gauge(float64(snap.hash), "sluice_config_hash",
		"Stands for the rules in force: the same number on edges with the same rules.")
}

// collectLeaves gives what single numbers some rooms have.
func (s *Server) collectLeaves(to metric.Sink) {
	drained := 0.0
	if s.Drained() != nil {
		drained = 1
	}
	to.Gauge(drained, "sluice_drained",
		"Whether an operator has taken the edge out of service by hand (sluice drain).")
	to.Count(s.unbelieved.Total.Load(), "sluice_untrusted_forwarded_total",
		"Requests of peers that are not trusted that name another client.")
	for _, k := range events.Kinds() {
		to.Count(s.events.Count(k), "sluice_events_total",
			"Events, by kind; those that were not kept because they came too fast included.",
			"kind", string(k))
	}
}

// collectInFlight gives which requests hold a slot, and what is known of those that the tier keeps.
func (s *Server) collectInFlight(to metric.Sink, snap *snapshot) {
	inFlight, _ := s.limiter.InFlight.Held()
	for _, r := range snap.rules.All {
		if r.InFlight != nil {
			to.Gauge(float64(inFlight[r.InFlight.Name]), "sluice_in_flight",
				"Requests under way here that hold a slot under a rule's concurrency.", "rule",
				r.Config.Name)
		}
	}
	if s.limiter.Exact != nil {
		kept := s.limiter.Exact.Stats()
		to.Gauge(float64(kept.Sources), "sluice_exact_sources",
			"Sources under rules with check: sync and algorithm: exact or token_bucket whose state in the tier this edge has read.")
		to.Count(kept.Doubted, "sluice_exact_doubts_total",
			"Requests that a rule with check: sync refused in doubt, because a node had lost what it kept, or has just begun.")
		to.Count(kept.Conflict, "sluice_exact_conflicts_total",
			"Exchanges about rules with check: sync that were made again, because another edge was faster.")
	}
}

// collectMitigations gives which blocks are in force, under which rules, and what started them.
// Those of a rule's variants and further limits count under the rule.
func (s *Server) collectMitigations(to metric.Sink, snap *snapshot, now time.Time) {
	type series struct{ rule, mode string }
	of := map[uint32]series{mitigation.AllRules: {control.AllRules, string(rules.Enforce)}}
	for r, l := range snap.rules.EachLimit() {
		of[l.Counter.ID] = series{r.Config.Name, string(r.Config.Mode)}
	}
	active, lists := make(map[series]int), make(map[uint32]int)
	for key := range s.limiter.Blocks.All(now) {
		if at, known := of[key.Rule]; known {
			active[at]++
		} else {
			lists[key.Rule]++
		}
	}
	started := make(map[series]map[mitigation.By]uint64)
	for _, at := range of {
		started[at] = make(map[mitigation.By]uint64)
	}
	for began, n := range s.limiter.Blocks.Started() {
		if at, known := of[began.Rule]; known {
			started[at][began.By] += n
		}
	}
	for at, began := range started {
		to.Gauge(float64(active[at]), "sluice_mitigations_active",
			"Mitigations in force. Those of shadows refuse no request.", "rule", at.rule, "mode",
			at.mode)
		for by := mitigation.ByEdge; by <= mitigation.ByPeer; by++ {
			to.Count(began[by], "sluice_mitigations_started_total", "Mitigations begun, by cause.",
				"rule", at.rule, "by", by.String(), "mode", at.mode)
		}
	}
	to.Gauge(float64(lists[mitigation.Allowed]), "sluice_listed",
		"Prefixes that operators allow and deny for a while.", "list", "allow")
	to.Gauge(float64(lists[mitigation.Denied]), "sluice_listed",
		"Prefixes that operators allow and deny for a while.", "list", "deny")
	to.Gauge(float64(s.limiter.Blocks.Capacity()), "sluice_mitigations_limit",
		"Mitigations that the table has room for.")
	to.Count(s.limiter.Blocks.Evicted(), "sluice_mitigations_evicted_total",
		"Mitigations that made room for others before their end.")
}

// collectAtLimit gives how many sources have been at their limit for long. Limits of a rule and of
// its variants count under the rule, and who is at several of them counts once.
func (s *Server) collectAtLimit(to metric.Sink, snap *snapshot, now time.Time) {
	type at struct {
		rule   string
		source counter.Source
	}
	of, once, n := make(map[uint32]string), make(map[at]bool), make(map[string]int)
	for r, l := range snap.rules.EachLimit() {
		of[l.Counter.ID] = r.Config.Name
	}
	for id, source := range s.heaviest.atLimit.Each(now) {
		if rule, known := of[id]; known && !once[at{rule, source}] {
			once[at{rule, source}] = true
			n[rule]++
		}
	}
	for _, r := range snap.rules.Rules {
		to.Gauge(float64(n[r.Config.Name]), "sluice_keys_at_limit",
			"Keys, or addresses, of a rule that have been at their limit for five minutes; 1,024 of all rules at most.",
			"rule", r.Config.Name)
	}
}

// collectCounters gives how full the table of counters is, and what was lost of it.
func (s *Server) collectCounters(to metric.Sink) {
	t := s.limiter.Counters.Stats()
	to.Gauge(float64(t.Counters), "sluice_counters", "Counters in the table.")
	to.Gauge(float64(t.Capacity), "sluice_counters_limit", "Counters that the table has room for.")
	to.Count(t.Evicted, "sluice_counters_evicted_total", "Counters that made room for others.")
	to.Gauge(float64(t.Unreported), "sluice_unreported_hits",
		"Hits that the tier has not confirmed.")
	for reason, n := range map[string]uint64{"unknown": t.LostUnknown, "full": t.LostFull,
		"expired": t.LostExpired, "backlog": t.LostBacklog,
		"saturated": t.LostSaturated, "evicted": t.LostEvicted} {
		to.Count(n, "sluice_hits_lost_total", "Hits that will never reach the tier.", "reason",
			reason)
	}
}
