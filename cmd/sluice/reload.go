package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/cmd/sluice/internal/settings"
	"sluice/cmd/sluice/internal/tier"
	"sluice/counter/member"
	"sluice/edge"
	"sluice/edge/beat"
	"sluice/edge/changes"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/operator"
	"sluice/edge/rules"
	"sluice/pop"
	"sluice/pop/operatorlog"
	"sluice/pop/placement"
)

// A reloader reads the configuration again after SIGHUP, a call of the API, or a change of the
// file.
type reloader struct {
	flags   *flags
	server  *edge.Server
	machine *pop.Machine // nil: there is no tier
	log     *slog.Logger
	events  *events.Log
	store   *tier.RuleStore
	name    string               // of this edge
	peers   func(*config.Config) // puts pop.peers_mode in force
	modules edge.Modules
	files   []*files // that have changed, maybe, while the configuration stays

	reloading sync.Mutex // one reload at a time; mu is locked after it

	mu   sync.Mutex
	last string // what the files said when they were read last
	// What file and flags say: what operators changed of the rules is laid over it
	base  *config.Config
	laid  uint64 // this version of the store's
	known map[operatorlog.Mark]bool
	// Changes that cannot be in force here together with the others, and why
	cannot map[operatorlog.Mark]error
	ends   time.Time // what operators changed of modules' own is not what it was then; zero: never
	about  member.About

	overlay atomic.Pointer[changes.Overlay]
	failed  atomic.Pointer[control.FailedReload] // the latest reload; nil: it did not
}

// now reads the configuration and puts it in force. If anything is wrong with it, what was in force
// stays. It is not in force either if ctx ends before all lists are there.
func (r *reloader) now(ctx context.Context) (done control.Reloaded, err error) {
	r.reloading.Lock()
	defer r.reloading.Unlock()
	for _, f := range r.files {
		f.look(time.Now())
	}
	beside := r.beside() // before it is read for use, so that a later change of it is seen as one
	c, err := r.flags.load()
	if err != nil {
		c = nil
	}
	if files := r.flags.files.Load(); files != nil {
		r.mu.Lock()
		r.last = files.Text() + beside
		r.mu.Unlock()
	}
	defer r.modules.Reload(ctx, c)() // it may take its time: changes of operators go on
	if err == nil && ctx.Err() != nil {
		return done, errors.New("this edge is stopping: what was in force stays")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		before := r.server.Config()
		fitDescriptors(c)
		was, waited := r.base, r.waiting()
		if err = r.lay(c); err == nil {
			done = control.Reloaded{Reloaded: true, Changed: changedFields(before,
				r.server.Config()), Warnings: append([]string{}, c.Warnings()...)}
			r.events.Add(events.Event{Time: time.Now(), Kind: events.Reload,
				Text: "configuration read again",
				Old:  inForce(before), New: inForce(r.server.Config()), Changed: done.Changed})
			for _, w := range afresh(before, r.server.Config()) {
				r.log.Warn(w)
				done.Warnings = append(done.Warnings, w)
			}
			warnings(c, r.log)
			r.hidden(was, c, r.log)
			r.moveNodes(before, c)
			r.peers(c)
			r.warnOfRestart(waited)
			done.Waiting = r.waiting()
		}
	}
	r.failed.Store(nil)
	if err != nil {
		r.server.Failed()
		r.failed.Store(&control.FailedReload{At: time.Now(), Error: settings.Sentence(err)})
		r.events.Add(events.Event{Time: time.Now(), Kind: events.Reload, Level: slog.LevelError,
			Text: "the configuration is wrong: the old one stays in force: " +
				settings.Sentence(err)})
	}
	return done, err
}

// changedFields are the settings that are others than before, those of a rule by its name and the
// field.
func changedFields(before, now *config.Config) []events.Field {
	list := []events.Field{}
	for _, d := range config.Differing(before, now) {
		list = append(list, events.Field{Field: d.Field, From: fmt.Sprint(d.Runs),
			To: fmt.Sprint(d.File)})
	}
	rule := func(c *config.Config, name string) string {
		if i := slices.IndexFunc(c.Rules,
			func(r rules.Config) bool { return r.Name == name }); i >= 0 {
			return config.RuleJSON(c.Rules[i])
		}
		return ""
	}
	var names []string
	for _, r := range slices.Concat(before.Rules, now.Rules) {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		old, is := rule(before, name), rule(now, name)
		if old == "" || is == "" {
			list = append(list, events.Field{Field: "rules." + name, From: old, To: is})
		}
		for _, f := range changes.Fields(old, is) {
			f.Field = "rules." + name + "." + f.Field
			list = append(list, f)
		}
	}
	return list
}

// afresh says which rules begin afresh though only their limit has changed.
func afresh(before, now *config.Config) (list []string) {
	for i := range now.Rules {
		was := slices.IndexFunc(before.Rules,
			func(r rules.Config) bool { return r.Name == now.Rules[i].Name })
		if was < 0 {
			continue
		}
		if why := rules.Afresh(&before.Rules[was], &now.Rules[i]); why != "" {
			list = append(list, "rule "+now.Rules[i].Name+": "+why)
		}
	}
	return list
}

