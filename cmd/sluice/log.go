package main

import (
	"bytes"
	"context"
	"io"
	stdlog "log"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"sluice/edge/events"
)

// newLog makes a logger that writes the same message at most once a second: a failure that every
// request meets should not fill a disk, or slow down what still works.
func newLog(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // parseFlags has checked it
	options := &slog.HandlerOptions{Level: l}
	var h slog.Handler = slog.NewTextHandler(w, options)
	if format == "json" {
		h = slog.NewJSONHandler(w, options)
	}
	return slog.New(&calmHandler{Handler: h, recent: &recent{last: make(map[string]utterance)}})
}

// A libraryLog takes what libraries write to the log of the Go standard library, which would else
// go to standard error past this log: net/http has no other for what is wrong with an origin's
// HTTP/2.
type libraryLog struct{ to *slog.Logger }

// takeLibraryLog has libraries write to a log, until restore.
func takeLibraryLog(to *slog.Logger) (restore func()) {
	was, flags := stdlog.Writer(), stdlog.Flags()
	stdlog.SetOutput(libraryLog{to})
	stdlog.SetFlags(0)
	return func() {
		stdlog.SetOutput(was)
		stdlog.SetFlags(flags)
	}
}

// Write takes a line. The message is constant, because the log recognises repetitions by it.
func (l libraryLog) Write(line []byte) (int, error) {
	l.to.Warn("a library reports a fault", "text",
		string(bytes.TrimSpace(line[:min(len(line), maxWarning)])))
	return len(line), nil
}

// logQueue is how many lines of the log may wait to be written.
const logQueue = 256

// A logWriter writes in the background: logging must not wait for the log's reader. Lines that find
// the queue full are lost, and counted.
type logWriter struct {
	to     io.Writer
	report func(lost uint64) // that lines were lost; called when there is room again
	lines  chan []byte
	lost   atomic.Uint64
	ended  chan struct{}
}

func newLogWriter(to io.Writer, report func(lost uint64)) *logWriter {
	w := &logWriter{to: to, report: report, lines: make(chan []byte, logQueue),
		ended: make(chan struct{})}
	go w.run()
	return w
}

func (w *logWriter) run() {
	defer close(w.ended)
	for line := range w.lines {
		if line == nil {
			return
		}
		if _, err := w.to.Write(line); err != nil {
			w.lost.Add(1)
		} else if n := w.lost.Swap(0); n > 0 {
			w.report(n)
		}
	}
}

// Write takes a line. It never blocks.
func (w *logWriter) Write(line []byte) (int, error) {
	select {
	case w.lines <- bytes.Clone(line):
	default:
		w.lost.Add(1)
	}
	return len(line), nil
}

// close waits until all is written, for at most a second. What is logged later is lost.
func (w *logWriter) close() {
	late := time.NewTimer(time.Second)
	defer late.Stop()
	select {
	case w.lines <- nil:
	case <-late.C:
		return
	}
	select {
	case <-w.ended:
	case <-late.C:
	}
}

// newEvents makes the list of what has happened at this edge. Every event is a line of the log,
// past what the log drops because it has logged it within the last second: two operators' actions
// in a second are two. The log's warnings are events.
func newEvents(log *slog.Logger) *events.Log {
	calm := log.Handler().(*calmHandler)
	direct := slog.New(calm.Handler)
	l := events.New(eventsKept, func(e events.Event) {
		if e.Kind == events.Warning {
			return // it comes from there
		}
		attrs := []slog.Attr{slog.Uint64("event", e.Number), slog.String("kind", string(e.Kind))}
		for _, a := range [...]slog.Attr{slog.String("rule", e.Rule),
			slog.String("source", e.Source), slog.String("who", e.Who),
			slog.String("from", e.From), slog.String("old", e.Old), slog.String("new", e.New)} {
			if a.Value.String() != "" {
				attrs = append(attrs, a)
			}
		}
		if !e.Until.IsZero() {
			attrs = append(attrs, slog.Time("until", e.Until.UTC()))
		}
		if e.Estimate > 0 {
			attrs = append(attrs, slog.Float64("estimate", e.Estimate),
				slog.Uint64("limit", uint64(e.Limit)))
		}
		if e.Skipped > 0 {
			attrs = append(attrs, slog.Uint64("skipped", e.Skipped))
		}
		direct.LogAttrs(context.Background(), e.Level, e.Text, attrs...)
	})
	calm.recent.warned = func(r slog.Record) {
		text := r.Message
		before := " (" // a message often ends in a command, which what follows is no part of
		r.Attrs(func(a slog.Attr) bool {
			text += before + a.String()
			before = ", "
			return len(text) < maxWarning
		})
		if before == ", " {
			text += ")"
		}
		l.Add(events.Event{Time: r.Time, Kind: events.Warning, Level: r.Level,
			Text: text[:min(len(text), maxWarning)]})
	}
	return l
}

// maxWarning bounds what is kept of a warning, in bytes: one of a panic has a stack.
const maxWarning = 1024

// A calmHandler drops messages that it has written within the last second, and writes later how
// many.
type calmHandler struct {
	slog.Handler
	recent *recent
}

type recent struct {
	// Is called with warnings that are written; nil: nothing is. Set before the log is used.
	warned func(slog.Record)

	mu   sync.Mutex
	last map[string]utterance
}

type utterance struct {
	at      time.Time
	dropped int
}

// maxRecent bounds the memory of recent messages. Few are not constants of the program; those that
// are a second old make room.
const maxRecent = 1024

func (h *calmHandler) Handle(ctx context.Context, r slog.Record) error {
	h.recent.mu.Lock()
	u := h.recent.last[r.Message]
	if !u.at.IsZero() && r.Time.Sub(u.at) < time.Second {
		u.dropped++
		h.recent.last[r.Message] = u
		h.recent.mu.Unlock()
		return nil
	}
	if len(h.recent.last) >= maxRecent {
		maps.DeleteFunc(h.recent.last,
			func(_ string, u utterance) bool { return r.Time.Sub(u.at) >= time.Second })
	}
	if len(h.recent.last) < maxRecent {
		h.recent.last[r.Message] = utterance{at: r.Time}
	}
	h.recent.mu.Unlock()
	if u.dropped > 0 {
		r.AddAttrs(slog.Int("repeated", u.dropped))
	}
	if r.Level >= slog.LevelWarn && h.recent.warned != nil {
		h.recent.warned(r)
	}
	return h.Handler.Handle(ctx, r)
}

func (h *calmHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return &calmHandler{Handler: h.Handler.WithAttrs(a), recent: h.recent}
}

func (h *calmHandler) WithGroup(name string) slog.Handler {
	return &calmHandler{Handler: h.Handler.WithGroup(name), recent: h.recent}
}
