package main

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/caddyserver/certmagic"
	clientv3 "go.etcd.io/etcd/client/v3"

	"sluice/edge/acme"
	"sluice/edge/changes/etcd"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/metric"
)

// proof is what a server of ACME wants to see; nil: no certificates are got.
func (d *daemon) proof() func(host, path string) []byte {
	if len(d.config.ACME.Hosts) == 0 {
		return nil
	}
	return func(host, path string) []byte { return d.issued.Answer(context.Background(), host, path) }
}

// makeACME makes what gets certificates by itself. It comes after the listeners, at which proofs are given.
func (d *daemon) makeACME() (err error) {
	c := d.config
	if len(c.ACME.Hosts) == 0 {
		return nil
	}
	d.issued, err = acme.New(acme.Options{Config: acme.Config(c.ACME), Storage: certificateStorage(c), Ports: proofPorts(&d.at), Event: func(host, reason string, renewal bool) {
		e := events.Event{Time: time.Now(), Kind: events.Certificate, Text: "a certificate for " + host + " was issued"}
		switch {
		case reason != "":
			e.Level, e.Text = slog.LevelWarn, control.Certificate{Host: host, Error: reason, Until: until(d.issued, host)}.Waiting()
		case renewal:
			e.Text = "the certificate for " + host + " was renewed"
		}
		d.happened.Add(e)
	}})
	if err == nil {
		shown := d.certificates["listen_tls"]
		shown.Issued, shown.First = d.issued.Certificate, d.issued.First
	}
	return err
}

// until is when a host's certificate expires; zero: there is none.
func until(m *acme.Manager, host string) time.Time {
	for _, s := range m.Status() {
		if s.Host == host {
			return s.Until
		}
	}
	return time.Time{}
}

// certificateStorage is where certificates are kept that are got: in etcd, where there is one, else in the state's folder.
func certificateStorage(c *config.Config) certmagic.Storage {
	if len(c.Etcd.Endpoints) == 0 {
		return acme.Folder(filepath.Join(c.StateDir, "acme"))
	}
	return acme.NewEtcd(func(ctx context.Context) (*clientv3.Client, error) { return etcd.Connect(ctx, etcd.Config(c.Etcd)) }, c.Etcd.Prefix+"acme/")
}

// proofPorts are where proofs are given: the first of each kind that is no Unix socket.
func proofPorts(l *listeners) (p acme.Ports) {
	for _, e := range l.front {
		if tcp, ok := e.addr().(*net.TCPAddr); ok && p.HTTP == 0 {
			if p.HTTP = tcp.Port; !tcp.IP.IsUnspecified() {
				p.Host = tcp.IP.String()
			}
		}
	}
	for _, e := range l.secure {
		if tcp, ok := e.addr().(*net.TCPAddr); ok && p.TLS == 0 {
			p.TLS = tcp.Port
		}
	}
	return p
}

// acmeMetrics are those of certificates that are got.
func acmeMetrics(m *acme.Manager) metric.Collector {
	return func(to metric.Sink) {
		for _, s := range m.Status() {
			if !s.Until.IsZero() {
				to.Gauge(float64(s.Until.Unix()), "sluice_certificate_expiry_timestamp_seconds", expiryHelp, "listener", "listen_tls", "name", s.Host)
			}
		}
		to.Count(m.Failures(), "sluice_acme_failures_total", "Attempts to get or renew a certificate that have failed.")
	}
}

// issuedStatus is what operators see of them.
func issuedStatus(m *acme.Manager) (all []control.Certificate) {
	if m == nil {
		return nil
	}
	for _, s := range m.Status() {
		all = append(all, control.Certificate(s))
	}
	return all
}
