// Package metric is how the rooms of the edge give their metrics: each to a Sink, when Prometheus
// asks (Collect). What is counted lives in plain atomics beside what counts it, so that the request
// path looks up no labels.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"

	"sluice/counter/buckets"
)

// A Collector gives Prometheus what a function gives to a Sink. Which metrics those are may depend
// on the configuration: it describes none.
type Collector func(Sink)

func (Collector) Describe(chan<- *prometheus.Desc) {}

func (c Collector) Collect(out chan<- prometheus.Metric) { c(Sink{To: out}) }

// A Sink takes values of metrics, for Prometheus. Labels are names and values by turns.
type Sink struct{ To chan<- prometheus.Metric }

// Count takes what only rises, Gauge what may fall as well, Whether what is so (1) or not (0), and
// Spread a histogram.
func (s Sink) Count(v uint64, name, help string, labels ...string) {
	s.send(prometheus.CounterValue, float64(v), name, help, labels)
}

func (s Sink) Gauge(v float64, name, help string, labels ...string) {
	s.send(prometheus.GaugeValue, v, name, help, labels)
}

func (s Sink) Whether(is bool, name, help string, labels ...string) {
	v := 0.0
	if is {
		v = 1
	}
	s.Gauge(v, name, help, labels...)
}

func (s Sink) Spread(h *buckets.Histogram, name, help string, labels ...string) {
	desc, values := describe(name, help, labels)
	buckets, n, sum := h.Snapshot()
	s.To <- prometheus.MustNewConstHistogram(desc, n, sum, buckets, values...)
}

func (s Sink) send(kind prometheus.ValueType, v float64, name, help string, labels []string) {
	desc, values := describe(name, help, labels)
	s.To <- prometheus.MustNewConstMetric(desc, kind, v, values...)
}

func describe(name, help string, labels []string) (desc *prometheus.Desc, values []string) {
	var names []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return prometheus.NewDesc(name, help, names, nil), values
}
