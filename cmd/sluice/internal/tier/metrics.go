package tier

import (
	"sluice/edge/metric"
	"sluice/pop"
	"sluice/pop/memcached"
	"sluice/pop/wire"
)

// metricsOf shows a tier to Prometheus. Labels are nodes of the configuration and words of ours, so
// their number is fixed.
func metricsOf(tier *memcached.Tier, machine *pop.Machine) metric.Collector {
	return func(to metric.Sink) {
		health := machine.Nodes.Health()
		for i, n := range tier.Stats().Nodes {
			collectNode(to, &n, health[i])
		}
		s := machine.Stats()
		to.Gauge(float64(s.Edges), "sluice_tier_edges",
			"Edges that share the tier, as far as this one knows.")
		to.Spread(s.Propagation, "sluice_propagation_seconds",
			"From a verdict on another edge until it was in force on this one.")
		to.Count(s.Forged, "sluice_tier_forged_total",
			"Values in the tier that were not of the form, or not authentic.")
		to.Count(s.LogLost, "sluice_tier_log_lost_total",
			"Records that could not be written to the mitigation log; other edges learn of the bits at first sight.")
		to.Whether(s.Full, "sluice_pop_full",
			"Whether the PoP has as many edges as can share a tier, so that this one counts alone.")
		to.Gauge(float64(s.OperatorEntries), "sluice_operators_words",
			"What the PoP's list of operators' words holds: blocks, lifts, changes of rules; it has room for 10,000.")
		to.Whether(!machine.Nodes.Up(), "sluice_tier_alone",
			"Whether this edge has a tier and counts alone all the same: no node answers, or the PoP is full.")
		apart := map[bool]int{} // by whether they rotate
		for _, e := range machine.ForeignSecrets.Secrets().Apart {
			apart[e.Rotating]++
		}
		const name, help = "sluice_tier_edges_apart",
			"Living edges of this PoP's name that count under another pop.secret_file, as marks on the nodes say: strangers, and those that have a line of it in common (rotation)."
		to.Gauge(float64(apart[false]), name, help, "why", "stranger")
		to.Gauge(float64(apart[true]), name, help, "why", "rotation")
	}
}

func collectNode(to metric.Sink, n *memcached.NodeStats, up bool) {
	for op := range n.Operations {
		for status, times := range n.Operations[op] {
			if times > 0 {
				to.Count(times, "sluice_tier_operations_total",
					"Commands to a memcached node, by operation and outcome.", "node", n.Node,
					"op", wire.Op(op).String(), "result", wire.Status(status).String())
			}
		}
	}
	to.Spread(n.Trips, "sluice_tier_operation_seconds", "Round trips to a memcached node.",
		"node", n.Node)
	to.Whether(up, "sluice_tier_node_up", "Whether a memcached node is held to be up.",
		"node", n.Node)
	to.Count(n.Dials, "sluice_tier_dials_total", "Attempts to connect to a memcached node.",
		"node", n.Node)
	for reason, closed := range map[string]uint64{"closed": n.Closed, "silent": n.Silent,
		"wrong": n.Wrong} {
		to.Count(closed, "sluice_tier_connections_dropped_total",
			"Connections to a memcached node that were given up, by what ended them.",
			"node", n.Node, "reason", reason)
	}
}
