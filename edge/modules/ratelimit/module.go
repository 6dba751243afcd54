package ratelimit

import (
	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/metric"
	"sluice/edge/rules"
)

const section = "rate_limit_service"

// Module is the service at a listener of its own, if the configuration that the process starts with
// says where.
func Module() edge.Module {
	var server *edge.Server
	var s *Service // nil: nobody calls
	return edge.Module{Name: section,
		Config: config.Module{AtStart: true, Service: called, Weaknesses: uncalled,
			Settings: func() any { return new(config.Callers) }},
		Prepare: func(to *edge.Setup) (edge.Points, error) {
			server = to.Edge
			return edge.Points{}, nil
		},
		Serve: func(c edge.Calls) edge.Service {
			s = New(server, c.TLS)
			return s
		},
		Collect: func(to metric.Sink) {
			if s != nil {
				s.Collect(to)
			}
		}}
}

// called is where proxies call.
func called(c *config.Config) config.Service {
	s := config.Service{Protocol: "h2", Example: "127.0.0.1:8082", Who: "caller"}
	if callers := config.SettingsOf[config.Callers](c, section); callers != nil {
		s.Callers = *callers
	}
	return s
}

// uncalled are the rules that no proxy can call.
func uncalled(c *config.Config) (all []string) {
	for i := range c.Rules {
		if r := &c.Rules[i]; r.Match.Descriptors != nil && r.Mode != rules.Off &&
			called(c).Listen == "" {
			all = append(all, "rule "+r.Name+
				" is about descriptors, and no proxy can send any here: give rate_limit_service.listen")
		}
	}
	return all
}
