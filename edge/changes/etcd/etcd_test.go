//go:build system

package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"sluice/edge/changes/etcd/etcdtest"
)

// A view is what a Store that is followed has told.
type view struct {
	t      *testing.T
	store  *Store
	mu     sync.Mutex
	values map[string]string
	whole  int // times that all was told
	turns  []error
	end    func()
}

// unasked is one that hears by its watch alone.
const unasked = "edges/unasked"

// follow follows a Store until the test ends, or end is called.
func follow(t *testing.T, c Config, self string) *view {
	t.Helper()
	s, err := New(c, "rules/", self)
	if err != nil {
		t.Fatal(err)
	}
	v := &view{t: t, store: s, values: make(map[string]string)}
	s.Turned = func(why error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.turns = append(v.turns, why)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if self == unasked {
		s.every = time.Hour
	}
	var done sync.WaitGroup
	done.Go(func() { s.Follow(ctx, v.take) })
	v.end = func() {
		cancel()
		done.Wait()
	}
	t.Cleanup(v.end)
	return v
}

func (v *view) take(values []Value, all bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if all {
		clear(v.values)
		v.whole++
	}
	for _, value := range values {
		if value.Text == nil {
			delete(v.values, value.Name)
		} else {
			v.values[value.Name] = string(value.Text)
		}
	}
}

// until waits for what is soon so.
func (v *view) until(what string, ok func() bool) {
	v.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		v.mu.Lock()
		good := ok()
		v.mu.Unlock()
		if good {
			return
		}
		if time.Now().After(end) {
			v.t.Fatalf("never %s: %v, %v, %v", what, v.values, v.turns, v.store.Status())
		}
	}
}

func (v *view) has(want map[string]string) {
	v.t.Helper()
	v.until(fmt.Sprint("as ", want), func() bool { return maps.Equal(v.values, want) })
}

// says waits until the edges say so of themselves.
func (v *view) says(want ...string) {
	v.t.Helper()
	v.until(fmt.Sprint("saying ", want), func() bool {
		list, err := v.store.List(v.t.Context(), "edges/")
		return err == nil && slices.EqualFunc(list, want, func(got Value, want string) bool { return got.Name+"="+string(got.Text) == want })
	})
}

func (v *view) put(name, text string, revision int64) Value {
	v.t.Helper()
	value, done, err := v.store.Put(v.t.Context(), name, []byte(text), revision)
	if err != nil || !done {
		v.t.Fatalf("%s: %+v, %v, %v", name, value, done, err)
	}
	return value
}

func client(t *testing.T, n *etcdtest.Node) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{n.Endpoint}, Logger: zap.NewNop(), DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Two followers have what either writes; who writes over what he has not seen is told so; and what an edge says of itself goes with it.
func TestFollow(t *testing.T) {
	n := etcdtest.Start(t)
	c := Config{Endpoints: []string{n.Endpoint}, Prefix: "/p/"}
	if _, err := client(t, n).Put(t.Context(), "/other/a", "not ours"); err != nil {
		t.Fatal(err)
	}
	a, b := follow(t, c, "edges/a"), follow(t, c, unasked)
	for _, v := range []*view{a, b} {
		v.until("up", func() bool { return v.store.Status().Up && v.whole == 1 })
	}
	first := a.put("rules/x", "1", 0)
	a.store.Publish([]byte("a is here"))
	for _, v := range []*view{a, b} {
		v.has(map[string]string{"rules/x": "1"})
		v.says("edges/a=a is here")
	}
	if now, done, err := b.store.Put(t.Context(), "rules/x", []byte("2"), 0); done || err != nil || string(now.Text) != "1" || now.Revision != first.Revision {
		t.Errorf("%+v %v %v: it was written over what its writer had not seen", now, done, err)
	}
	second := b.put("rules/x", "2", first.Revision)
	if now, done, err := a.store.Put(t.Context(), "rules/y", []byte("2"), second.Revision); done || err != nil || now.Text != nil || now.Revision != 0 {
		t.Errorf("%+v %v %v: it was written over what is gone", now, done, err)
	}
	if _, err := client(t, n).Delete(t.Context(), "/p/rules/x"); err != nil {
		t.Fatal(err)
	}
	a.end()
	if held, err := client(t, n).Leases(t.Context()); err != nil || len(held.Leases) != 1 {
		t.Errorf("%v, %v: what has ended is still said to be there", held, err)
	}
	b.has(map[string]string{})
	b.says()
	if _, _, err := a.store.Put(t.Context(), "rules/x", nil, 0); !errors.Is(err, ErrAway) {
		t.Errorf("put by one that follows no more: %v", err)
	}
	values, err := a.store.Read(t.Context())
	if err != nil || len(values) != 0 {
		t.Errorf("%v %v", values, err)
	}
}

