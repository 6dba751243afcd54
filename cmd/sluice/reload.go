package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"sluice/edge"
)

// settle is how long a changed file must have been left alone: an editor writes it in pieces.
const settle = 100 * time.Millisecond

// A reloader reads the configuration again when it is told to, by SIGHUP, by the API, or by a change of the file.
type reloader struct {
	flags  *flags
	server *edge.Server
	log    *slog.Logger
	mu     sync.Mutex
}

// now reads the configuration and puts it in force. If anything is wrong with it, what was in force stays.
func (r *reloader) now() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.flags.load()
	if err != nil {
		r.server.Failed()
	} else {
		before := r.server.Config()
		fitDescriptors(c)
		if err = r.server.Apply(c); err == nil {
			r.log.Info("configuration read again", "rules", len(c.Rules))
			r.tellLater(before, c)
		}
	}
	if err != nil {
		r.log.Error("the configuration is wrong: the old one stays in force", "error", sentence(err))
	}
	return err
}

// tellLater names what changed but takes effect only at the next start.
func (r *reloader) tellLater(before, now *edge.Config) {
	for name, pair := range map[string][2]any{
		"listen": {before.Listen, now.Listen}, "admin": {before.Admin, now.Admin}, "pop": {before.PoP, now.PoP},
		"table": {before.Counters, now.Counters}, "limits": {before.Limits, now.Limits},
		"admin_hosts": {before.AdminHosts, now.AdminHosts}, "admin_token_file": {before.AdminTokenFile, now.AdminTokenFile},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			r.log.Warn(name + " has changed: that takes effect at the next start")
		}
	}
}

// watch reloads on SIGHUP and on changes of the file until ctx is done. It watches the folder, because a file is often
// replaced and not written, and so is what a symbolic link in it leads to.
func (r *reloader) watch(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)

	var changes chan fsnotify.Event
	var errs chan error
	if r.flags.config != "" {
		w, err := fsnotify.NewWatcher()
		if err == nil {
			defer w.Close()
			err = w.Add(filepath.Dir(r.flags.config))
			changes, errs = w.Events, w.Errors
		}
		if err != nil {
			r.log.Warn("the configuration file cannot be watched: reload with SIGHUP or POST /v1/reload", "error", err)
		}
	}
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	last := r.content()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			last = r.content()
			_ = r.now() // it has been logged
		case <-changes:
			timer.Reset(settle)
		case err := <-errs:
			r.log.Warn("watching the configuration file", "error", err)
		case <-timer.C:
			// Only what the file says matters, not that something in its folder moved.
			if text := r.content(); text != last {
				last = text
				_ = r.now()
			}
		}
	}
}

func (r *reloader) content() string {
	if r.flags.config == "" {
		return ""
	}
	text, err := os.ReadFile(r.flags.config)
	if err != nil {
		return "\x00" + err.Error()
	}
	return string(text)
}
