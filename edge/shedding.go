package edge

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"sluice/edge/events"
	"sluice/edge/limiter/shedding"
	"sluice/edge/upstream"
)

// tellShedding tells operators of origins that have begun to shed load, or have not for a while.
func (s *Server) tellShedding(groups []*upstream.Group, now time.Time) {
	for _, g := range groups {
		if g.Shedding == nil {
			continue
		}
		shedding, moved := g.Shedding.Moved(now)
		if !moved {
			continue
		}
		is, name := g.Shedding.Status(), strings.Join(g.Hosts, ", ")
		e := events.Event{Time: now, Kind: events.Origin, Old: "shedding", New: "sound",
			Text: fmt.Sprintf("the origin of %s sheds no load any more: %d requests may be under way there", name, is.Limit)}
		if shedding {
			e.Level, e.Old, e.New = slog.LevelWarn, "sound", "shedding"
			e.Text = fmt.Sprintf("the origin of %s sheds load: %d requests are under way there, and %d may be; without a queue it took %v", name, is.InFlight, is.Limit,
				is.Base.Round(time.Millisecond))
		}
		s.events.Add(e)
	}
}

// OriginStatus is a group of servers as operators see it.
type OriginStatus struct {
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
	Shed     map[string]uint64 `json:"shed"`         // by priority, since it began
	Base     float64           `json:"base_seconds"` // its latency without a queue; 0: not known yet
	Now      bool              `json:"now"`          // it sheds, or did in the last ten seconds
}

// Origins are the groups of servers, as configured.
func (s *Server) Origins(now time.Time) []OriginStatus {
	list := []OriginStatus{}
	for _, g := range s.snap.Load().origins.Groups {
		o := OriginStatus{Hosts: g.Hosts, Servers: []ServerStatus{}}
		for _, server := range g.Servers {
			o.Servers = append(o.Servers, ServerStatus{server.Name, server.Healthy(now), server.Active.Load()})
		}
		if g.Shedding != nil {
			is := g.Shedding.Status()
			o.Shedding = &SheddingStatus{Limit: is.Limit, InFlight: is.InFlight, Waiting: is.Waiting, Base: is.Base.Seconds(), Now: is.Shedding, Shed: make(map[string]uint64)}
			for level := range shedding.Levels {
				o.Shedding.Shed[level.String()] = is.Shed[level]
			}
		}
		list = append(list, o)
	}
	return list
}