// etcd goes, and comes back with what it had; it hangs; it comes back when nobody can tell any more what was between.
func TestEtcdAway(t *testing.T) {
	n := etcdtest.Start(t)
	v := follow(t, Config{Endpoints: []string{n.Endpoint}, Prefix: "/p/"}, "edges/a")
	v.store.Publish([]byte("me"))
	v.until("up", func() bool { return v.whole == 1 })
	v.put("rules/x", "1", 0)
	away := func(n int) {
		t.Helper()
		v.until("told that etcd is away", func() bool { return len(v.turns) == n && v.turns[n-1] != nil })
		if s := v.store.Status(); s.Up || s.Why == nil {
			t.Errorf("%+v", s)
		}
		if _, _, err := v.store.Put(t.Context(), "rules/x", []byte("2"), 1); !errors.Is(err, ErrAway) {
			t.Errorf("put with etcd away: %v", err)
		}
	}
	back := func(n int) {
		t.Helper()
		v.until("told that etcd is back", func() bool { return len(v.turns) == n && v.turns[n-1] == nil })
	}
	n.Kill()
	away(2)
	n.Run()
	back(3)
	v.has(map[string]string{"rules/x": "1"})
	v.says("edges/a=me")

	n.Signal(syscall.SIGSTOP)
	away(4)
	begin := time.Now()
	if _, err := v.store.Read(t.Context()); err == nil || time.Since(begin) > 20*time.Second {
		t.Errorf("read of one that hangs: %v after %v", err, time.Since(begin))
	}
	n.Signal(syscall.SIGCONT)
	back(5)

	// While this one does not look, so much is compacted that its watch cannot go on.
	n.Kill()
	away(6)
	n.Run()
	other := client(t, n)
	var last int64
	for i := range 10 {
		answer, err := other.Put(t.Context(), "/p/rules/x", fmt.Sprint("later ", i))
		if err != nil {
			t.Fatal(err)
		}
		last = answer.Header.Revision
	}
	if _, err := other.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	v.has(map[string]string{"rules/x": "later 9"})
	v.says("edges/a=me")
}

// The watch is asked for a revision that is compacted away: the next session reads all again.
func TestCompactedWatch(t *testing.T) {
	n := etcdtest.Start(t)
	other := client(t, n)
	v := &view{t: t, values: make(map[string]string)}
	s, err := New(Config{Endpoints: []string{n.Endpoint}, Prefix: "/p/"}, "rules/", "edges/a")
	if err != nil {
		t.Fatal(err)
	}
	v.store = s
	compact := func() {
		var last int64
		for range 5 {
			answer, err := other.Put(t.Context(), "/p/rules/x", "new")
			if err != nil {
				t.Error(err)
				return
			}
			last = answer.Header.Revision
		}
		if _, err := other.Compact(t.Context(), last); err != nil {
			t.Error(err)
		}
	}
	var reported []error
	s.Turned = func(why error) { reported = append(reported, why) }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.Follow(ctx, func(values []Value, all bool) { // all is taken before the watch begins: so between the two everything goes
		v.take(values, all)
		if all && v.whole == 1 {
			compact()
		}
		if v.whole == 2 && v.values["rules/x"] == "new" {
			cancel()
		}
	})
	if len(reported) != 3 || reported[1] == nil || !strings.Contains(reported[1].Error(), "compacted") {
		t.Errorf("%v", reported)
	}
}

// Names and passwords: without the right ones nothing comes, and with those of a file that is replaced all does.
func TestPassword(t *testing.T) {
	n := etcdtest.Start(t)
	c := client(t, n)
	for _, err := range []error{
		func() error { _, err := c.UserAdd(t.Context(), "root", "r"); return err }(),
		func() error { _, err := c.UserGrantRole(t.Context(), "root", "root"); return err }(),
		func() error { _, err := c.RoleAdd(t.Context(), "sluice"); return err }(),
		func() error {
			_, err := c.RoleGrantPermission(t.Context(), "sluice", "/p/", "/p0", clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		}(),
		func() error { _, err := c.UserAdd(t.Context(), "edge", "secret"); return err }(),
		func() error { _, err := c.UserGrantRole(t.Context(), "edge", "sluice"); return err }(),
		func() error { _, err := c.AuthEnable(t.Context()); return err }(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong\n")
	v := follow(t, Config{Endpoints: []string{n.Endpoint}, Prefix: "/p/", Username: "edge", PasswordFile: file}, "edges/a")
	v.store.Publish([]byte("me"))
	v.until("refused", func() bool {
		return len(v.turns) == 1 && strings.Contains(v.turns[0].Error(), "invalid user ID or password")
	})
	write("secret\n")
	v.until("let in", func() bool { return len(v.turns) == 2 && v.turns[1] == nil })
	v.put("rules/x", "1", 0)
	v.has(map[string]string{"rules/x": "1"})
	v.says("edges/a=me")

	outside := follow(t, Config{Endpoints: []string{n.Endpoint}, Prefix: "/q/", Username: "edge", PasswordFile: file}, "edges/a")
	outside.until("refused", func() bool {
		return len(outside.turns) == 1 && strings.Contains(outside.turns[0].Error(), "permission denied")
	})
}
