package main

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/cmd/sluice/internal/settings"
	"sluice/edge/bearer"
	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/edge/metric"
	"sluice/pop/secret"
)

// refreshEvery is how often files are looked at that change while the configuration stays:
// certificates, secrets and tokens. A leaked token is void so soon after its file was replaced, and
// at once by a reload.
const refreshEvery = time.Second

// files are some that are read again when they change, at a reload at the latest. If they are
// wrong, what was read before stays in use.
type files struct {
	refresh      func() (changed bool, err error)
	happened     *events.Log
	kind         events.Kind
	again, wrong string // what is said of a change, and of an error
	// A change takes effect only when the process is replaced, of which the log warns
	atRestart bool

	mu     sync.Mutex
	logged string // of what is wrong
}

// look reads the files. An error is logged once, until it is mended.
func (f *files) look(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, err := f.refresh()
	e := events.Event{Time: now, Kind: f.kind, Text: f.again}
	if f.atRestart {
		e.Level = slog.LevelWarn
	}
	if err != nil {
		e.Level, e.Text = slog.LevelError, f.wrong+": "+err.Error()
	}
	if (changed || err != nil) && e.Text != f.logged {
		f.happened.Add(e)
	}
	if f.logged = ""; err != nil {
		f.logged = e.Text
	}
}

// tokenFile is that of a listener's token. It is read by its path each time, so that a file moved
// into its place and a symbolic link that leads elsewhere are seen. The token before is void at
// once. One that is not readable, or empty, voids nothing: it is written at this moment, or by
// mistake, and without any token nobody could put it right over this listener.
func tokenFile(setting, file string, token *bearer.Token, happened *events.Log) *files {
	f := &files{happened: happened, kind: events.Reload,
		wrong: "the old token stays valid, also if it has leaked, until this is put right"}
	f.refresh = func() (bool, error) {
		text, err := settings.ReadToken(setting, file)
		if err != nil {
			return false, err
		}
		changed := token.Set(text)
		if f.again = setting + " read again: the token before is void"; settings.OpenToAll(file) {
			f.again += "; every user of this machine can read " + file + ": chmod o= it"
		}
		return changed, nil
	}
	return f
}

// A secretFile is that of the PoP's secret, which is read at the start alone, because every name
// and place in the tier follows from it. It is looked at all the same, so that nobody thinks that a
// change is in force.
type secretFile struct {
	files
	waits atomic.Pointer[secretWait] // why what is in the file is not in force; nil: it is
}

// secretWait is why, in a word and in a sentence.
type secretWait struct{ why, text string }

func newSecretFile(c *config.Config, inUse secret.Secret, happened *events.Log) *secretFile {
	const (
		changes = "pop.secret_file has changed: this process goes on with what it had until it is replaced in place (SIGUSR2) or restarted"
		back    = "pop.secret_file has what this process goes on with again: it need not be replaced"
	)
	last := inUse.Digests()
	f := &secretFile{files: files{happened: happened, kind: events.Tier, atRestart: true,
		wrong: "pop.secret_file is wrong: this process goes on with what it had, and another would not start"}}
	f.refresh = func() (changed bool, err error) {
		key, err := settings.ReadSecret(c)
		if err != nil {
			f.waits.Store(&secretWait{"wrong", f.wrong + ": " + err.Error()})
			return false, err
		}
		changed, last = !slices.Equal(key.Digests(), last), key.Digests()
		if f.again = changes; slices.Equal(last, inUse.Digests()) {
			f.again = back
			f.waits.Store(nil)
		} else {
			f.waits.Store(&secretWait{"changed", changes})
		}
		return changed, nil
	}
	return f
}

// collect gives whether the file waits, and why.
func (f *secretFile) collect(to metric.Sink) {
	waits := f.waits.Load()
	for _, why := range [...]string{"changed", "wrong"} {
		n := 0.0
		if waits != nil && waits.why == why {
			n = 1
		}
		to.Gauge(n, "sluice_pop_secret_waiting",
			"Whether what is in pop.secret_file is not in force: it has changed since this process started, or it is wrong.", "why", why)
	}
}
