package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A stateFile keeps what operators said over a restart of the whole PoP: the list as it travels, with its MAC. Each edge has one.
type stateFile struct {
	path string
	list kept

	mu    sync.Mutex
	saved []byte
}

// kept is a list of what operators said: the PoP's, or a localList.
type kept interface {
	Words(now time.Time) (list []byte, changed <-chan struct{})
	Restore(list []byte, now time.Time) error
}

// openState reads what was kept in a folder, or makes sure that it can be kept there. What is no list of this PoP is an error, because
// going on without it would lift what operators have blocked. A list that was read and cannot be written, as on a disk that is full, is
// none: keep tells of it.
func openState(dir, name string, list kept) (*stateFile, error) {
	f := &stateFile{path: filepath.Join(dir, name), list: list}
	text, err := os.ReadFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("state_dir: %w", err)
	default:
		if err := list.Restore(text, time.Now()); err != nil {
			return nil, stateError(f.path, err)
		}
	}
	if err := f.save(); err != nil && text == nil {
		return nil, fmt.Errorf("state_dir: %w: give a folder that this user may write", err)
	}
	return f, nil
}

// What is in the folder: the PoP's list, and that of changes of rules that stay on this edge.
const (
	stateName = "words"
	localName = "rules"
)

func stateError(path string, err error) error {
	return fmt.Errorf("state_dir: %s: %w: it was written under another pop.secret_file or has been changed; put that back, or remove the file to start without it", path, err)
}

// saveAgain is how long a list that could not be written waits for the next attempt.
const saveAgain = time.Second

// keep writes the list whenever it has changed, until ctx is done.
func (f *stateFile) keep(ctx context.Context, log *slog.Logger) {
	failed := false
	for {
		_, changed := f.list.Words(time.Now())
		var again <-chan time.Time
		err := f.save()
		switch {
		case err != nil:
			if !failed {
				log.Error("what operators said cannot be kept", "error", err)
			}
			again = time.After(saveAgain)
		case failed:
			log.Info("what operators said is kept again")
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			if err := f.save(); err != nil {
				log.Error("what operators said last could not be kept", "error", err)
			}
			return
		case <-changed:
		case <-again:
		}
	}
}

// save puts the list in the place of the file, all the way to the disk.
func (f *stateFile) save() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list, _ := f.list.Words(time.Now())
	if bytes.Equal(list, f.saved) {
		return nil
	}
	draft, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name()) // gone if it has taken the file's place
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
