//go:build !minimal

package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/cmd/sluice/internal/tier"
	"sluice/counter"
	"sluice/edge"
	"sluice/edge/changes"
	"sluice/edge/events"
	"sluice/edge/modules/lists"
	"sluice/mitigation"
	"sluice/pop/operatorlog"
)

// A check reads the files of named lists, and asks no URL.
func TestCheckReadsLists(t *testing.T) {
	list := write(t, "192.0.2.0/24\n198.51.100.7\n")
	for lists, want := range map[string]string{
		"[{name: a, file: " + list + "}]":                                          "list a has 2 entries\n",
		"[{name: a, url: 'http://127.0.0.1:1/a?key=k'}]":                           "list a comes from a URL, which check does not ask: a start needs its answer\n",
		"[{name: a, file: " + list + ", max_entries: 1}]":                          "lists: a: " + list + ":2: more than 1 entries: raise max_entries of the list, or shorten it\n",
		"[{name: a, file: " + write(t, "192.0.2.1\n# none\n192.0.2.1/24\n") + "}]": ":3: 192.0.2.1/24 has bits beyond its prefix: write 192.0.2.0/24\n",
		"[{name: a, file: /nowhere/a}]":                                            "lists: a: open /nowhere/a: no such file or directory\n",
		"[{name: b, file: " + list + "}]":                                          `:5:8: deny: lists: there is no list "a": want b` + "\n",
		"[{name: b c, file: " + list + "}]":                                        `:5:8: deny: lists: there is no list "a": name it under lists, with its file or url` + "\n",
	} {
		file := write(t, "listen: ':0'\nadmin: '127.0.0.1:0'\norigins: [{servers: ['http://127.0.0.1:1']}]\nlists: "+lists+"\ndeny: ['list:a']\nrules: [{name: r, limit: 1}]\n")
		var stdout, stderr bytes.Buffer
		code := run([]string{"check", file}, &stdout, &stderr)
		if said := stdout.String() + stderr.String(); !strings.HasSuffix(said, want) || (code == 0) != strings.HasPrefix(want, "list ") {
			t.Errorf("%s: exit %d, %s, want %s", lists, code, said, want)
		}
	}
}

// A reload that waits for the URL of a list holds up neither what operators change meanwhile, here or at other edges, nor
// the end of the edge, which is no failed reload.
func TestReloadWaitsForAList(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	var waiting atomic.Bool
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		waiting.Store(true)
		asked <- struct{}{}
		<-r.Context().Done()
		waiting.Store(false)
	}))
	defer hangs.Close()
	const text = "origins: [{servers: ['http://127.0.0.1:1']}]\nrules: [{name: r, limit: 5}]\n"
	f := newFlags()
	f.config = write(t, text)
	c, err := f.load()
	must(t, err)
	use := edge.Modules{lists.Module(false)}
	server, err := edge.New(edge.Options{Use: use, Config: c, Table: counter.New(counter.Options{Counters: 1024}), Blocks: mitigation.New(64, nil), Events: events.New(10, nil)})
	must(t, err)

	var mu sync.Mutex
	var list operatorlog.List
	version, moved := uint64(1), make(chan struct{})
	add := func(edge uint64, w operatorlog.Order) (operatorlog.Mark, error) {
		mu.Lock()
		defer mu.Unlock()
		version++
		mark, err := list.Add(w, edge, 0, time.Now())
		close(moved)
		moved = make(chan struct{})
		return mark, err
	}
	inForce := make(chan uint64, 10)
	r := &reloader{flags: f, server: server, log: slog.New(slog.DiscardHandler), events: server.Events(), name: "here", base: c, modules: use, last: f.files.Load().Text(), store: &tier.RuleStore{
		Origin: changes.PoP,
		List: func() ([]operatorlog.Entry, uint64, <-chan struct{}) {
			mu.Lock()
			defer mu.Unlock()
			return list.Changes(), version, moved
		},
		Add:     func(w operatorlog.Order, _ uint64, _ time.Time) (operatorlog.Mark, error) { return add(1, w) },
		InForce: func(version uint64, _ []operatorlog.Mark) { inForce <- version },
	}}
	must(t, r.catchUp())
	<-inForce
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var running sync.WaitGroup
	running.Go(func() { r.watch(ctx) })
	running.Go(func() { r.follow(ctx) })
	must(t, os.WriteFile(f.config, []byte(text+"lists: [{name: a, url: '"+hangs.URL+"'}]\n"), 0o600))
	<-asked
	_, err = add(2, operatorlog.Order{Rule: "r", Kind: operatorlog.Change, Start: time.Now(), Text: `{"does":"set","rule":{"name":"r","limit":6},"edge":"there"}`})
	must(t, err)
	if v := <-inForce; v != 2 || !waiting.Load() || server.Config().Rules[0].Limit != 6 {
		t.Errorf("version %d, limit %d, the list is waited for: %v; want what another edge says in force meanwhile", v, server.Config().Rules[0].Limit, waiting.Load())
	}
	if _, err := r.edit(changes.Edit{Action: changes.Patch, Name: "r", Body: []byte(`{"limit":7}`)}); err != nil || !waiting.Load() || server.Config().Rules[0].Limit != 7 {
		t.Errorf("%v, limit %d, the list is waited for: %v; want the change in force meanwhile", err, server.Config().Rules[0].Limit, waiting.Load())
	}
	end()
	running.Wait()
	if failed := r.failed.Load(); failed != nil {
		t.Errorf("a failed reload: %s", failed.Error)
	}
}
