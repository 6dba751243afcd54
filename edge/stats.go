package edge

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/histogram"
	"sluice/edge/limiter"
	"sluice/edge/limiter/shedding"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// From says who made an answer.
type from uint8

const (
	fromOrigin from = iota
	fromLimit
	fromEdge
	froms
)

func (f from) String() string { return [...]string{"origin", "limit", "edge"}[f] }

// stats counts what the edge does. Every request is counted in received when it is seen, and in exactly one of answers and
// aborted when it is over.
type stats struct {
	received atomic.Uint64
	aborted  atomic.Uint64 // the client was gone, or its answer broke off
	answers  [froms][message.Codes]atomic.Uint64

	invalidSources atomic.Uint64 // headers of trusted peers that should name a client and do not

	panics  atomic.Uint64
	tunnels atomic.Int64
	reloads [2]atomic.Uint64 // failed, done

	denied   atomic.Uint64 // by the list
	calls    [callCodes]atomic.Uint64
	applied  atomic.Int64 // when the configuration in force came into force, Unix nanoseconds
	seconds  *histogram.Histogram
	deciding prometheus.Histogram

	mu      sync.Mutex
	tallies map[string]*rules.Tally

	delayed atomic.Uint64 // requests that waited for their turn
	waiting atomic.Int64  // those that do
}

// sampling is how many decisions share one measurement of their time: two readings of a clock cost as much as a decision.
const sampling = 64

func newStats() *stats {
	return &stats{
		tallies: make(map[string]*rules.Tally),
		seconds: histogram.Latency(),
		deciding: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sluice_decision_seconds",
			Help:    "Time that a decision took, without waiting for the tier; one in 64 is measured.",
			Buckets: prometheus.ExponentialBuckets(100e-9, 2, 16),
		}),
	}
}

func (s *stats) tally(name string) *rules.Tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tallies[name]
	if t == nil {
		t = rules.NewTally()
		s.tallies[name] = t
	}
	return t
}

// keep drops the tallies of rules that are gone, so that there are never more than rules.
func (s *stats) keep(list []*rules.Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := make(map[string]*rules.Tally, len(list))
	for _, r := range list {
		kept[r.Config.Name] = r.Tally
	}
	s.tallies = kept
}

func (s *stats) answered(code int, f from) {
	if code < 0 || code >= message.Codes {
		code = 0
	}
	s.answers[f][code].Add(1)
}

// pairs takes the names and the values of labels apart.
func pairs(labels []string) (names, values []string) {
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return names, values
}

// collector hands the counts to Prometheus. They live in plain atomics, so the request path pays no lookup of labels.
type collector struct{ server *Server }

// Collector returns the edge's metrics.
func (s *Server) Collector() prometheus.Collector { return collector{s} }

// Describe sends nothing: which metrics there are depends on the rules (an unchecked collector).
func (collector) Describe(chan<- *prometheus.Desc) {}

const requestsHelp = "Requests under a rule, by what it said; denied: by the list deny, which is no rule; open: not asked, because no node answered. Requests of who is blocked under a rule about all requests count in such rules alone."

