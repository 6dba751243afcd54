// Package tracing makes traces of sampled requests, by OpenTelemetry, and sends them to a collector
// over OTLP (HTTP, protobuf).
//
// A request is drawn once, when its client is known; nothing happens for those that are not. One
// that is has a span of its own, and below it one for each attempt at a server, whose context the
// server gets as traceparent (W3C Trace Context). Spans wait in a bounded queue for Run, which
// sends them: a collector that is slow or away costs spans, which are counted, and never a request
// its time.
package tracing

import (
	"context"
	"fmt"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/metric"
)

// Module traces requests, if the configuration that the process starts with names a collector.
// version is what the program is called there.
func Module(version string) edge.Module {
	m := &module{version: version}
	return edge.Module{Name: section,
		Config:  config.Module{AtStart: true, Settings: func() any { return standard() }},
		Prepare: m.prepare, Start: m.start, Run: m.run, Collect: m.collect}
}

const section = "tracing"

// A module is what outlives configurations.
type module struct {
	version, edge string
	settings      *Settings // of the first configuration; nil: there was none
	tracer        *Tracer   // nil: nothing is traced
	warn          func(message string, args ...any)
}

func (m *module) prepare(s *edge.Setup) (p edge.Points, err error) {
	if m.settings == nil {
		m.settings, m.edge, m.warn = standard(), s.Name, s.Warn
		if given, is := s.Config.Settings[section].(*Settings); is {
			m.settings = given
		}
	}
	if m.settings.Endpoint != "" {
		p.Observers = []edge.Observer{{Watch: m.watch}}
	}
	return p, nil
}

func (m *module) start() (err error) {
	if m.settings.Endpoint == "" {
		return nil
	}
	takeFaults(m.warn)
	if m.tracer, err = newTracer(m.settings, m.edge, m.version); err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	return nil
}

func (m *module) watch(x *edge.Exchange) edge.Watcher {
	if r := m.tracer.trace(x.Request, x.Trusted(), x.Now()); r != nil {
		return r
	}
	return nil
}

func (m *module) run(ctx context.Context) {
	if m.tracer != nil {
		m.tracer.Run(ctx, m.warn)
	}
}

func (m *module) collect(to metric.Sink) {
	if m.tracer != nil {
		m.tracer.Collect(to)
	}
}
