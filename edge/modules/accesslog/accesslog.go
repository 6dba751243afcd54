// Package accesslog writes a line for every request, and never lets one wait for it: what comes
// faster than it can be written is lost, and counted.
package accesslog

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/metric"
	"sluice/edge/regular"
)

// Module logs requests, if the configuration that the process starts with says where. The file is
// opened again on SIGUSR1.
func Module() edge.Module { return ModuleOn(openFile) }

// ModuleOn is Module with files that open opens.
func ModuleOn(open func(file string) (io.WriteCloser, error)) edge.Module {
	m := &module{open: open}
	return edge.Module{Name: section,
		Config: config.Module{AtStart: true, Settings: func() any {
			return &Settings{Format: "json", Refused: 1, Succeeded: 1}
		}},
		Prepare: m.prepare, Try: try, Start: m.start, Run: m.runRotated, Collect: m.collect,
		State: m.state}
}

const section = "access_log"

// A module is what outlives configurations: the log stays the one that the process began with.
type module struct {
	open     func(file string) (io.WriteCloser, error)
	prepared bool
	log      *Log // nil: there is none
	warn     func(message string, args ...any)
}

func (m *module) prepare(s *edge.Setup) (p edge.Points, err error) {
	if !m.prepared { // run reads what is written here
		m.prepared, m.warn = true, s.Warn
		if settings, file := fileOf(s.Config); file != "" {
			m.log = New(*settings, s.Name, func() (io.WriteCloser, error) { return m.open(file) })
		}
	}
	if m.log != nil {
		p.Observers = []edge.Observer{{
			Answered: func(_ *edge.Exchange, o *edge.Outcome) { m.log.Note(o) }}}
	}
	return p, nil
}

// fileOf is where a configuration has requests logged; "": nowhere.
func fileOf(c *config.Config) (*Settings, string) {
	settings, _ := c.Settings[section].(*Settings)
	if settings == nil {
		return nil, ""
	}
	return settings, settings.File
}

// toOutput stands for standard output as a file.
const toOutput = "-"

// openFile opens a file to append to.
func openFile(file string) (io.WriteCloser, error) {
	if file == toOutput {
		return standardOutput{os.Stdout}, nil
	}
	if info, err := os.Stat(file); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		// For writing alone, fifo(7) blocks until there is a reader
		return os.OpenFile(file, os.O_RDWR, 0)
	}
	return os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
}

// standardOutput stays open.
type standardOutput struct{ io.Writer }

func (standardOutput) Close() error { return nil }

// try returns why the file could not be written, or made.
func try(c *config.Config) error {
	_, file := fileOf(c)
	if file == "" || file == toOutput {
		return nil
	}
	return explained(regular.TryWrite(file))
}

func (m *module) start() error {
	if m.log == nil {
		return nil
	}
	return explained(m.log.Open())
}

// explained is an error with the setting and the remedy; nil: there is none.
func explained(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("access_log.file: %w: give the path of a file that can be written", err)
}

// lastTime is how long the end of the process waits for the reader of the log.
const lastTime = time.Second

// runRotated is run with the signal of log rotation.
func (m *module) runRotated(ctx context.Context) {
	if m.log == nil {
		return
	}
	rotated := make(chan os.Signal, 1)
	signal.Notify(rotated, syscall.SIGUSR1)
	defer signal.Stop(rotated)
	m.run(ctx, rotated)
}

// run writes until ctx is done, and says what is lost.
func (m *module) run(ctx context.Context, rotated <-chan os.Signal) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		m.log.Run(ctx, func(err error) {
			m.warn("the access log cannot be opened again: the old file stays in use", "error", err)
		})
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for lost := uint64(0); ; {
		select {
		case <-tick.C:
			lost = m.report(lost)
		case <-rotated:
			m.log.Reopen()
		case <-ctx.Done():
			late := time.NewTimer(lastTime)
			defer late.Stop()
			select {
			case <-written:
			case <-late.C: // the reader of the log has stopped reading
				m.warn("the access log could not be written to its end")
			}
			return
		}
	}
}

// report says how many lines were lost since there were so many, and returns how many there are.
func (m *module) report(before uint64) (lost uint64) {
	if lost = m.log.Lost(); lost == before {
		return lost
	}
	if err := m.log.Failed(); err != nil {
		m.warn("lines of the access log were lost: it cannot be written", "lost", lost-before,
			"file", m.log.config.File, "error", err)
	} else {
		m.warn("lines of the access log were lost: "+
			"they come faster than the file or the reader of the pipe takes them",
			"lost", lost-before, "file", m.log.config.File)
	}
	return lost
}

func (m *module) collect(to metric.Sink) {
	lost := uint64(0)
	if m.log != nil {
		lost = m.log.Lost()
	}
	to.Count(lost, "sluice_log_lines_lost_total",
		"Lines of the access log that could not be written.")
}

func (m *module) state(to *control.State) {
	if m.log == nil {
		return
	}
	if err := m.log.Failed(); err != nil {
		to.AccessLog = &control.LostLines{File: m.log.config.File, Error: err.Error(),
			Lost: m.log.Lost()}
	}
}