// inForce is a configuration in a few words.
func inForce(c *config.Config) string {
	return operator.Counted(len(c.Rules), "rule") + ", " + operator.Counted(len(c.Origins),
		"origin")
}

// warnings logs what is possible but probably not meant.
func warnings(c *config.Config, log *slog.Logger) {
	for _, w := range c.Warnings() {
		log.Warn(w)
	}
}

// moveNodes changes the list of the tier's nodes. From a tier to none, or from none to one, is for
// the next start.
func (r *reloader) moveNodes(before, now *config.Config) {
	if r.machine == nil || len(now.PoP.Memcached) == 0 || slices.Equal(before.PoP.Memcached,
		now.PoP.Memcached) {
		return
	}
	if err := r.machine.Nodes.Set(now.PoP.Memcached); err != nil {
		r.log.Error("pop.memcached: the old list stays in force", "error", err)
		return
	}
	r.log.Info("the list of memcached nodes has changed: sources that move are counted on both nodes until the transition ends",
		"nodes", now.PoP.Memcached, "transition", placement.Transition.String())
}

// warnOfRestart warns of changes of the file that take effect only at the next start.
func (r *reloader) warnOfRestart(before []config.Wait) {
	for _, w := range r.waiting() {
		if !slices.ContainsFunc(before, func(b config.Wait) bool {
			return reflect.DeepEqual(b, w)
		}) {
			r.events.Add(events.Event{Time: time.Now(), Kind: events.Reload, Level: slog.LevelWarn,
				Text: w.Field + " has changed: that takes effect at the next start",
				Old:  fmt.Sprint(w.Runs), New: fmt.Sprint(w.File)})
		}
	}
}

// waiting is the settings of the file that take effect only at the next start. r.mu is locked.
func (r *reloader) waiting() []config.Wait { return config.Waiting(r.server.Config(), r.base) }

// Waiting is waiting for operators.
func (r *reloader) Waiting() []config.Wait {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting()
}

// watch reloads on SIGHUP and on changes of the file, until ctx is done. It reads the file once a
// beat, and one that has changed more often: what else is written in its folder neither wakes it
// nor holds it up, and a file that was replaced, or what a symbolic link leads to (as Kubernetes
// swaps them), is seen like one that was written.
func (r *reloader) watch(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	timer := time.NewTimer(beat.In(time.Now(), beat.Period))
	defer timer.Stop()
	for w := (contentWatch{}); ; {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			_, _ = r.now(ctx) // it has been logged
		case <-timer.C:
			if w.look(r.content(), r.read()) {
				_, _ = r.now(ctx)
			}
			next := beat.In(time.Now(), beat.Period)
			if w.pending > 0 {
				next = min(next, lookAgain)
			}
			timer.Reset(next)
		}
	}
}

// follow puts in force what operators change at other edges, and ends what they gave an end, until
// ctx is done. A reload that waits for a list does not hold it up.
func (r *reloader) follow(ctx context.Context) {
	timer := time.NewTimer(beat.In(time.Now(), beat.Period))
	defer timer.Stop()
	// Closed when operators have changed something; nil: not looked at yet
	var moved <-chan struct{}
	for {
		if moved == nil {
			_, _, moved = r.store.List()
			_ = r.catchUp() // it logs
		}
		select {
		case <-ctx.Done():
			return
		case <-moved:
			moved = nil
		case <-timer.C:
			r.endChanges(time.Now())
			timer.Reset(beat.In(time.Now(), beat.Period))
		}
	}
}

const (
	// lookAgain is when a file that has changed is looked at again: it may not be whole yet.
	lookAgain = 200 * time.Millisecond
	// mostLooks is how many looks a file that changes all the time is waited for: an editor writes
	// it in pieces, but not for ever.
	mostLooks = 3
)

// A contentWatch finds out from one look to the next whether files should be read again.
type contentWatch struct {
	seen    string // at the look before
	pending int    // looks since it was first seen to differ
}

// look reports whether what files say by now should be read: it is not what was read last, and has
// been left alone for a look, or has changed for mostLooks.
func (w *contentWatch) look(now, read string) bool {
	switch {
	case now == read:
		w.pending = 0
		return false
	case w.pending < mostLooks && (w.pending == 0 || now != w.seen):
		w.seen, w.pending = now, w.pending+1
		return false
	}
	w.pending = 0
	return true
}

// read is what the files said when they were read last.
func (r *reloader) read() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// content is what the files say by now from which the configuration was read, and those that
// modules read with it.
func (r *reloader) content() string {
	files := r.flags.files.Load()
	if files == nil {
		return ""
	}
	return files.Now() + r.beside()
}

// beside is what those files of modules say that reload the configuration.
func (r *reloader) beside() (all string) {
	for _, f := range r.server.Config().Files() {
		if !f.Reloads {
			continue
		}
		text, err := os.ReadFile(f.Path)
		if all += "\x00" + string(text); err != nil {
			all += "\x00" + err.Error()
		}
	}
	return all
}
