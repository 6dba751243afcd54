package tier

import (
	"github.com/prometheus/client_golang/prometheus"

	"sluice/counter/buckets"
	"sluice/pop"
	"sluice/pop/memcached"
	"sluice/pop/wire"
)

// metrics shows a tier to Prometheus. Labels are nodes of the configuration and words of ours, so
// their number is fixed.
type metrics struct {
	tier    *memcached.Tier
	machine *pop.Machine

	operations, seconds, up, dials, dropped, edges, propagation, forged, logLost, full,
	operatorEntries, alone, apart *prometheus.Desc
}

func newMetrics(tier *memcached.Tier, machine *pop.Machine) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_"+name, help, labels, nil)
	}
	return &metrics{
		tier: tier, machine: machine,
		operations: desc("tier_operations_total",
			"Commands to a memcached node, by operation and outcome.", "node", "op", "result"),
		seconds: desc("tier_operation_seconds", "Round trips to a memcached node.", "node"),
		up:      desc("tier_node_up", "Whether a memcached node is held to be up.", "node"),
		dials: desc("tier_dials_total", "Attempts to connect to a memcached node.",
			"node"),
		dropped: desc("tier_connections_dropped_total",
			"Connections to a memcached node that were given up, by what ended them.", "node",
			"reason"),
		edges: desc("tier_edges", "Edges that share the tier, as far as this one knows."),
		propagation: desc("propagation_seconds",
			"From a verdict on another edge until it was in force on this one."),
		forged: desc("tier_forged_total",
			"Values in the tier that were not of the form, or not authentic."),
		logLost: desc("tier_log_lost_total",
			"Records that could not be written to the mitigation log; other edges learn of the bits at first sight."),
		full: desc("pop_full",
			"Whether the PoP has as many edges as can share a tier, so that this one counts alone."),
		alone: desc("tier_alone",
			"Whether this edge has a tier and counts alone all the same: no node answers, or the PoP is full."),
		apart: desc("tier_edges_apart",
			"Living edges of this PoP's name that count under another pop.secret_file, as marks on the nodes say: strangers, and those that have a line of it in common (rotation).", "why"),
		operatorEntries: desc("operators_words",
			"What the PoP's list of operators' words holds: blocks, lifts, changes of rules; it has room for 10,000."),
	}
}

func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	histogram := func(d *prometheus.Desc, h *buckets.Histogram, labels ...string) {
		buckets, n, sum := h.Snapshot()
		ch <- prometheus.MustNewConstHistogram(d, n, sum, buckets, labels...)
	}
	health := m.machine.Nodes.Health()
	for i, n := range m.tier.Stats().Nodes {
		for op := range n.Operations {
			for status, times := range n.Operations[op] {
				if times > 0 {
					count(m.operations, times, n.Node, wire.Op(op).String(), wire.Status(status).
						String())
				}
			}
		}
		histogram(m.seconds, n.Trips, n.Node)
		gauge(m.up, number(health[i]), n.Node)
		count(m.dials, n.Dials, n.Node)
		count(m.dropped, n.Closed, n.Node, "closed")
		count(m.dropped, n.Silent, n.Node, "silent")
		count(m.dropped, n.Wrong, n.Node, "wrong")
	}
	s := m.machine.Stats()
	gauge(m.edges, float64(s.Edges))
	histogram(m.propagation, s.Propagation)
	count(m.forged, s.Forged)
	count(m.logLost, s.LogLost)
	gauge(m.full, number(s.Full))
	gauge(m.operatorEntries, float64(s.OperatorEntries))
	gauge(m.alone, number(!m.machine.Nodes.Up()))
	strangers, rotating := 0, 0
	for _, e := range m.machine.ForeignSecrets.Secrets().Apart {
		if e.Rotating {
			rotating++
		} else {
			strangers++
		}
	}
	gauge(m.apart, float64(strangers), "stranger")
	gauge(m.apart, float64(rotating), "rotation")
}

// number is a fact as Prometheus has it: 1 if it is one.
func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
