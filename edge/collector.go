package edge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/metric"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// collector hands the counts to Prometheus: what each room has of its own it collects itself.
type collector struct{ server *Server }

// Collector returns the edge's metrics.
func (s *Server) Collector() prometheus.Collector { return collector{s} }

// Describe sends nothing: which metrics there are depends on the rules (an unchecked collector).
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(out chan<- prometheus.Metric) {
	s, to, now := c.server, metric.Sink{To: out}, time.Now()
	snap := s.snap.Load()
	s.stats.collect(to)
	s.open.Collect(to)
	s.http2.Collect(to)
	snap.collect(to)
	snap.rules.Collect(to)
	snap.origins.Collect(to, now)
	s.collectLeaves(to)
	s.collectInFlight(to, snap)
	s.collectMitigations(to, snap, now)
	s.collectCounters(to)
}

// collect gives which configuration is in force.
func (snap *snapshot) collect(to metric.Sink) {
	to.Gauge(float64(snap.generation), "sluice_rules_generation", "How many sets of rules have been in force.")
	to.Gauge(float64(snap.hash), "sluice_config_hash", "Stands for the rules in force: the same number on edges with the same rules.")
	verified := uint64(0)
	if snap.tokens != nil {
		verified = snap.tokens.Verified()
	}
	to.Count(verified, "sluice_token_verifications_total", "Signatures of tokens that were verified: once for each token, as long as it is remembered.")
}

// collectLeaves gives what single numbers some rooms have.
func (s *Server) collectLeaves(to metric.Sink) {
	lost := uint64(0)
	if s.access != nil {
		lost = s.access.Lost()
	}
	to.Count(lost, "sluice_log_lines_lost_total", "Lines of the access log that could not be written.")
	to.Count(s.unbelieved.Total.Load(), "sluice_untrusted_forwarded_total", "Requests of peers that are not trusted that name another client.")
	for _, k := range events.Kinds() {
		to.Count(s.events.Count(k), "sluice_events_total", "Events, by kind; those that were not kept because they came too fast included.", "kind", string(k))
	}
}

// collectInFlight gives which requests hold a place, and what is known of those that the tier keeps.
func (s *Server) collectInFlight(to metric.Sink, snap *snapshot) {
	inFlight, _ := s.limiter.InFlight.Held()
	for _, r := range snap.rules.All {
		if r.InFlight != nil {
			to.Gauge(float64(inFlight[r.InFlight.Name]), "sluice_in_flight", "Requests under way here that hold a place under a rule's concurrency.", "rule", r.Config.Name)
		}
	}
	if s.limiter.Exact != nil {
		kept := s.limiter.Exact.Stats()
		to.Gauge(float64(kept.Sources), "sluice_exact_sources", "Sources under rules with check: sync and algorithm: exact or token_bucket of which this edge knows what the tier keeps.")
		to.Count(kept.Doubted, "sluice_exact_doubts_total", "Requests that such a rule refused in doubt, because a node had lost what it kept, or has just begun.")
		to.Count(kept.Conflict, "sluice_exact_conflicts_total", "Exchanges about such rules in which another edge was faster, and which were made again.")
	}
}

// collectMitigations gives which blocks are in force, under which rules, and who began them.
func (s *Server) collectMitigations(to metric.Sink, snap *snapshot, now time.Time) {
	names := make(map[uint32]string, len(snap.rules.Rules))
	modes := make(map[uint32]string, len(snap.rules.Rules))
	active := make(map[uint32]int, len(snap.rules.Rules))
	firsts := make(map[uint32]uint32) // by the ID of a rule's variants, further limits and their candidates, that of the first
	for r, l := range snap.rules.EachLimit() {
		if r.IsVariant() { // it counts under its rule
			firsts[l.Counter.ID] = r.Of
			continue
		}
		if l.Rule != &r.Rule {
			firsts[l.Counter.ID] = r.Counter.ID
			if tried := l.Candidate; tried != nil {
				firsts[tried.Bits.Counter.ID] = r.Candidate.Bits.Counter.ID
			}
			continue
		}
		names[r.Counter.ID], modes[r.Counter.ID], active[r.Counter.ID] = r.Config.Name, string(r.Config.Mode), 0
		if tried := r.Candidate; tried != nil {
			names[tried.Bits.Counter.ID], modes[tried.Bits.Counter.ID], active[tried.Bits.Counter.ID] = r.Config.Name, string(rules.Tried), 0
		}
	}
	names[mitigation.AllRules], modes[mitigation.AllRules], active[mitigation.AllRules] = control.AllRules, string(rules.Enforce), 0
	lists := map[uint32]int{mitigation.Allowed: 0, mitigation.Denied: 0}
	for key := range s.limiter.Bits.All(now) {
		id := key.Rule
		if first, further := firsts[id]; further {
			id = first
		}
		if _, known := names[id]; known {
			active[id]++
		} else if _, list := lists[key.Rule]; list {
			lists[key.Rule]++
		}
	}
	for id, n := range active {
		to.Gauge(float64(n), "sluice_mitigations_active", "Mitigations in force. Those of shadows and candidates refuse nobody.", "rule", names[id], "mode", modes[id])
	}
	to.Gauge(float64(lists[mitigation.Allowed]), "sluice_listed", "Prefixes that operators allow and deny for a while.", "list", "allow")
	to.Gauge(float64(lists[mitigation.Denied]), "sluice_listed", "Prefixes that operators allow and deny for a while.", "list", "deny")
	started := s.limiter.Bits.Started()
	for id, first := range firsts {
		for by := mitigation.ByEdge; by <= mitigation.ByAdmin; by++ {
			started[mitigation.Started{Rule: first, By: by}] += started[mitigation.Started{Rule: id, By: by}]
		}
	}
	for id, name := range names {
		for by := mitigation.ByEdge; by <= mitigation.ByPeer; by++ {
			to.Count(started[mitigation.Started{Rule: id, By: by}], "sluice_mitigations_started_total", "Mitigations begun, by whom.",
				"rule", name, "by", by.String(), "mode", modes[id])
		}
	}

	to.Gauge(float64(s.limiter.Bits.Capacity()), "sluice_mitigations_limit", "Mitigations that the table has room for.")
	to.Count(s.limiter.Bits.Evicted(), "sluice_mitigations_evicted_total", "Mitigations that made room for others before their end.")
}

// collectCounters gives how full the table of counters is, and what was lost of it.
func (s *Server) collectCounters(to metric.Sink) {
	t := s.limiter.Counters.Stats()
	to.Gauge(float64(t.Counters), "sluice_counters", "Counters in the table.")
	to.Gauge(float64(t.Capacity), "sluice_counters_limit", "Counters that the table has room for.")
	to.Count(t.Evicted, "sluice_counters_evicted_total", "Counters that made room for others.")
	to.Gauge(float64(t.Unreported), "sluice_unreported_hits", "Hits that the tier has not confirmed.")
	for reason, n := range map[string]uint64{"unknown": t.LostUnknown, "full": t.LostFull, "expired": t.LostExpired, "backlog": t.LostBacklog,
		"saturated": t.LostSaturated, "evicted": t.LostEvicted} {
		to.Count(n, "sluice_hits_lost_total", "Hits that the tier will never be told of.", "reason", reason)
	}
}
