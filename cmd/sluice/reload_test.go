package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/cmd/sluice/internal/tier"
	"sluice/counter"
	"sluice/edge"
	"sluice/edge/changes"
	"sluice/edge/events"
	"sluice/edge/lists"
	"sluice/mitigation"
	"sluice/pop/operatorlog"
)

// A file that changes is read once it has been left alone for a look, or at the latest at the fourth; and not if it says again what was read.
func TestContentWatch(t *testing.T) {
	var w contentWatch
	read := "a"
	for i, step := range []struct {
		now  string
		want bool
	}{
		{"a", false}, {"ab", false}, {"ab", true}, // left alone
		{"ab", false}, {"abc", false}, {"abcd", false}, {"abcde", false}, {"abcdef", true}, // it goes on for too long
		{"abcdef", false}, {"", false}, {"abcdef", false}, {"", false}, {"", true},
	} {
		got := w.look(step.now, read)
		if got != step.want {
			t.Errorf("step %d, %q: %v", i, step.now, got)
		}
		if got {
			read = step.now
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
	book := new(lists.Store)
	server, err := edge.New(edge.Options{Lists: book, Config: c, Table: counter.New(counter.Options{Counters: 1024}), Blocks: mitigation.New(64, nil), Events: events.New(10, nil)})
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
	r := &reloader{flags: f, server: server, log: slog.New(slog.DiscardHandler), events: server.Events(), name: "here", base: c, lists: book, last: f.files.Load().Text(), store: &tier.RuleStore{
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
