package plans

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/counter"
)

// A shelf is a store in memory.
type shelf struct {
	mu    sync.Mutex
	said  []Change
	away  bool
	looks int
	takes time.Duration // to begin
	whole time.Duration // to hand over all that there is
}

func (s *shelf) Changes(ctx context.Context, since Mark, begin func(bool), each func(Change)) (Mark, error) {
	s.mu.Lock()
	takes, whole := s.takes, s.whole
	s.mu.Unlock()
	if err := pass(ctx, takes); err != nil {
		return since, err
	}
	if since.Store == "" && whole > 0 {
		begin(true)
		if err := pass(ctx, whole); err != nil {
			return since, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if s.away {
		return since, errors.New("away")
	}
	begin(since.Store == "")
	for _, c := range s.said[since.Change:] {
		each(c)
	}
	return Mark{"shelf", int64(len(s.said))}, nil
}

func (s *shelf) Put(_ context.Context, keys []string, q Quota, _ Author, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errors.New("away")
	}
	s.said = append(s.said, Change{Key: keys[0], Quota: q})
	return nil
}

func (s *shelf) Delete(context.Context, []string, *string, Author, time.Time) (int, error) {
	return 0, nil
}
func (s *shelf) History(context.Context, []string) ([]Entry, error) { return nil, nil }
func (s *shelf) List(context.Context, string, string, int, time.Time) ([]string, error) {
	return nil, nil
}
func (s *shelf) Close() error { return nil }

// pass returns after some time, or when ctx is done.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// is has the store answer or not, and say more.
func (s *shelf) is(away bool, said ...Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.said = away, append(s.said, said...)
}

func (s *shelf) looked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

func source(key string) (counter.Source, bool) {
	var n int
	_, err := fmt.Sscanf(key, "k%d", &n)
	return client(n), err == nil
}

// keeper makes one on a shelf, and notes what it publishes and warns of.
func keeper(s *shelf, file string) (k *Loader, latest func() *Snapshot, warned *[]string) {
	var now atomic.Pointer[Snapshot]
	warned = new([]string)
	k = &Loader{Store: s, Refresh: 5 * time.Second, Copy: file, Check: "check", Source: source,
		Publish: func(s *Snapshot) { now.Store(s) },
		Warn:    func(message string, _ ...any) { *warned = append(*warned, message) }}
	return k, now.Load, warned
}

func run(t *testing.T, k *Loader) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// What is said elsewhere is in force after refresh, what is said here at once, and what begins or ends at a time at that time.
func TestKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(shelf)
		k, latest, warned := keeper(s, "")
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer run(t, k)()
		wants := func(n int, plan string, limit uint32) {
			t.Helper()
			if p, l := latest().Of(client(n)).Under("api"); p != plan || l != limit {
				t.Errorf("%v: %q %d, want %q %d", time.Now(), p, l, plan, limit)
			}
		}
		s.is(false, Change{Key: "k1", Quota: Quota{Plan: "pro"}})
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		wants(1, "pro", 0)
		begins := time.Now().Add(1234 * time.Millisecond)
		if err := k.Put(t.Context(), []string{"k2"}, Quota{Rule: "api", Limit: 9, Start: begins.UnixMilli(), End: begins.UnixMilli() + 1000}, Author{}); err != nil {
			t.Fatal(err)
		}
		wants(2, "", 0)
		time.Sleep(1233 * time.Millisecond)
		synctest.Wait()
		wants(2, "", 0)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		wants(2, "", 9)
		time.Sleep(time.Second)
		synctest.Wait()
		wants(2, "", 0)

		looks := s.looked()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.looked() - looks; n < 11 || n > 13 {
			t.Errorf("%d looks in a minute, want one every 5 seconds", n)
		}

		s.is(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		wants(1, "pro", 0)
		if err := k.Put(t.Context(), []string{"k1"}, Quota{Plan: "free"}, Author{}); !errors.Is(err, ErrAway) {
			t.Errorf("%v, want ErrAway", err)
		}
		if k.Status().Up || len(*warned) != 1 {
			t.Errorf("%+v, warned of %q", k.Status(), *warned)
		}
		s.is(false, Change{Key: "k1", Quota: Quota{Plan: "free"}})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		wants(1, "free", 0)
		if !k.Status().Up || len(*warned) != 2 {
			t.Errorf("%+v, warned of %q", k.Status(), *warned)
		}
	})
}

// While the store is slow, quotas end when they do, and its state can be asked for.
func TestSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := time.Now().Add(7 * time.Second)
		s := &shelf{said: []Change{{Key: "k1", Quota: Quota{Plan: "pro", End: ends.UnixMilli()}}}}
		k, latest, warned := keeper(s, "")
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer run(t, k)()
		s.mu.Lock()
		s.takes = time.Hour
		s.mu.Unlock()
		time.Sleep(time.Until(ends) + time.Millisecond)
		synctest.Wait()
		if plan, _ := latest().Of(client(1)).Under("api"); plan != "" {
			t.Fatalf("plan %q after its end", plan)
		}
		if !k.Status().Up {
			t.Error("it is down before its time is over")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if k.Status().Up || len(*warned) != 1 {
			t.Errorf("%+v, warned of %q", k.Status(), *warned)
		}
	})
}

