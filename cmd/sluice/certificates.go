package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/edge/listen"
)

// certificateMetrics tell when what listeners show expires.
type certificateMetrics map[string]*listen.Certificates // by the field that names the listener; nil: it speaks no TLS

var (
	certificateExpiry = prometheus.NewDesc("sluice_certificate_expiry_timestamp_seconds", "When a certificate that a listener shows expires, or the first of its chain; of a folder's, the 32 that expire first.", []string{"listener", "name"}, nil)
	certificateFailed = prometheus.NewDesc("sluice_certificate_read_failures_total", "Looks at a listener's certificates that found files which are wrong or away; what was read before stays in use.", []string{"listener"}, nil)
)

// Describe sends nothing: which listeners there are depends on the configuration.
func (certificateMetrics) Describe(chan<- *prometheus.Desc) {}

func (m certificateMetrics) Collect(out chan<- prometheus.Metric) {
	for name, c := range m {
		if c == nil {
			continue
		}
		for _, e := range firstToExpire(c.Expiries()) {
			out <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue, float64(e.At.Unix()), name, e.File)
		}
		out <- prometheus.MustNewConstMetric(certificateFailed, prometheus.CounterValue, float64(c.Failures()), name)
	}
}

// shownExpiries bounds the series of a listener: a folder may have a certificate for each of thousands of names.
const shownExpiries = 32

// firstToExpire are those that expire first. One that was forgotten in a folder must not hide that another expires, so it is not the first alone.
func firstToExpire(all []listen.Expiry) []listen.Expiry {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b listen.Expiry) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.File, b.File)) })
	return all[:min(len(all), shownExpiries)]
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
