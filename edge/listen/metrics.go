package listen

import "sluice/edge/metric"

// Collect gives how many connections there are, and what became of those that are not.
func (r *Registry) Collect(to metric.Sink) {
	to.Count(r.SlowReaders.Load(), "sluice_slow_readers_total", "Connections cut because the client took its answer too slowly.")
	to.Count(r.Stats.TurnedAway.Load(), "sluice_connections_refused_total", "Connections above a cap.", "cap", "source")
	to.Count(r.Stats.OverCap.Load(), "sluice_connections_refused_total", "Connections above a cap.", "cap", "total")
	to.Count(r.Stats.OverMemory.Load(), "sluice_connections_refused_total", "Connections above a cap.", "cap", "memory")
	to.Count(r.Stats.Shed.Load(), "sluice_connections_refused_total", "Connections above a cap.", "cap", "mitigated")
	to.Count(r.Stats.Evicted.Load(), "sluice_connections_evicted_total", "Open connections that made room for new ones.")
	to.Count(r.Stats.BadProxy.Load(), "sluice_proxy_headers_refused_total", "Connections of trusted proxies that did not begin with a valid PROXY header.")
	to.Count(r.Stats.AcceptFails.Load(), "sluice_accept_failures_total", "Failures to accept a connection, such as lack of descriptors.")
	to.Gauge(float64(r.Open()), "sluice_connections", "Open connections of clients.")
}
