package main

import (
	"cmp"
	"slices"
	"time"

	"sluice/edge/config"
	"sluice/edge/listen"
	"sluice/edge/metric"
)

// clientCertificates are what listeners show to clients, under the names by which operators know
// them: those of tls, and those that an entry has of its own.
func clientCertificates(c *config.Config) (map[string]*listen.Certificates, error) {
	all := make(map[string]*listen.Certificates)
	for _, l := range c.ListenTLS {
		name, files := ownCertificates(l), l.TLS
		if files == (listen.TLSConfig{}) {
			files = c.TLS
		}
		if all[name] != nil {
			continue
		}
		var err error
		if all[name], err = listen.LoadCertificates(files); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ownCertificates is what the certificates of a listener are called: listen_tls, and the address
// where they are its own.
func ownCertificates(l config.Listener) string {
	if l.TLS == (listen.TLSConfig{}) {
		return "listen_tls"
	}
	return "listen_tls " + l.Address
}

// certificateMetrics are when the listeners' certificates expire. Listeners are known by the field
// that names them.
func certificateMetrics(of map[string]*listen.Certificates) metric.Collector {
	return func(to metric.Sink) {
		for listener, c := range of {
			for _, e := range firstToExpire(c.Expiries()) {
				to.Gauge(float64(e.At.Unix()), listen.ExpiryMetric, listen.ExpiryHelp, "listener", listener, "name", e.File)
			}
			to.Count(c.Failures(), "sluice_certificate_read_failures_total",
				"Looks at a listener's certificates that found files which are wrong or away; what was read before stays in use.", "listener", listener)
		}
	}
}

// shownExpiries bounds the series of a listener: a folder may have a certificate for each of
// thousands of names.
const shownExpiries = 32

// firstToExpire are those that expire first. One that was forgotten in a folder must not hide that
// another expires, so it is not the first alone.
func firstToExpire(all []listen.Expiry) []listen.Expiry {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b listen.Expiry) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.File, b.File))
	})
	return all[:min(len(all), shownExpiries)]
}

// expired warns of certificates that have expired, or soon will.
func expired(name string, c *listen.Certificates, now time.Time) (warnings []string) {
	if c == nil {
		return nil
	}
	for _, e := range c.Expiries() {
		if w := e.Description(now); w != "" {
			warnings = append(warnings, name+": "+w)
		}
	}
	return warnings
}
