package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/edge/changes/rulelist"
	"sluice/edge/config"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
)

// A stateFile keeps what operators said over a restart of the whole PoP: the list as it travels,
// with its MAC. Each edge has one.
type stateFile struct {
	path string
	list Kept

	unkept atomic.Pointer[string] // why it cannot be written; nil: it can

	mu    sync.Mutex
	saved []byte
}

// Kept is a list of what operators said: the PoP's, or one of changes of rules.
type Kept interface {
	Encoded(now time.Time) (list []byte, changed <-chan struct{})
	Restore(list []byte, now time.Time) error
}

// openState reads what was kept in a folder, or makes sure that it can be kept there. What is no
// list of this PoP is an error, because going on without it would lift what operators have blocked.
// A list that was read and cannot be written, as on a full disk, is no error here: keep reports it.
func openState(dir, name string, list Kept) (*stateFile, error) {
	f := &stateFile{path: filepath.Join(dir, name), list: list}
	read := false
	if err := readState(f.path, func(text []byte) error {
		read = true
		return list.Restore(text, time.Now())
	}); err != nil {
		return nil, err
	}
	switch err := f.save(); {
	case err == nil || read:
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return nil, fmt.Errorf("state_dir: %w: make room on that disk", err)
	default:
		return nil, fmt.Errorf("state_dir: %w: give a folder that this user may write", err)
	}
	return f, nil
}

// stateName is the PoP's list in the folder.
const stateName = "words"

// apartName is the list of changes of rules in the folder, where that is another: of those that
// stay on this edge, or of those at a place.
func apartName(place *rulelist.Place) string {
	if place != nil {
		return place.File
	}
	return "rules"
}

// CheckState reports what a start with a configuration would find wrong in its state_dir.
func CheckState(c *config.Config, key secret.Secret, place *rulelist.Place) error {
	for name, is := range map[string]bool{stateName: len(c.PoP.Memcached) > 0,
		apartName(place): rulesApart(c, place)} {
		if !is {
			continue
		}
		if err := readState(filepath.Join(c.StateDir, name), func(text []byte) error {
			_, _, err := operatorlog.Decode(key.OnDisk(), text)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// readState has a list taken that was kept in a file, if there is one.
func readState(path string, take func(list []byte) error) error {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("state_dir: %w", err)
	}
	if err := take(text); err != nil {
		return fmt.Errorf("state_dir: %s: %w: it was written under another pop.secret_file or has been changed; put that back, or remove the file to start without it", path, err)
	}
	return nil
}

// saveAgain is how long a list that could not be written waits for the next attempt.
const saveAgain = time.Second

// keep writes the list whenever it has changed, until ctx is done.
func (f *stateFile) keep(ctx context.Context, log *slog.Logger) {
	failed := false
	for {
		_, changed := f.list.Encoded(time.Now())
		var again <-chan time.Time
		err := f.save()
		switch {
		case err != nil:
			why := err.Error()
			f.unkept.Store(&why)
			if !failed {
				log.Error("what operators said cannot be kept in state_dir", "file", f.path,
					"error", err)
			}
			again = time.After(saveAgain)
		case failed:
			f.unkept.Store(nil)
			log.Info("what operators said is kept again")
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			if err := f.save(); err != nil {
				log.Error("what operators said last could not be kept in state_dir", "file", f.path,
					"error", err)
			}
			return
		case <-changed:
		case <-again:
		}
	}
}

// save replaces the file by the list, all the way to the disk.
func (f *stateFile) save() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list, _ := f.list.Encoded(time.Now())
	if bytes.Equal(list, f.saved) {
		return nil
	}
	draft, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name()) // gone if it has replaced the file
	if _, err = draft.Write(list); err == nil {
		err = draft.Sync()
	}
	if e := draft.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(draft.Name(), f.path)
	}
	if err == nil {
		f.saved = bytes.Clone(list)
	}
	return err
}

// warnOfRulesLeft warns of changes of rules that the PoP's list had before they were at a place:
// they are not in force any more.
func warnOfRulesLeft(c *config.Config, key secret.Secret, place *rulelist.Place,
	log *slog.Logger) {
	if c.StateDir == "" {
		return
	}
	var list []operatorlog.Entry
	// openState reports it
	_ = readState(filepath.Join(c.StateDir, stateName), func(text []byte) (err error) {
		list, _, err = operatorlog.Decode(key.OnDisk(), text)
		return err
	})
	var rules []string
	for _, e := range list {
		if e.Kind == operatorlog.Change && !slices.Contains(rules, e.Rule) {
			rules = append(rules, e.Rule)
		}
	}
	if len(rules) > 0 {
		log.Warn("changes of rules in the PoP's list are dropped, because with "+string(place.Origin)+
			" rules are changed there alone: make them again", "rules", strings.Join(rules, ", "))
	}
}
