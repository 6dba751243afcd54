package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// newLog makes a logger that says the same thing at most once a second: a failure that every request meets should not
// fill a disk, or slow down what still works.
func newLog(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // parseFlags has checked it
	options := &slog.HandlerOptions{Level: l}
	var h slog.Handler = slog.NewTextHandler(w, options)
	if format == "json" {
		h = slog.NewJSONHandler(w, options)
	}
	return slog.New(&calmHandler{Handler: h, said: &said{last: make(map[string]utterance)}})
}

// logQueue is how many lines of the log may wait to be written.
const logQueue = 256

// A logWriter writes in the background: whoever logs must not wait for whoever reads the log. Lines that find the queue full
// are lost, and counted.
type logWriter struct {
	to    io.Writer
	tell  func(lost uint64) // that lines were lost; called when there is room again
	lines chan []byte
	lost  atomic.Uint64
	ended chan struct{}
}

func newLogWriter(to io.Writer, tell func(lost uint64)) *logWriter {
	w := &logWriter{to: to, tell: tell, lines: make(chan []byte, logQueue), ended: make(chan struct{})}
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
			w.tell(n)
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

// A calmHandler drops what it has said within the last second, and says later how often.
type calmHandler struct {
	slog.Handler
	said *said
}

type said struct {
	mu   sync.Mutex
	last map[string]utterance
}

type utterance struct {
	at      time.Time
	dropped int
}

// maxSaid bounds the memory of what has been said. Messages are constants of the program, so it is never reached.
const maxSaid = 1024

func (h *calmHandler) Handle(ctx context.Context, r slog.Record) error {
	h.said.mu.Lock()
	u := h.said.last[r.Message]
	if !u.at.IsZero() && r.Time.Sub(u.at) < time.Second {
		u.dropped++
		h.said.last[r.Message] = u
		h.said.mu.Unlock()
		return nil
	}
	if len(h.said.last) < maxSaid {
		h.said.last[r.Message] = utterance{at: r.Time}
	}
	h.said.mu.Unlock()
	if u.dropped > 0 {
		r.AddAttrs(slog.Int("repeated", u.dropped))
	}
	return h.Handler.Handle(ctx, r)
}

func (h *calmHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return &calmHandler{Handler: h.Handler.WithAttrs(a), said: h.said}
}

func (h *calmHandler) WithGroup(name string) slog.Handler {
	return &calmHandler{Handler: h.Handler.WithGroup(name), said: h.said}
}
