package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"sluice/edge"
	"sluice/edge/admin"
	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/edge/rules"
	"sluice/pop"
)

// settle is how long a changed file must have been left alone: an editor writes it in pieces.
const settle = 100 * time.Millisecond

// A reloader reads the configuration again when it is told to, by SIGHUP, by the API, or by a change of the file.
type reloader struct {
	flags   *flags
	server  *edge.Server
	machine *pop.Machine // nil: there is no tier
	log     *slog.Logger
	events  *events.Log
	mu      sync.Mutex
	last    string // what the file said when it was read last
}

// now reads the configuration and puts it in force. If anything is wrong with it, what was in force stays.
func (r *reloader) now() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = r.content()
	c, err := r.flags.load()
	if err != nil {
		r.server.Failed()
	} else {
		before := r.server.Config()
		fitDescriptors(c)
		if err = r.server.Apply(c); err == nil {
			r.events.Add(events.Event{Time: time.Now(), Kind: events.Reload, Text: "configuration read again",
				Old: inForce(before), New: inForce(c)})
			warnings(c, r.log)
			r.moveNodes(before, c)
			r.tellLater(before, c)
		}
	}
	if err != nil {
		r.events.Add(events.Event{Time: time.Now(), Kind: events.Reload, Level: slog.LevelError,
			Text: "the configuration is wrong: the old one stays in force: " + sentence(err)})
	}
	return err
}

// inForce is a configuration in a few words.
func inForce(c *config.Config) string {
	return fmt.Sprintf("%d rules, %d origins", len(c.Rules), len(c.Origins))
}

// warnings logs what is possible but probably not meant.
func warnings(c *config.Config, log *slog.Logger) {
	for _, w := range c.Warnings() {
		log.Warn(w)
	}
}

// moveNodes changes the list of the tier's nodes. From a tier to none, or from none to one, is for the next start.
func (r *reloader) moveNodes(before, now *config.Config) {
	if r.machine == nil || len(now.PoP.Memcached) == 0 || slices.Equal(before.PoP.Memcached, now.PoP.Memcached) {
		return
	}
	if err := r.machine.SetNodes(now.PoP.Memcached); err != nil {
		r.log.Error("pop.memcached: the old list stays in force", "error", err)
		return
	}
	r.log.Info("the list of memcached nodes has changed: sources that move are counted at both places until the transition ends",
		"nodes", now.PoP.Memcached, "transition", pop.Transition.String())
}

// tellLater names what changed but takes effect only at the next start.
func (r *reloader) tellLater(before, now *config.Config) {
	tiers := [2]config.PoP{before.PoP, now.PoP}
	if r.machine != nil && len(now.PoP.Memcached) > 0 {
		tiers[0].Memcached, tiers[1].Memcached = nil, nil // moveNodes has seen to it
	}
	for name, pair := range map[string][2]any{
		"listen": {before.Listen, now.Listen}, "listen_tls": {before.ListenTLS, now.ListenTLS}, "tls": {before.TLS, now.TLS}, "admin": {before.Admin, now.Admin}, "pop": {tiers[0], tiers[1]},
		"table": {before.Counters, now.Counters}, "access_log": {before.AccessLog, now.AccessLog}, "limits": {before.Limits, now.Limits},
		"admin_hosts": {before.AdminHosts, now.AdminHosts}, "admin_token_file": {before.AdminTokenFile, now.AdminTokenFile},
		"edge_id": {before.EdgeID, now.EdgeID}, "state_dir": {before.StateDir, now.StateDir},
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
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			_ = r.now() // it has been logged
		case <-changes:
			timer.Reset(settle)
		case err := <-errs:
			r.log.Warn("watching the configuration file", "error", err)
		case <-timer.C:
			if r.changed() {
				_ = r.now()
			}
		}
	}
}

// changed reports whether the file says something else than when it was read: only that matters, not that something in its
// folder moved.
func (r *reloader) changed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.content() != r.last
}

// edit changes a rule, or takes it out: in the file, if there is one, and in force. A change that is not possible changes
// neither.
func (r *reloader) edit(name string, rule *rules.Config) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flags.config == "" {
		c := *r.server.Config()
		var err error
		if c.Rules, err = config.WithRule(c.Rules, name, rule); err != nil {
			return err
		}
		return r.server.Apply(&c)
	}
	text, err := os.ReadFile(r.flags.config)
	if err != nil {
		return err
	}
	if text, err = config.EditRules(r.flags.config, text, name, rule); err != nil {
		return err
	}
	c, err := parseConfig(r.flags.config, text)
	if err != nil {
		return err
	}
	if err := r.flags.over(c); err != nil {
		return err
	}
	fitDescriptors(c)
	draft, err := writeBeside(r.flags.config, text)
	if err != nil {
		return err
	}
	defer os.Remove(draft) // gone if it has taken the file's place
	if err := r.server.Apply(c); err != nil {
		return err
	}
	file, err := filepath.EvalSymlinks(r.flags.config)
	if err == nil {
		err = os.Rename(draft, file)
	}
	if err != nil {
		r.log.Error("a rule has changed but the file could not be written", "rule", name, "error", err)
		return fmt.Errorf("%w: %w", admin.ErrNotSaved, err)
	}
	r.last = string(text)
	return nil
}

// writeBeside writes what is to take a file's place into the same folder, all the way to the disk.
func writeBeside(file string, text []byte) (draft string, err error) {
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return "", err
	}
	mode := os.FileMode(0o644)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return "", err
	}
	if _, err = f.Write(text); err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
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
