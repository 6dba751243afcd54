package acme

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const (
	// answerTime is how long etcd may take to answer.
	answerTime = 5 * time.Second
	// lockTime is how long a lock outlives an edge that has gone.
	lockTime = 30 * time.Second
	// unlockTime is how long giving up a lock may take, for which the end of an edge waits. A lock
	// that is not given up ends by itself.
	unlockTime = time.Second
)

// Etcd is a Storage that edges share, of all their PoPs: a proof may be asked for at any of them.
// Below a prefix, each value has the key of its name, and a lock is a key under a lease.
type Etcd struct {
	connect func(context.Context) (*clientv3.Client, error)
	prefix  string

	mu    sync.Mutex
	is    *clientv3.Client                // nil: not yet
	locks map[string]*concurrency.Session // by which this edge has a lock
}

// NewEtcd is the storage below a prefix, which ends in a slash. It connects when it is used first,
// and tries again until it can: an edge starts without etcd.
func NewEtcd(connect func(context.Context) (*clientv3.Client, error), prefix string) *Etcd {
	return &Etcd{connect: connect, prefix: prefix, locks: make(map[string]*concurrency.Session)}
}

// client is the connection, which lives as long as the process. Connecting takes its time where
// etcd is away, so who has waited too long for others to find that out does not try as well.
func (e *Etcd) client(ctx context.Context) (*clientv3.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, wrapped("connect", err)
	}
	if e.is == nil {
		c, err := e.connect(context.Background())
		if err != nil {
			return nil, err
		}
		e.is = c
	}
	return e.is, nil
}

func (e *Etcd) String() string { return "etcd " + e.prefix }

func (e *Etcd) Store(ctx context.Context, key string, value []byte) error {
	client, err := e.client(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err = client.Put(ctx, e.prefix+key, string(value))
	return wrapped("put", err)
}

func (e *Etcd) Load(ctx context.Context, key string) ([]byte, error) {
	client, err := e.client(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	found, err := client.Get(ctx, e.prefix+key)
	if err != nil {
		return nil, wrapped("get", err)
	}
	if len(found.Kvs) == 0 {
		return nil, fs.ErrNotExist
	}
	return found.Kvs[0].Value, nil
}

// Delete removes a value, and all below it.
func (e *Etcd) Delete(ctx context.Context, key string) error {
	client, err := e.client(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err = client.Txn(ctx).Then(clientv3.OpDelete(e.prefix+key),
		clientv3.OpDelete(e.prefix+key+"/", clientv3.WithPrefix())).Commit()
	return wrapped("delete", err)
}

func (e *Etcd) Exists(ctx context.Context, key string) bool {
	_, err := e.Stat(ctx, key)
	return err == nil
}

func (e *Etcd) List(ctx context.Context, path string, recursive bool) (list []string, _ error) {
	client, err := e.client(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	below := e.prefix
	if path != "" {
		below += strings.TrimSuffix(path, "/") + "/"
	}
	found, err := client.Get(ctx, below, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, wrapped("list", err)
	}
	seen := make(map[string]bool)
	for _, kv := range found.Kvs {
		name := strings.TrimPrefix(string(kv.Key), e.prefix)
		if !recursive {
			first, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), below), "/")
			name = strings.TrimPrefix(below+first, e.prefix)
		}
		if !seen[name] {
			seen[name] = true
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		return nil, fs.ErrNotExist
	}
	return list, nil
}

// Stat tells values from folders. When one was written it does not know: certmagic asks that of no
// value.
func (e *Etcd) Stat(ctx context.Context, key string) (info certmagic.KeyInfo, err error) {
	value, err := e.Load(ctx, key)
	if err == nil {
		return certmagic.KeyInfo{Key: key, Size: int64(len(value)), IsTerminal: true}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	if _, err = e.List(ctx, key, false); err != nil {
		return info, err
	}
	return certmagic.KeyInfo{Key: key}, nil
}

// Lock waits until no other has the lock of that name.
func (e *Etcd) Lock(ctx context.Context, name string) error {
	client, err := e.client(ctx)
	if err != nil {
		return err
	}
	granting, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	lease, err := client.Grant(granting, int64(lockTime/time.Second))
	if err != nil {
		return wrapped("lock", err)
	}
	session, err := concurrency.NewSession(client, concurrency.WithLease(lease.ID))
	if err != nil {
		return wrapped("lock", err)
	}
	m := concurrency.NewMutex(session, e.prefix+"locks/"+name)
	if err := m.Lock(ctx); err != nil {
		session.Orphan()
		return wrapped("lock", err)
	}
	e.mu.Lock()
	e.locks[name] = session
	e.mu.Unlock()
	return nil
}

// Unlock gives it up.
func (e *Etcd) Unlock(ctx context.Context, name string) error {
	e.mu.Lock()
	session, ok := e.locks[name]
	delete(e.locks, name)
	e.mu.Unlock()
	if !ok {
		return fmt.Errorf("acme: etcd: unlock %s: this edge does not have the lock", name)
	}
	ctx, cancel := context.WithTimeout(ctx, unlockTime)
	defer cancel()
	session.Orphan() // nothing keeps the lease any more
	_, err := session.Client().Revoke(ctx, session.Lease())
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil // it has ended by itself, and the lock with it
	}
	return wrapped("unlock", err)
}

func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("acme: etcd: %s: %w", what, err)
}

var _ certmagic.Storage = (*Etcd)(nil)
