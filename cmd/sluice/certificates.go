package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/edge/listen"
)

// certificateMetrics tell when what listeners show expires.
type certificateMetrics map[string]*listen.Certificates // by the field that names the listener; nil: it speaks no TLS

var (
	certificateExpiry = prometheus.NewDesc("sluice_certificate_expiry_timestamp_seconds", "When the first certificate that a listener shows expires, or one of its chain.", []string{"listener"}, nil)
	certificateFailed = prometheus.NewDesc("sluice_certificate_read_failures_total", "Looks at a listener's certificates that found files which are wrong or away; what was read before stays in use.", []string{"listener"}, nil)
)

// Describe sends nothing: which listeners there are depends on the configuration.
func (certificateMetrics) Describe(chan<- *prometheus.Desc) {}

func (m certificateMetrics) Collect(out chan<- prometheus.Metric) {
	for name, c := range m {
		if c == nil {
			continue
		}
		out <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue, float64(firstToExpire(c).Unix()), name)
		out <- prometheus.MustNewConstMetric(certificateFailed, prometheus.CounterValue, float64(c.Failures()), name)
	}
}

func firstToExpire(c *listen.Certificates) time.Time {
	all := c.Expiries()
	first := all[0].At
	for _, e := range all[1:] {
		if e.At.Before(first) {
			first = e.At
		}
	}
	return first
}

// expired warns of certificates that have expired, or soon will.
func expired(name string, c *listen.Certificates, now time.Time) (warnings []string) {
	if c == nil {
		return nil
	}
	for _, e := range c.Expiries() {
		if w := e.Says(now); w != "" {
			warnings = append(warnings, name+": "+w)
		}
	}
	return warnings
}
