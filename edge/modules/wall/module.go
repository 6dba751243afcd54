package wall

import (
	"context"
	"net/netip"
	"sync/atomic"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/metric"
)

// Settings are those of the section wall.
type Settings struct {
	Socket string `json:"socket" want:"file"` // where sluice-wall listens; "": nowhere
}

const section = "wall"

// Module has the kernel refuse connections while the configuration has shed: kernel.
func Module() edge.Module {
	m := new(module)
	return edge.Module{Name: section,
		Config: config.Module{InKernel: func(c *config.Config) bool {
			return socketOf(c) != ""
		}, Settings: func() any { return new(Settings) }},
		Prepare: m.prepare, Kernel: m.kernel, State: m.state,
		Run:     func(ctx context.Context) { m.Run(ctx) },
		Collect: func(to metric.Sink) { m.Collect(to) }}
}

// socketOf is where a configuration has sluice-wall; "": nowhere.
func socketOf(c *config.Config) string {
	if s := config.SettingsOf[Settings](c, section); s != nil {
		return s.Socket
	}
	return ""
}

// A module is what outlives configurations.
type module struct {
	*Wall                         // made at the first Prepare
	socket atomic.Pointer[string] // of the configuration in force; "": it has no wall
}

func (m *module) prepare(s *edge.Setup) (p edge.Points, err error) {
	if m.Wall == nil {
		m.Wall = New(Options{
			Socket: func() string { return *m.socket.Load() },
			Ports:  s.Edge.Ports, Blocked: s.Edge.BlockedPrefix, Changes: s.Edge.Loosened,
			Leaving: s.Edge.Leaving, Warn: s.Warn,
		})
		m.socket.Store(new(string))
	}
	socket := ""
	if s.Config.Shed == config.Kernel {
		socket, p.Closed = socketOf(s.Config), m.Knock
	}
	p.InForce = func() { m.socket.Store(&socket) }
	return p, nil
}

func (m *module) state(to *control.State) {
	s := m.Status()
	if s.Socket == "" {
		return
	}
	to.Wall = &control.Wall{Up: s.Up, Since: s.Since, Error: s.Error, Entries: s.Entries,
		Room: s.Room, Refused: s.Refused}
}

// kernel returns how the kernel refuses a prefix; nil: it does not.
func (m *module) kernel(p netip.Prefix) *control.Kernel {
	e, in := m.Of(p)
	if !in {
		return nil
	}
	return &control.Kernel{Since: e.Since.UTC(), Attempts: e.Attempts}
}
