package acme

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/caddyserver/certmagic"
	clientv3 "go.etcd.io/etcd/client/v3"

	"sluice/edge"
	"sluice/edge/changes/etcd"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
)

// NewOf makes the manager of an edge, which records in happened what becomes of certificates.
func NewOf(c *config.Config, at edge.Ports, happened *events.Log) (m *Manager, err error) {
	m, err = New(Options{Config: Of(c), Storage: storage(c), Ports: at,
		Event: func(host, reason string, renewal bool) {
			e := events.Event{Time: time.Now(), Kind: events.Certificate,
				Text: "a certificate for " + host + " was issued"}
			switch {
			case reason != "":
				e.Level, e.Text = slog.LevelWarn, control.Certificate{Host: host, Error: reason,
					Until: m.expiry(host)}.Waiting()
			case renewal:
				e.Text = "the certificate for " + host + " was renewed"
			}
			happened.Add(e)
		}})
	return m, err
}

// expiry is when a host's certificate expires; zero: there is none.
func (m *Manager) expiry(host string) time.Time {
	for _, s := range m.Status() {
		if s.Host == host {
			return s.Until
		}
	}
	return time.Time{}
}

// storage is where certificates are kept that are got: in etcd, where there is one, else in the
// state's folder.
func storage(c *config.Config) certmagic.Storage {
	to := etcd.Of(c)
	if to == nil {
		return Folder(filepath.Join(c.StateDir, "acme"))
	}
	return NewEtcd(func(ctx context.Context) (*clientv3.Client, error) {
		return etcd.Connect(ctx, *to)
	}, string(to.Prefix)+"acme/")
}
