package upstream

import (
	"time"

	"sluice/edge/limiter/shedding"
)

// GroupStatus is a group of servers as operators see it.
type GroupStatus struct {
	Hosts    []string        `json:"hosts"`
	Servers  []ServerStatus  `json:"servers"`
	Shedding *SheddingStatus `json:"shedding,omitempty"` // nil: it sheds no load
}

// ServerStatus is one of its servers.
type ServerStatus struct {
	Name   string `json:"name"`
	Up     bool   `json:"up"`
	Active int64  `json:"active"` // requests under way
}

// SheddingStatus is the limit of an origin that sheds load.
type SheddingStatus struct {
	Limit    int               `json:"limit"`
	InFlight int               `json:"in_flight"` // passed on, without the head of an answer
	Waiting  int               `json:"waiting"`
	Shed     map[string]uint64 `json:"shed"` // by priority, since it began
	// Its latency without a queue; 0: not known yet
	Base float64 `json:"base_seconds"`
	Now  bool    `json:"now"` // it sheds, or did in the last ten seconds
}

// Status is how each group of servers stands, in the order of the configuration.
func (s *Origins) Status(now time.Time) []GroupStatus {
	list := []GroupStatus{}
	for _, g := range s.Groups {
		st := GroupStatus{Hosts: g.Hosts, Servers: []ServerStatus{}}
		for _, server := range g.Servers {
			st.Servers = append(st.Servers, ServerStatus{server.Name, server.Healthy(now),
				server.Active.Load()})
		}
		if g.Shedding != nil {
			is := g.Shedding.Status()
			st.Shedding = &SheddingStatus{Limit: is.Limit, InFlight: is.InFlight,
				Waiting: is.Waiting, Base: is.Base.Seconds(), Now: is.Shedding,
				Shed: make(map[string]uint64)}
			for level := range shedding.Levels {
				st.Shedding.Shed[level.String()] = is.Shed[level]
			}
		}
		list = append(list, st)
	}
	return list
}
