package edge

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/counter/buckets"
	"sluice/edge/message"
	"sluice/edge/metric"
	"sluice/edge/rules"
)

// From says which side made an answer.
type from uint8

const (
	fromOrigin from = iota
	fromLimit
	fromEdge
	froms
)

func (f from) String() string { return [...]string{"origin", "limit", "edge"}[f] }

// stats counts what the edge does. Every request is counted in received when it is seen, and in
// exactly one of answers and aborted when it is over.
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
	asks     [callCodes]atomic.Uint64
	applied  atomic.Int64 // when the configuration in force came into force, Unix nanoseconds
	seconds  *buckets.Histogram
	deciding prometheus.Histogram

	mu      sync.Mutex
	tallies map[string]*rules.Tally

	answerCosts rules.AnswerCosts

	delayed atomic.Uint64 // requests that waited for their turn
	waiting atomic.Int64  // those that do
}

// sampling is how many decisions share one measurement of their time: two readings of a clock cost
// as much as a decision.
const sampling = 64

func newStats() *stats {
	return &stats{
		tallies: make(map[string]*rules.Tally),
		seconds: buckets.Latency(),
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

// collect gives what requests came to. Answers come before received: at rest the two agree, and
// under load a request in flight is seen as such.
func (s *stats) collect(to metric.Sink) {
	for f := range froms {
		for code := range message.Codes {
			if n := s.answers[f][code].Load(); n > 0 {
				to.Count(n, "sluice_answers_total",
					"Answers given, by status and by the side that made them.",
					"code", strconv.Itoa(code), "from", f.String())
			}
		}
	}
	to.Spread(s.seconds, "sluice_request_seconds",
		"Time from a request's head to the last of its answer, of requests that were answered; a refusal, which waits for nothing, takes none.")
	to.Count(s.aborted.Load(), "sluice_aborted_total",
		"Requests whose client did not get its answer.")
	to.Count(s.invalidSources.Load(), "sluice_source_headers_invalid_total",
		"Headers of trusted peers that should name a client and do not.")
	to.Count(s.received.Load(), "sluice_received_total", "Requests received.")
	to.Count(s.panics.Load(), "sluice_panics_total", "Requests that failed by a fault in the edge.")
	to.Gauge(float64(s.tunnels.Load()), "sluice_tunnels",
		"Connections that switched to another protocol.")
	to.Count(s.delayed.Load(), "sluice_delayed_total",
		"Requests that a rule let wait for their turn.")
	to.Gauge(float64(s.waiting.Load()), "sluice_delaying", "Requests that wait for their turn.")
	to.Count(s.reloads[1].Load(), "sluice_reloads_total", "Configurations read again, by result.",
		"result", "done")
	to.Count(s.reloads[0].Load(), "sluice_reloads_total", "Configurations read again, by result.",
		"result", "failed")
	to.Gauge(float64(s.applied.Load())/1e9, "sluice_config_last_reload_timestamp_seconds",
		"When the configuration in force came into force.")
	for code := range callCodes {
		to.Count(s.calls[code].Load(), "sluice_rate_limit_calls_total",
			"Calls of the rate limit service, by its answer; invalid: it was no request, and decided nothing.", "code", code.String())
		to.Count(s.asks[code].Load(), "sluice_limit_asks_total",
			"What programs have asked over limit_api, by the answer; invalid: it was nothing to decide about, and decided nothing.", "code", code.String())
	}
	s.answerCosts.Collect(to)
	to.Count(s.denied.Load(), rules.RequestsMetric, rules.RequestsHelp, "rule", "", "verdict",
		"denied")
	s.deciding.Collect(to.To)
}
