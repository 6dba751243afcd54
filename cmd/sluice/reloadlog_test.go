//go:build system

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
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
