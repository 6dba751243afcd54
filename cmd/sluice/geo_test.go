//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"sluice/edge/modules/geo/geotest"
)

// A database is replaced while requests come: what is good is in force once it is read, by itself or at a reload, and what
// is not changes nothing, whatever becomes of the file. No request notices.
func TestDatabaseReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	file := at("country.mmdb")
	in := func(name, country string) { geotest.Countries(t, at(name), map[string]string{"192.0.2.0/24": country}) }
	in("country.mmdb", "DE")
	geotest.Systems(t, at("asn.mmdb"), map[string]uint32{"192.0.2.0/24": 64500})
	p := start(t, origin(t), "--config", write(t, "geo: {country: "+file+"}\nsource: {trust: [127.0.0.1]}\ndeny: [\"country:FR\"]\n"+
		"rules: [{name: abroad, limit: 1000000, match: {not: {countries: [DE]}}}]\n"))

	stop := make(chan struct{})
	var senders sync.WaitGroup
	var answers atomic.Int64
	ask := func() int { // also from other goroutines
		req, err := http.NewRequest("GET", "http://"+p.front+"/", nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		req.Header.Set("X-Forwarded-For", "192.0.2.1")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		answers.Add(1)
		return resp.StatusCode
	}
	for range 2 {
		senders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := ask(); got != 200 && got != 403 {
					t.Errorf("a request gets %d", got)
				}
			}
		})
	}
	defer senders.Wait()
	defer close(stop)

	country := func() string {
		var looked struct{ Country string }
		_, text := p.admin("GET", "/v1/sources/192.0.2.1")
		must(t, json.Unmarshal([]byte(text), &looked))
		return looked.Country
	}
	// is reloads, and checks what is in force, and what was said of the file.
	is := func(what, want, said string) {
		t.Helper()
		if status, text := p.admin("POST", "/v1/reload"); status != 200 {
			t.Errorf("%s: a reload: %d %s", what, status, text)
		}
		if got := country(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		status := map[string]int{"DE": 200, "NO": 200, "FR": 403}[want]
		if got := ask(); got != status {
			t.Errorf("%s: %d, want %d", what, got, status)
		}
		if _, text := p.admin("GET", "/v1/events?kind=geo"); said != "" && !strings.Contains(text, said) {
			t.Errorf("%s: no event says %q: %s", what, said, text)
		}
	}
	is("as it was", "DE", "")
	in("country.mmdb", "FR")
	p.until("reading it by itself", func() bool { return country() == "FR" })
	is("another took its place", "FR", "read again: geo.country, built 2023-11-14")
	in("country.mmdb", "NO")
	is("and another", "NO", "")

	whole, err := os.ReadFile(file)
	must(t, err)
	for _, n := range []int{len(whole) / 2, 1, 0} {
		must(t, os.Truncate(file, int64(n)))
		is(fmt.Sprint("cut to ", n), "NO", "it is no MaxMind database")
	}
	must(t, os.WriteFile(file, []byte(strings.Repeat("x", len(whole))), 0o600))
	is("overwritten", "NO", "it is no MaxMind database")
	must(t, os.Remove(file))
	is("gone", "NO", "no such file")
	must(t, os.Mkdir(file, 0o700))
	is("a folder", "NO", "that is a folder")
	must(t, os.Remove(file))
	must(t, syscall.Mkfifo(file, 0o600))
	is("a pipe", "NO", "that is no regular file")
	must(t, os.Remove(file))
	must(t, os.Symlink(at("asn.mmdb"), file))
	is("a link to another kind", "NO", "which has no countries")
	unread(t, p, "geo.country", file, "which has no countries")

	in("next.mmdb", "DE")
	must(t, os.Symlink(at("next.mmdb"), at("link")))
	must(t, os.Rename(at("link"), file))
	is("a link to a good one", "DE", "")
	unread(t, p, "", "", "")
	in("next.mmdb", "FR")
	is("where the link leads has changed", "FR", "")
	if _, text := p.admin("GET", "/metrics"); !strings.Contains(text, `sluice_geo_failures_total{database="country"}`) {
		t.Errorf("nothing is counted: %s", text)
	}
	if n := answers.Load(); n < 100 {
		t.Errorf("only %d requests came meanwhile", n)
	}
}
