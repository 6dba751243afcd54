package wall

import (
	"net/netip"
	"time"

	"sluice/edge/metric"
)

// Status is the state of the wall, for operators.
type Status struct {
	Socket  string    `json:"socket"`
	Up      bool      `json:"up"`              // the helper answers
	Since   time.Time `json:"since"`           // when Up changed last
	Error   string    `json:"error,omitempty"` // what is wrong
	Entries int       `json:"entries"`         // prefixes that the kernel refuses
	Room    int       `json:"room"`            // how many it may
	// SYNs that the kernel refused while this edge was connected, for all edges of its helper
	Refused uint64 `json:"refused"`
	Turned  uint64 `json:"no_room,omitzero"` // knocks of blocked sources that found no room
}

// Entry is a prefix that the kernel refuses.
type Entry struct {
	Prefix netip.Prefix
	Since  time.Time
	// SYNs that were refused, as of the last report, which is as old as a lease at most
	Attempts uint64
}

// Status returns the state of the wall. Without a wall in the configuration it is the zero Status,
// but for what was refused before.
func (w *Wall) Status() Status {
	socket := w.Socket()
	w.mu.Lock()
	defer w.mu.Unlock()
	if socket == "" {
		return Status{Refused: w.state.refused}
	}
	return Status{Socket: socket, Up: w.state.up, Since: w.state.since.UTC(), Error: w.state.err,
		Entries: len(w.set.entries), Room: w.set.granted, Refused: w.state.refused,
		Turned: w.set.turned}
}

// Of returns the entry of a prefix.
func (w *Wall) Of(p netip.Prefix) (Entry, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.set.entries[p]
	if e == nil {
		return Entry{}, false
	}
	return Entry{p, e.since, e.attempts}, true
}

// Collect gives the wall's metrics, if the configuration has one.
func (w *Wall) Collect(to metric.Sink) {
	s := w.Status()
	if s.Socket == "" {
		return
	}
	up := 0.0
	if s.Up {
		up = 1
	}
	to.Gauge(up, "sluice_wall_up",
		"Whether sluice-wall can be used; 0 means that the edge closes connections of blocked sources itself.")
	to.Gauge(float64(s.Entries), "sluice_wall_entries",
		"Prefixes whose new connections the kernel refuses.")
	to.Gauge(float64(s.Room), "sluice_wall_room", "Prefixes that the kernel's set has room for.")
	to.Count(s.Refused, "sluice_wall_refused_total",
		"New connections (SYNs) that the kernel refused while this edge was connected to sluice-wall; of several edges with one sluice-wall each counts them all.")
	to.Count(s.Turned, "sluice_wall_full_total",
		"Connections of blocked sources for which the kernel's set had no room.")
}
