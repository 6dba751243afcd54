package listen

import "sluice/edge/metric"

// Collect gives how many connections there are, and what became of those that are not.
func (l *Registry) Collect(to metric.Sink) {
	to.Count(l.SlowReaders.Load(), "sluice_slow_readers_total",
		"Connections cut because the client took its answer too slowly.")
	to.Count(l.Stats.TurnedAway.Load(), "sluice_connections_refused_total",
		"Connections above a cap.", "cap", "source")
	to.Count(l.Stats.OverCap.Load(), "sluice_connections_refused_total", "Connections above a cap.",
		"cap", "total")
	to.Count(l.Stats.OverMemory.Load(), "sluice_connections_refused_total",
		"Connections above a cap.", "cap", "memory")
	to.Count(l.Stats.Shed.Load(), "sluice_connections_refused_total", "Connections above a cap.",
		"cap", "mitigated")
	to.Count(l.Stats.Evicted.Load(), "sluice_connections_evicted_total",
		"Open connections that made room for new ones.")
	to.Count(l.Stats.BadProxy.Load(), "sluice_proxy_headers_refused_total",
		"Connections of trusted proxies that did not begin with a valid PROXY header.")
	to.Count(l.Stats.AcceptFails.Load(), "sluice_accept_failures_total",
		"Failures to accept a connection, such as lack of descriptors.")
	l.Mu.Lock()
	entries := l.entries
	l.Mu.Unlock()
	for _, e := range entries {
		to.Count(e.Accepted.Load(), "sluice_connections_accepted_total",
			"Connections that a listener has accepted, those turned away among them.", "listener",
			e.Field, "address", e.Address)
	}
	to.Gauge(float64(l.Open()), "sluice_connections", "Open connections of clients.")
}
