package acme

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"sluice/edge"
)

// counting is a Storage that counts what it is asked, and fails if it is to.
type counting struct {
	certmagic.Storage
	lists, loads atomic.Int64
	fails        atomic.Bool
}

var errAway = errors.New("away")

func (s *counting) List(ctx context.Context, folder string, recursive bool) ([]string, error) {
	s.lists.Add(1)
	if s.fails.Load() {
		return nil, errAway
	}
	return s.Storage.List(ctx, folder, recursive)
}

func (s *counting) Load(ctx context.Context, key string) ([]byte, error) {
	s.loads.Add(1)
	return s.Storage.Load(ctx, key)
}

// A flood of questions for proofs, of whichever hosts, costs the storage a bounded number of looks, and the question of a server of ACME is answered
// all the same.
func TestFloodOfQuestions(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, folder := t.Context(), "acme/ca/challenge_tokens"
		key := func(host string) string { return path.Join(folder, host+".json") }
		shared := &counting{Storage: Folder(dir)}
		s := &proofs{Storage: shared, looked: make(map[string]look)}
		flood := func() {
			for i := range 1000 {
				if _, err := s.Load(ctx, key(fmt.Sprint("host", i))); !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("a proof that is not under way: %v", err)
				}
			}
		}
		flood()
		must(t, shared.Store(ctx, key("a.example"), []byte("proof"))) // by another edge
		time.Sleep(lookAfter)
		var asked sync.WaitGroup
		for range 10 {
			asked.Go(flood)
			asked.Go(func() {
				if text, err := s.Load(ctx, key("a.example")); err != nil || string(text) != "proof" {
					t.Errorf("the server's question: %q, %v", text, err)
				}
			})
		}
		asked.Wait()
		if lists, loads := shared.lists.Load(), shared.loads.Load(); lists != 2 || loads != 1 {
			t.Errorf("the storage was asked for %d lists and %d proofs, want 2 and 1", lists, loads)
		}
		must(t, shared.Delete(ctx, key("a.example")))
		time.Sleep(lookAfter)
		flood()
		if _, err := s.Load(ctx, key("a.example")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a proof that is over: %v", err)
		}

		shared.fails.Store(true)
		time.Sleep(lookAfter)
		before := shared.lists.Load()
		for range 10 {
			if _, err := s.Load(ctx, key("a.example")); !errors.Is(err, errAway) {
				t.Errorf("of a storage that is away: %v", err)
			}
		}
		if n := shared.lists.Load() - before; n != 1 {
			t.Errorf("a storage that is away was asked %d times", n)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := s.Load(gone, key("a.example")); !errors.Is(err, context.Canceled) {
			t.Errorf("for a client that has gone: %v", err)
		}
	})
}

// An edge that is flooded with such questions gives a proof that another edge has begun.
func TestAnswerDuringFlood(t *testing.T) {
	storage := Folder(t.TempDir())
	m, err := New(Options{Config: Config{Hosts: []string{"a.example"}, Directory: "https://ca.example/dir", Challenges: []string{HTTP}}, Storage: storage, Ports: edge.Ports{HTTP: 80}})
	must(t, err)
	must(t, storage.Store(t.Context(), "acme/ca.example-dir/challenge_tokens/a.example.json",
		[]byte(`{"type": "http-01", "token": "t", "keyAuthorization": "t.proof", "identifier": {"type": "dns", "value": "a.example"}}`)))
	for range 100 {
		if text := m.Answer(t.Context(), "a.example", "/.well-known/acme-challenge/other"); text != nil {
			t.Fatalf("%q", text)
		}
	}
	if text := m.Answer(t.Context(), "a.example", "/.well-known/acme-challenge/t"); string(text) != "t.proof" {
		t.Errorf("the server gets %q", text)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
