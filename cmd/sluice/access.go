package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"sluice/edge/accesslog"
)

// openAccessLog opens the access log if there is to be one.
func openAccessLog(c accesslog.Config) (*accesslog.Log, error) {
	if c.File == "" {
		return nil, nil
	}
	l, err := accesslog.Open(c, func() (io.WriteCloser, error) {
		if c.File == "-" {
			return standardOutput{os.Stdout}, nil
		}
		if info, err := os.Stat(c.File); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			// For writing alone, fifo(7) blocks until there is a reader
			return os.OpenFile(c.File, os.O_RDWR, 0)
		}
		return os.OpenFile(c.File, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	})
	if err != nil {
		return nil, fmt.Errorf("access_log.file: %w: give the path of a file that can be written",
			err)
	}
	return l, nil
}

// standardOutput stays open.
type standardOutput struct{ io.Writer }

func (standardOutput) Close() error { return nil }

// writeAccessLog writes until ctx is done, and opens the file again on SIGUSR1. Without a log the
// signal means nothing.
func writeAccessLog(ctx context.Context, l *accesslog.Log, log *slog.Logger) {
	usr1 := make(chan os.Signal, 1)
	signal.Notify(usr1, syscall.SIGUSR1)
	defer signal.Stop(usr1)
	var writer sync.WaitGroup
	if l != nil {
		writer.Go(func() {
			l.Run(ctx, func(err error) {
				log.Error("the access log cannot be opened again: the old file stays in use",
					"error", err)
			})
		})
	}
	var tick <-chan time.Time // nil: there is no log
	if l != nil {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		tick = t.C
	}
	lost := uint64(0)
	for {
		select {
		case <-tick:
			if l.Lost() > lost {
				if err := l.Failed(); err != nil {
					log.Warn("lines of the access log were lost: it cannot be written", "lost",
						l.Lost()-lost, "file", l.File(), "error", err)
				} else {
					log.Warn("lines of the access log were lost: they come faster than the file or the reader of the pipe takes them", "lost", l.Lost()-lost, "file", l.File())
				}
				lost = l.Lost()
			}
		case <-usr1:
			if l != nil {
				l.Reopen()
			}
		case <-ctx.Done():
			writer.Wait()
			return
		}
	}
}
