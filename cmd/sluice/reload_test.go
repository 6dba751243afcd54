package main

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// What is written in the folder of the configuration, an access log perhaps, under an attack, does not hold up a reload: of a file that
// is written, of one that another takes the place of, and of one that a link leads to, whose folder is swapped.
func TestReloadBesideALog(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer origin.Close()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name string, limit int) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
		must(t, os.WriteFile(at(name), fmt.Appendf(nil, "rules: [{name: r, limit: %d}]", limit), 0o600))
	}
	try := func(err error) {
		t.Helper()
		must(t, err)
	}
	put("..1/sluice.yaml", 1)
	try(os.Symlink("..1", at("..data")))
	try(os.Symlink("..data/sluice.yaml", at("sluice.yaml")))
	p := start(t, origin.URL, "--config", at("sluice.yaml"))
	stop := make(chan struct{})
	var writers sync.WaitGroup
	defer writers.Wait()
	defer close(stop)
	for n := range 3 { // several, so that none that must wait for its turn makes a pause
		writers.Go(func() {
			log, err := os.Create(at(fmt.Sprint("access.log.", n)))
			if err != nil {
				t.Error(err)
				return
			}
			defer log.Close()
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = log.WriteAt([]byte("a line\n"), 0)
				}
			}
		})
	}
	expect := func(what string, limit int) {
		t.Helper()
		p.until(what, func() bool {
			_, body := p.admin("GET", "/v1/rules/r")
			return strings.Contains(body, fmt.Sprintf(`"limit": %d,`, limit))
		})
	}
	expect("started", 1)
	put("..2/sluice.yaml", 2)
	try(os.Symlink("..2", at("..next")))
	try(os.Rename(at("..next"), at("..data")))
	expect("read where the link leads now", 2)
	put("..2/sluice.yaml", 3)
	expect("read after it was written", 3)
	put("new.yaml", 4)
	try(os.Rename(at("new.yaml"), at("sluice.yaml")))
	expect("read after another took its place", 4)
}

// A file that changes is read once it has been left alone for a look, or at the latest at the fourth. One that does not is not, unless
// it is so young that it may have changed unseen.
func TestFileWatch(t *testing.T) {
	at := func(second float64) time.Time { return time.UnixMilli(1_800_000_000_000 + int64(1000*second)) }
	dir := t.TempDir()
	write := func(text string, second float64) fs.FileInfo {
		file := filepath.Join(dir, "f")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		must(t, os.Chtimes(file, at(second), at(second)))
		info, err := os.Stat(file)
		must(t, err)
		return info
	}
	old := write("a", -10)
	w := fileWatch{info: old}
	for _, step := range []struct {
		second float64
		info   fs.FileInfo // nil: there is none
		want   bool
	}{
		{0, old, false},
		{0.2, write("ab", 0.1), false},
		{0.4, write("abc", 0.3), false},
		{0.6, write("abcd", 0.5), false},
		{0.8, write("abcde", 0.7), true}, // it goes on for too long
		{1, write("abcde", 0.7), true},   // young
		{2.6, write("abcde", 0.7), true},
		{2.8, write("abcde", 0.7), false},
		{3, nil, false},
		{3.2, nil, true},
		{3.4, nil, false},
		{3.6, write("abcde", 0.7), false},
		{3.8, write("abcde", 0.7), true},
		{4, write("abcde", 0.7), false},
	} {
		var err error
		if step.info == nil {
			err = fs.ErrNotExist
		}
		if got := w.look(step.info, err, at(step.second)); got != step.want {
			t.Errorf("after %v s: %v", step.second, got)
		}
	}
}
