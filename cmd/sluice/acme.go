//go:build !minimal

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
)

// makeACME makes what gets certificates by itself. It comes after the listeners, at which proofs
// are given.
func (d *daemon) makeACME() error {
	c := d.config
	if len(c.ACME.Hosts) == 0 {
		return nil
	}
	manager, err := acme.New(acme.Options{Config: acme.Config(c.ACME),
		Storage: certificateStorage(c), Ports: proofPorts(&d.at), Event: func(host, reason string,
			renewal bool) {
			e := events.Event{Time: time.Now(), Kind: events.Certificate,
				Text: "a certificate for " +
					host + " was issued"}
			switch {
			case reason != "":
				e.Level, e.Text = slog.LevelWarn, control.Certificate{Host: host, Error: reason,
					Until: until(d.issued, host)}.Waiting()
			case renewal:
				e.Text = "the certificate for " + host + " was renewed"
			}
			d.happened.Add(e)
		}})
	if err != nil {
		return err
	}
	shown := d.certificates["listen_tls"]
	shown.Issued, shown.First = manager.Certificate, manager.First
	d.issued = issuer{manager}
	return nil
}

// An issuer is a manager as the daemon sees it.
type issuer struct{ *acme.Manager }

// Status is what operators see of the certificates.
func (i issuer) Status() (all []control.Certificate) {
	for _, s := range i.Manager.Status() {
		all = append(all, control.Certificate(s))
	}
	return all
}

// until is when a host's certificate expires; zero: there is none.
func until(m certificateIssuer, host string) time.Time {
	for _, s := range m.Status() {
		if s.Host == host {
			return s.Until
		}
	}
	return time.Time{}
}

// certificateStorage is where certificates are kept that are got: in etcd, where there is one, else
// in the state's folder.
func certificateStorage(c *config.Config) certmagic.Storage {
	if len(c.Etcd.Endpoints) == 0 {
		return acme.Folder(filepath.Join(c.StateDir, "acme"))
	}
	return acme.NewEtcd(func(ctx context.Context) (*clientv3.Client,
		error) {
		return etcd.Connect(ctx, etcd.Config(c.Etcd))
	}, c.Etcd.Prefix+"acme/")
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
