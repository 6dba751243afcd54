package limitapi

import (
	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/metric"
)

// Settings are those of the section limit_api.
type Settings struct {
	config.Callers
	// Of what programs must send, unless ClientCAFile says who may ask; "": anyone that reaches it
	// may ask
	TokenFile string `json:"token_file" want:"file"`
}

const section = "limit_api"

// Module is the limiter over HTTP at a listener of its own, if the configuration that the process
// starts with says where.
func Module() edge.Module {
	var server *edge.Server
	var s *Service // nil: nobody asks
	return edge.Module{Name: section,
		Config: config.Module{AtStart: true, Service: called,
			Settings: func() any { return new(Settings) }},
		Prepare: func(to *edge.Setup) (edge.Points, error) {
			server = to.Edge
			return edge.Points{}, nil
		},
		Serve: func(c edge.Calls) edge.Service {
			s = New(server, c)
			return s
		},
		Collect: func(to metric.Sink) {
			if s != nil {
				s.Collect(to)
			}
		}}
}

// called is where programs ask.
func called(c *config.Config) config.Service {
	s := config.Service{TokenFile: new(string), Protocol: "http/1.1", Example: "127.0.0.1:8083",
		Who: "program"}
	if own := config.SettingsOf[Settings](c, section); own != nil {
		s.Callers, s.TokenFile = own.Callers, &own.TokenFile
	}
	return s
}
