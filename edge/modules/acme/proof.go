package acme

import (
	"bytes"
	"context"
	"net/http"
	"sync/atomic"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/listen"
	"sluice/edge/message"
	"sluice/edge/metric"
)

// proofFolder is under which a server of ACME looks for a proof (RFC 8555, 8.3).
var proofFolder = []byte("/.well-known/acme-challenge/")

var noStore = []byte("no-store")

// Module gets certificates by itself, and answers servers of ACME over plain HTTP, whom it asks
// nothing else of. To find a proof takes a while where another edge has begun it.
func Module() edge.Module {
	var manager atomic.Pointer[Manager] // from Certify on
	gate := edge.Gate{Phase: edge.Proof, Waits: asksProof, Answer: func(x *edge.Exchange) bool {
		m := manager.Load()
		return m != nil && asksProof(x) && m.proves(x)
	}}
	return edge.Module{Name: name, Config: section(),
		Prepare: func(s *edge.Setup) (edge.Points, error) {
			if len(Of(s.Config).Hosts) == 0 {
				return edge.Points{}, nil
			}
			return edge.Points{Gates: []edge.Gate{gate}}, nil
		},
		Certify: func(c *config.Config, proofs edge.Ports, to *events.Log) (edge.Issuer, error) {
			if len(Of(c).Hosts) == 0 {
				return nil, nil
			}
			m, err := NewOf(c, proofs, to)
			if err != nil {
				return nil, err
			}
			m.Load(context.Background())
			manager.Store(m)
			return m, nil
		},
		Run: func(ctx context.Context) {
			if m := manager.Load(); m != nil {
				m.Run(ctx)
			}
		},
		Collect: func(to metric.Sink) {
			if m := manager.Load(); m != nil {
				m.collect(to)
			}
		},
		State: func(to *control.State) {
			if m := manager.Load(); m != nil {
				to.Certificates = m.Status()
			}
		}}
}

// collect is when certificates expire that were got, and how often none was.
func (m *Manager) collect(to metric.Sink) {
	for _, s := range m.Status() {
		if !s.Until.IsZero() {
			to.Gauge(float64(s.Until.Unix()), listen.ExpiryMetric, listen.ExpiryHelp,
				"listener", "listen_tls", "name", s.Host)
		}
	}
	to.Count(m.Failures(), "sluice_acme_failures_total",
		"Attempts to get or renew a certificate that have failed.")
}

// asksProof reports whether a request may be such a question.
func asksProof(x *edge.Exchange) bool {
	return !x.Front().Secure() && len(x.Host) > 0 &&
		bytes.HasPrefix(message.RawPath(x.Target), proofFolder)
}

// proves answers a server of ACME that asks over plain HTTP whether a host is ours. No list and no
// rule is in its way: a certificate would not come. What is no such question goes on as any
// request.
func (m *Manager) proves(x *edge.Exchange) bool {
	text := m.Answer(context.Background(), string(x.Host), string(message.RawPath(x.Target)))
	if text == nil {
		return false
	}
	room := x.Room()
	*room = append(*room, text...)
	x.Begin(http.StatusOK, "text/plain", *room)
	x.Add("Cache-Control", noStore)
	return true
}