// A store that was away at the start may take its time to hand over everything, and an edge that has a copy does not wait long for one.
func TestAllIsReadLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{takes: time.Hour, whole: 40 * time.Second, said: []Change{{Key: "k1", Quota: Quota{Plan: "pro"}}}}
		k, latest, _ := keeper(s, filepath.Join(t.TempDir(), "plans"))
		if err := k.write(new(Snapshot), Mark{}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("it starts after %v", d)
		}
		if k.Status().Read.IsZero() {
			t.Error("it has not looked at the store")
		}
		defer run(t, k)()
		s.mu.Lock()
		s.takes = time.Second
		s.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if plan, _ := latest().Of(client(1)).Under("api"); plan != "pro" || !k.Status().Up {
			t.Errorf("plan %q, %+v", plan, k.Status())
		}
	})
}

// A limit that somebody has written into the store, and that cannot be, is none, and others are in force.
func TestOddQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd := Change{Key: "k1", Quota: Quota{Rule: "api", Limit: 2_000_000_000}}
		s := &shelf{said: []Change{odd, {Key: "no key"}, {Key: "k2", Quota: Quota{Rule: "api", Limit: 9}}}}
		k, latest, warned := keeper(s, "")
		wants := func(limit uint32, warnings int) {
			t.Helper()
			if _, l := latest().Of(client(1)).Under("api"); l != limit || len(*warned) != warnings {
				t.Errorf("limit %d, want %d; warned of %q", l, limit, *warned)
			}
			if limits := latest().Limits("api"); slices.Contains(limits, odd.Quota.Limit) || !slices.Contains(limits, 9) {
				t.Errorf("limits %d", limits)
			}
		}
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		wants(0, 1)
		defer run(t, k)()
		s.is(false, Change{Key: "k1", Quota: Quota{Rule: "api", Limit: 5}})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		wants(5, 1)
		s.is(false, odd)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		wants(0, 2)
	})
}

// A copy that cannot be written is warned of until it can be.
func TestCopyThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none", "plans")
	k, _, warned := keeper(&shelf{said: []Change{{Key: "k1", Quota: Quota{Plan: "pro"}}}}, file)
	if err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.save()
	if err := k.Status().Unkept; !errors.Is(err, fs.ErrNotExist) || len(*warned) != 1 {
		t.Errorf("%v, warned of %q", err, *warned)
	}
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	k.save()
	if err := k.Status().Unkept; err != nil {
		t.Error(err)
	}
}

// An edge that starts while the store is away has what its copy says, and without one does not start.
func TestStartFromTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "plans")
		s := &shelf{away: true}
		k, _, _ := keeper(s, file)
		if err := k.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "start the store first") {
			t.Fatalf("%v", err)
		}
		s.away, s.said = false, []Change{{Key: "k1", Quota: Quota{Plan: "pro"}}, {Key: "k2", Quota: Quota{Rule: "api", Limit: 9, Start: 1, End: 4_000_000_000_000}}}
		k, _, _ = keeper(s, file)
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		run(t, k)()

		s.away = true
		k, latest, warned := keeper(s, file)
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if plan, _ := latest().Of(client(1)).Under("api"); plan != "pro" || latest().Clients() != 2 || len(*warned) != 1 {
			t.Errorf("%q of %d clients, warned of %q", plan, latest().Clients(), *warned)
		}
		if _, limit := latest().Of(client(2)).Under("api"); limit != 9 {
			t.Errorf("limit %d, want 9", limit)
		}
		k, _, _ = keeper(s, file)
		k.Check = "another secret"
		if err := k.Load(t.Context()); err == nil {
			t.Error("it starts from a copy of another secret")
		}

		// A copy that is damaged is none, wherever.
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(whole), "\n")
		for _, text := range []string{lines[0] + lines[1] + "}\n" + lines[2], lines[0] + lines[1] + lines[2][:9], "", lines[0] + lines[1] + "\x00\x00"} {
			broken := filepath.Join(t.TempDir(), "plans")
			if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			k, latest, _ := keeper(s, broken)
			if err := k.Load(t.Context()); err == nil {
				t.Errorf("it starts from %q with %d clients", text, latest().Clients())
			}
		}

		// From the copy on, only what changed since is read.
		s.away = false
		s.said = append(s.said, Change{Key: "k1", Quota: Quota{}, Removed: true})
		k, latest, _ = keeper(s, file)
		if err := k.Load(t.Context()); err != nil || latest().Clients() != 1 {
			t.Errorf("%d clients, %v; want 1", latest().Clients(), err)
		}
	})
}