func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.server
	emit := func(kind prometheus.ValueType, v float64, name, help string, labels ...string) {
		names, values := pairs(labels)
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
	}
	count := func(v uint64, name, help string, labels ...string) {
		emit(prometheus.CounterValue, float64(v), name, help, labels...)
	}
	gauge := func(v float64, name, help string, labels ...string) {
		emit(prometheus.GaugeValue, v, name, help, labels...)
	}

	// Answers before received: at rest the two agree, and under load a request in flight is seen as such.
	for f := range froms {
		for code := range message.Codes {
			if n := s.stats.answers[f][code].Load(); n > 0 {
				count(n, "sluice_answers_total", "Answers given, by status and by who made them.",
					"code", strconv.Itoa(code), "from", f.String())
			}
		}
	}
	spread := func(h *histogram.Histogram, name, help string, labels ...string) {
		names, values := pairs(labels)
		buckets, n, sum := h.Snapshot()
		out <- prometheus.MustNewConstHistogram(prometheus.NewDesc(name, help, names, nil), n, sum, buckets, values...)
	}
	lost := uint64(0)
	if s.access != nil {
		lost = s.access.Lost()
	}
	count(lost, "sluice_log_lines_lost_total", "Lines of the access log that could not be written.")
	spread(s.stats.seconds, "sluice_request_seconds",
		"Time from a request's head to the last of its answer, of requests that were answered; a refusal, which waits for nothing, takes none.")
	count(s.stats.aborted.Load(), "sluice_aborted_total", "Requests whose client did not get its answer.")
	count(s.unbelieved.Total.Load(), "sluice_untrusted_forwarded_total", "Requests of peers that are not trusted that name another client.")
	count(s.stats.invalidSources.Load(), "sluice_source_headers_invalid_total", "Headers of trusted peers that should name a client and do not.")
	count(s.open.SlowReaders.Load(), "sluice_slow_readers_total", "Connections cut because the client took its answer too slowly.")
	verified := uint64(0)
	if v := s.snap.Load().tokens; v != nil {
		verified = v.Verified()
	}
	count(verified, "sluice_token_verifications_total", "Signatures of tokens that were verified: once for each token, as long as it is remembered.")
	count(s.stats.received.Load(), "sluice_received_total", "Requests received.")
	count(s.stats.panics.Load(), "sluice_panics_total", "Requests that failed by a fault in the edge.")
	count(s.open.Stats.TurnedAway.Load(), "sluice_connections_refused_total", "Connections above a cap.", "cap", "source")
	count(s.open.Stats.OverCap.Load(), "sluice_connections_refused_total", "Connections above a cap.", "cap", "total")
	count(s.open.Stats.OverMemory.Load(), "sluice_connections_refused_total", "Connections above a cap.", "cap", "memory")
	count(s.open.Stats.Shed.Load(), "sluice_connections_refused_total", "Connections above a cap.", "cap", "mitigated")
	count(s.open.Stats.Evicted.Load(), "sluice_connections_evicted_total", "Open connections that made room for new ones.")
	count(s.open.Stats.BadProxy.Load(), "sluice_proxy_headers_refused_total", "Connections of trusted proxies that did not begin with a valid PROXY header.")
	count(s.open.Stats.AcceptFails.Load(), "sluice_accept_failures_total", "Failures to accept a connection, such as lack of descriptors.")
	gauge(float64(s.stats.tunnels.Load()), "sluice_tunnels", "Connections that switched to another protocol.")
	count(s.stats.delayed.Load(), "sluice_delayed_total", "Requests that a rule let wait for their turn.")
	gauge(float64(s.stats.waiting.Load()), "sluice_delaying", "Requests that wait for their turn.")
	gauge(float64(s.open.Open()), "sluice_connections", "Open connections of clients.")
	count(s.stats.reloads[1].Load(), "sluice_reloads_total", "Configurations read again, by result.", "result", "done")
	count(s.stats.reloads[0].Load(), "sluice_reloads_total", "Configurations read again, by result.", "result", "failed")

	for _, k := range events.Kinds() {
		count(s.events.Count(k), "sluice_events_total", "Events, by kind; those that were not kept because they came too fast included.", "kind", string(k))
	}

	for code := range callCodes {
		count(s.stats.calls[code].Load(), "sluice_rate_limit_calls_total", "Calls of the rate limit service, by its answer; invalid: it was no request, and decided nothing.", "code", code.String())
	}

	snap := s.snap.Load()
	gauge(float64(s.stats.applied.Load())/1e9, "sluice_config_last_reload_timestamp_seconds", "When the configuration in force came into force.")
	gauge(float64(snap.generation), "sluice_rules_generation", "How many sets of rules have been in force.")
	gauge(float64(snap.hash), "sluice_config_hash", "Stands for the rules in force: the same number on edges with the same rules.")
	for _, o := range snap.origins.All {
		up := 0.0
		if o.Healthy(time.Now()) {
			up = 1
		}
		gauge(up, "sluice_origin_up", "Whether an origin is taken to be healthy.", "origin", o.Name)
		gauge(float64(o.Active.Load()), "sluice_origin_active", "Requests under way at an origin.", "origin", o.Name)
		spread(o.Seconds, "sluice_origin_seconds", "Time from passing a request on to the head of the origin's answer, connecting included; to the end of an answer that comes at once.",
			"origin", o.Name)
		count(o.Attempts.Load(), "sluice_origin_attempts_total", "Requests sent to an origin.", "origin", o.Name)
		for code := range message.Codes {
			if n := o.Answers[code].Load(); n > 0 {
				count(n, "sluice_origin_requests_total", "Answers got from an origin.", "origin", o.Name, "code", strconv.Itoa(code))
			}
		}
	}

	for _, g := range snap.origins.Groups {
		if g.Shedding == nil {
			continue
		}
		is, hosts := g.Shedding.Status(), g.Hosts[0]
		gauge(float64(is.Limit), "sluice_shedding_limit", "Requests that an origin that sheds load may have under way, by the first of its hosts.", "hosts", hosts)
		gauge(float64(is.InFlight), "sluice_shedding_in_flight", "Requests under way there, until the head of their answer.", "hosts", hosts)
		for level := range shedding.Levels {
			count(is.Shed[level], "sluice_shed_total", "Requests that an origin's load has cost, answered with 503 (overloaded).", "hosts", hosts, "priority", level.String())
		}
		spread(g.Waited, "sluice_shedding_queue_seconds", "Time that requests waited for a place at an origin that sheds load, those that got none included.", "hosts", hosts)
	}

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
			for _, v := range []limiter.Verdict{limiter.Passed, limiter.Limited, limiter.Mitigated} {
				count(r.Tally.Candidate[v].Load(), "sluice_candidate_requests_total", "Requests under a rule, by what its candidate would have said.",
					"rule", r.Config.Name, "verdict", v.String())
			}
			count(r.Tally.CandidateAlone.Load(), "sluice_candidate_alone_total", "Requests that a rule's candidate would have refused, and that nothing in force refused.",
				"rule", r.Config.Name)
		}
	}
	names[mitigation.AllRules], modes[mitigation.AllRules], active[mitigation.AllRules] = control.AllRules, string(rules.Enforce), 0
	lists := map[uint32]int{mitigation.Allowed: 0, mitigation.Denied: 0}
	count(s.stats.denied.Load(), "sluice_requests_total", requestsHelp, "rule", "", "verdict", "denied")
	if s.limiter.Exact != nil {
		kept := s.limiter.Exact.Stats()
		gauge(float64(kept.Sources), "sluice_exact_sources", "Sources under rules with check: sync and algorithm: exact or token_bucket of which this edge knows what the tier keeps.")
		count(kept.Doubted, "sluice_exact_doubts_total", "Requests that such a rule refused in doubt, because a node had lost what it kept, or has just begun.")
		count(kept.Conflict, "sluice_exact_conflicts_total", "Exchanges about such rules in which another edge was faster, and which were made again.")
	}
	inFlight, _ := s.limiter.InFlight.Held()
	for _, r := range snap.rules.All {
		if r.InFlight != nil {
			gauge(float64(inFlight[r.InFlight.Name]), "sluice_in_flight", "Requests under way here that hold a place under a rule's concurrency.", "rule", r.Config.Name)
		}
		for v := range limiter.Verdicts {
			count(r.Tally.Verdicts[v].Load(), "sluice_requests_total", requestsHelp,
				"rule", r.Config.Name, "verdict", v.String())
		}
		count(r.Tally.Open.Load(), "sluice_requests_total", requestsHelp, "rule", r.Config.Name, "verdict", "open")
		if r.Config.Mode != rules.Off {
			spread(r.Tally.Used, "sluice_rule_utilization", "Share of its limit that a source has used, the request included, where a rule's counter was asked; one decision in 64.",
				"rule", r.Config.Name)
		}
		if p := r.OnStoreFailure; p == limiter.Open || p == limiter.Closed {
			count(r.Tally.Open.Load(), "sluice_store_failure_total", "Decisions made without the tier because a node was down.",
				"rule", r.Config.Name, "posture", string(limiter.Open))
			count(r.Tally.Closed.Load(), "sluice_store_failure_total", "Decisions made without the tier because a node was down.",
				"rule", r.Config.Name, "posture", string(limiter.Closed))
		}
	}
	for key := range s.limiter.Bits.All(time.Now()) {
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
		gauge(float64(n), "sluice_mitigations_active", "Mitigations in force. Those of shadows and candidates refuse nobody.", "rule", names[id], "mode", modes[id])
	}
	gauge(float64(lists[mitigation.Allowed]), "sluice_listed", "Prefixes that operators allow and deny for a while.", "list", "allow")
	gauge(float64(lists[mitigation.Denied]), "sluice_listed", "Prefixes that operators allow and deny for a while.", "list", "deny")
	started := s.limiter.Bits.Started()
	for id, first := range firsts {
		for by := mitigation.ByEdge; by <= mitigation.ByAdmin; by++ {
			started[mitigation.Started{Rule: first, By: by}] += started[mitigation.Started{Rule: id, By: by}]
		}
	}
	for id, name := range names {
		for by := mitigation.ByEdge; by <= mitigation.ByPeer; by++ {
			count(started[mitigation.Started{Rule: id, By: by}], "sluice_mitigations_started_total", "Mitigations begun, by whom.",
				"rule", name, "by", by.String(), "mode", modes[id])
		}
	}

	gauge(float64(s.limiter.Bits.Capacity()), "sluice_mitigations_limit", "Mitigations that the table has room for.")
	count(s.limiter.Bits.Evicted(), "sluice_mitigations_evicted_total", "Mitigations that made room for others before their end.")
	t := s.limiter.Counters.Stats()
	gauge(float64(t.Counters), "sluice_counters", "Counters in the table.")
	gauge(float64(t.Capacity), "sluice_counters_limit", "Counters that the table has room for.")
	count(t.Evicted, "sluice_counters_evicted_total", "Counters that made room for others.")
	gauge(float64(t.Unreported), "sluice_unreported_hits", "Hits that the tier has not confirmed.")
	for reason, n := range map[string]uint64{"unknown": t.LostUnknown, "full": t.LostFull, "expired": t.LostExpired, "backlog": t.LostBacklog,
		"saturated": t.LostSaturated, "evicted": t.LostEvicted} {
		count(n, "sluice_hits_lost_total", "Hits that the tier will never be told of.", "reason", reason)
	}
	s.stats.deciding.Collect(out)
}
