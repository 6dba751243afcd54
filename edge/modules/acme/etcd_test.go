//go:build system

package acme

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"sluice/edge/changes/etcd"
	"sluice/edge/changes/etcd/etcdtest"
)

// storageAt is an edge's storage in a real etcd.
func storageAt(t *testing.T, node *etcdtest.Node) *Etcd {
	t.Helper()
	e := NewEtcd(func(ctx context.Context) (*clientv3.Client, error) {
		return etcd.Connect(ctx, etcd.Config{Endpoints: []string{node.Endpoint}})
	}, "/sluice/acme/")
	t.Cleanup(func() {
		if e.is != nil {
			e.is.Close()
		}
	})
	return e
}

// Values are what certmagic's contract of a storage says.
func TestEtcdKeepsValues(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	one, other := storageAt(t, etcdtest.Start(t)), (*Etcd)(nil)
	other = NewEtcd(one.connect, one.prefix)
	defer func() { other.is.Close() }()

	absent := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s what is not there: %v, want fs.ErrNotExist", what, err)
		}
	}
	_, err := one.Load(ctx, "a")
	absent("Load", err)
	_, err = one.Stat(ctx, "a")
	absent("Stat", err)
	_, err = one.List(ctx, "a", true)
	absent("List", err)
	must(t, one.Delete(ctx, "a"))

	for key, value := range map[string]string{"certificates/ca/a.example/a.key": "key", "certificates/ca/a.example/a.crt": "\x00first", "certificates/ca/a.example.org/b.crt": "b", "other": ""} {
		must(t, one.Store(ctx, key, []byte(value)))
	}
	must(t, one.Store(ctx, "certificates/ca/a.example/a.crt", []byte("\x00second")))
	if text, err := other.Load(ctx, "certificates/ca/a.example/a.crt"); err != nil || string(text) != "\x00second" {
		t.Errorf("another edge loads %q, %v", text, err)
	}
	if text, err := other.Load(ctx, "other"); err != nil || len(text) != 0 || !other.Exists(ctx, "other") {
		t.Errorf("an empty value: %q, %v", text, err)
	}
	_, err = other.Load(ctx, "certificates/ca/a.example")
	absent("Load a folder,", err)
	for key, want := range map[string]int64{"certificates/ca/a.example/a.key": 3, "certificates/ca/a.example": -1, "certificates": -1} {
		info, err := other.Stat(ctx, key)
		if folder := want < 0; err != nil || info.Key != key || info.IsTerminal == folder || !folder && info.Size != want || !other.Exists(ctx, key) {
			t.Errorf("Stat %s: %+v, %v", key, info, err)
		}
	}
	listed := func(path string, recursive bool, want ...string) {
		t.Helper()
		list, err := other.List(ctx, path, recursive)
		slices.Sort(list)
		if err != nil || !slices.Equal(list, want) {
			t.Errorf("List %q, recursive %v: %q, %v, want %q", path, recursive, list, err, want)
		}
	}
	listed("certificates/ca", false, "certificates/ca/a.example", "certificates/ca/a.example.org")
	listed("certificates/ca/", false, "certificates/ca/a.example", "certificates/ca/a.example.org")
	listed("certificates/ca/a.example", true, "certificates/ca/a.example/a.crt", "certificates/ca/a.example/a.key")
	listed("", false, "certificates", "other")

	must(t, other.Delete(ctx, "certificates/ca/a.example"))
	listed("certificates", true, "certificates/ca/a.example.org/b.crt")
	must(t, other.Delete(ctx, "other"))
	_, err = one.Load(ctx, "other")
	absent("Load", err)
}

// A lock is one edge's at a time, and that of an edge which has gone ends by itself.
func TestEtcdLock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	node := etcdtest.Start(t)
	one, other := storageAt(t, node), storageAt(t, node)
	if err := one.Unlock(ctx, "a"); err == nil {
		t.Error("an edge gave up a lock that it does not have")
	}
	must(t, one.Lock(ctx, "a"))
	must(t, other.Lock(ctx, "a.example")) // another lock
	must(t, other.Unlock(ctx, "a.example"))

	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := other.Lock(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two edges have one lock: %v", err)
	}
	got := make(chan error, 1)
	go func() { got <- other.Lock(ctx, "a") }()
	must(t, one.Store(ctx, "done", nil))
	select {
	case err := <-got:
		t.Fatalf("two edges have one lock: %v", err)
	default:
	}
	must(t, one.Unlock(ctx, "a"))
	must(t, <-got)
	if !one.Exists(ctx, "done") {
		t.Error("the lock came before what was done under it")
	}

	// The other edge goes without a word: its lease is kept no more.
	mine, err := other.client(ctx)
	must(t, err)
	lease := other.locks["a"].Lease()
	left, err := mine.TimeToLive(ctx, lease)
	must(t, err)
	if left.TTL <= 0 || left.GrantedTTL > int64(lockTime/time.Second) {
		t.Errorf("a lock outlives its edge by %d s, want at most %v", left.GrantedTTL, lockTime)
	}
	first, err := one.client(ctx)
	must(t, err)
	_, err = first.Revoke(ctx, lease) // as when that time has passed
	must(t, err)
	must(t, one.Lock(ctx, "a"))
	// It was only stopped, and comes back: it gives up nothing but its own.
	must(t, other.Unlock(ctx, "a"))
	short, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := other.Lock(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an edge that lost its lock has given up another's: %v", err)
	}
	must(t, one.Unlock(ctx, "a"))
}

// Of an etcd that does not answer an edge learns so, in time, and it goes on once etcd answers.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	node := etcdtest.Start(t)
	e := storageAt(t, node)
	must(t, e.Store(t.Context(), "a", []byte("1")))
	node.Signal(syscall.SIGSTOP)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := e.Load(short, "a"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load from an etcd that does not answer: %v: a certificate that cannot be read would be ordered again", err)
	}
	if _, err := e.Stat(short, "a"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat: %v", err)
	}
	if err := e.Lock(short, "a"); err == nil {
		t.Error("Lock from an etcd that does not answer")
	}
	node.Signal(syscall.SIGCONT)
	if text, err := e.Load(t.Context(), "a"); err != nil || string(text) != "1" {
		t.Errorf("Load once it answers: %q, %v", text, err)
	}
}
