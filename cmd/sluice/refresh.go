package main

import (
	"log/slog"
	"sync"
	"time"

	"sluice/edge/events"
)

// refreshEvery is how often files are looked at that change while the configuration stays: certificates and secrets.
const refreshEvery = 5 * time.Second

// files are some that are read again when they change, at a reload at the latest. If they are wrong, what was read before stays in use.
type files struct {
	refresh      func() (changed bool, err error)
	happened     *events.Log
	kind         events.Kind
	again, wrong string // what is said of a change, and of an error

	mu   sync.Mutex
	said string // of what is wrong
}

// look reads the files. What is wrong until somebody mends it is said once.
func (f *files) look(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, err := f.refresh()
	e := events.Event{Time: now, Kind: f.kind, Text: f.again}
	if err != nil {
		e.Level, e.Text = slog.LevelError, f.wrong+": "+err.Error()
	}
	if (changed || err != nil) && e.Text != f.said {
		f.happened.Add(e)
	}
	if f.said = ""; err != nil {
		f.said = e.Text
	}
}
