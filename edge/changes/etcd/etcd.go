// Package etcd keeps values in etcd, under a prefix, and follows what becomes of some. It moves
// bytes; what they mean is others' to say.
//
// A Store lives in sessions. A session is a separate client: it reads what it follows as of one
// revision, watches from there, and asks once a second whether etcd still answers, and reads what
// the watch may have missed. At the first failure it ends, whatever that was (no answer, the watch
// was compacted away, the password is another), and the next one begins from the beginning, with
// files of secrets read again. So there is one way to come back, and it is the way in. A session
// has a lease, under which the edge publishes its state: it is gone soon after the edge is. No edge
// watches the others' states: with each change all of them publish a new one, and of a thousand
// edges each would get a thousand.
//
// A value is written only over the one that its writer has seen: of two writers at once, one learns
// of the other.
package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	beatEvery = time.Second
	// answerTime is how long etcd may take for an answer: so long may an operator wait, and no
	// start or end of an edge waits longer.
	answerTime = 800 * time.Millisecond
	// Another session; more by chance, so that edges do not come back in step
	againAfter = 250 * time.Millisecond
	leaseTime  = 5 * time.Second
	// For the last word, when a session ends because the edge does
	lastTime = 300 * time.Millisecond
)

// ErrAway says that etcd does not answer.
var ErrAway = errors.New("etcd does not answer")

// Value is what is under a key, or that there is nothing.
type Value struct {
	Name     string // the key without the prefix
	Text     []byte // nil: there is none
	Revision int64  // at which it was written; 0: there is none
}

// A Store is the values under a prefix. Its methods may be called from anywhere.
type Store struct {
	// Turned, if not nil, is called when etcd stops answering, with the reason, and with nil when
	// it answers again. It is called by Follow.
	Turned func(why error)

	config   Config
	followed string // the name that what is followed begins with
	self     string // the key of this edge's state
	every    time.Duration

	mu        sync.Mutex
	client    *clientv3.Client // of a session that is under way, or nil
	status    Status
	published []byte
	changed   chan struct{} // there is something to say
}

// Status is how etcd was lately.
type Status struct {
	Up    bool
	Since time.Time // it is so, or the Store is new
	Why   error     // it is not up; nil: none has asked yet
}

// New returns a Store that follows the names that begin with followed, and publishes this edge's
// state under a name. The error is one of the files.
func New(c Config, followed, self string) (*Store, error) {
	s := &Store{config: c, followed: followed, self: string(c.Prefix) + self, every: beatEvery,
		changed: make(chan struct{}, 1), status: Status{Since: time.Now()}}
	_, err := s.options(context.Background())
	return s, err
}

// options are those of a session's client.
func (s *Store) options(ctx context.Context) (clientv3.Config, error) {
	c := clientv3.Config{Endpoints: s.config.Endpoints, Username: s.config.Username,
		DialTimeout: answerTime, Context: ctx, Logger: zap.NewNop()}
	if file := s.config.PasswordFile; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return c,
				fmt.Errorf("etcd.password_file: %w: give a readable file that holds the password",
					err)
		}
		if c.Password = strings.TrimSpace(string(text)); c.Password == "" {
			return c, fmt.Errorf("etcd.password_file: %s is empty: put the password into it", file)
		}
	}
	if !strings.HasPrefix(s.config.Endpoints[0], "https:") {
		return c, nil
	}
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if file := s.config.CAFile; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return c, fmt.Errorf("etcd.ca_file: %w: give a readable file of certificates in PEM",
				err)
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(text) {
			return c,
				fmt.Errorf("etcd.ca_file: %s has no certificate: give a file of certificates in PEM", file)
		}
	}
	if s.config.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(s.config.CertFile, s.config.KeyFile)
		if err != nil {
			return c,
				fmt.Errorf("etcd.cert_file, key_file: %w: give a certificate and its key in PEM",
					err)
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Status returns whether etcd answers.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Publish replaces this edge's state.
func (s *Store) Publish(text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.published, text) {
		return
	}
	s.published = text
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Read returns the values that are followed, also without a session. It waits no longer than an
// answer may take.
func (s *Store) Read(ctx context.Context) ([]Value, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	c, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	values, _, err := s.get(ctx, c, s.followed)
	return values, err
}

// List returns the values whose names begin so. The error is ErrAway without a session.
func (s *Store) List(ctx context.Context, names string) ([]Value, error) {
	c, err := s.current()
	if err != nil {
		return nil, err
	}
	values, _, err := s.get(ctx, c, names)
	return values, err
}

// current is the client of the session.
func (s *Store) current() (*clientv3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.client != nil:
		return s.client, nil
	case s.status.Why != nil:
		return nil, fmt.Errorf("%w: %w", ErrAway, s.status.Why)
	}
	return nil, ErrAway
}

// Put replaces the value that was written at a revision, or writes the first (0). If there is
// another by now, done is false and now is that one. An error that is not ErrAway leaves open
// whether the value is written.
func (s *Store) Put(ctx context.Context, name string, text []byte,
	revision int64) (now Value, done bool, err error) {
	c, err := s.current()
	if err != nil {
		return now, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	key := string(s.config.Prefix) + name
	answer, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(text))).Else(clientv3.OpGet(key)).Commit()
	switch {
	case err != nil:
		return now, false, fmt.Errorf("etcd: put: %w", err)
	case answer.Succeeded:
		return Value{name, text, answer.Header.Revision}, true, nil
	}
	now.Name = name
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
		now.Text, now.Revision = kv.Value, kv.ModRevision
	}
	return now, false, nil
}

// Follow gives take all values that are followed, then those that change, as they do, and all again
// where it may have missed some, until ctx is done. A value may come more than once. take is called
// by Follow alone, and may Put.
func (s *Store) Follow(ctx context.Context, take func(values []Value, all bool)) {
	for {
		err := s.session(ctx, take)
		if ctx.Err() != nil {
			return
		}
		s.turn(nil, err)
		wait := time.NewTimer(againAfter + rand.N(againAfter))
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
	}
}

// turn notes that etcd answers a client, or why it does not.
func (s *Store) turn(c *clientv3.Client, why error) {
	s.mu.Lock()
	s.client = c
	was := s.status
	if up := c != nil; up != was.Up {
		s.status.Up, s.status.Since = up, time.Now()
	}
	s.status.Why = why
	s.mu.Unlock()
	if s.Turned != nil && (s.status.Up != was.Up || was.Why == nil && why != nil) {
		s.Turned(why)
	}
}

func (s *Store) session(ctx context.Context, take func([]Value, bool)) error {
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	// All that was written up to a revision is known
	values, known, err := s.get(ctx, c, s.followed)
	if err != nil {
		return err
	}
	lease, err := s.lease(ctx, c)
	if err != nil {
		return err
	}
	s.turn(c, nil)
	defer func() {
		s.mu.Lock()
		s.client = nil
		s.mu.Unlock()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
		defer cancel()
		if ctx.Err() != nil { // the edge ends, and withdraws its state
			_, _ = c.Revoke(last, lease) // otherwise the lease expires
		}
	}()
	take(values, true)

	watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop()
	from := known + 1
	watched := make(chan clientv3.WatchResponse)
	watcher.Go(func() { // Watch itself may wait for an answer
		defer close(watched)
		for w := range c.Watch(watching, string(s.config.Prefix)+s.followed,
			clientv3.WithPrefix(), clientv3.WithRev(from)) {
			select {
			case watched <- w:
			case <-watching.Done():
				return
			}
		}
	})
	if err := s.present(ctx, c, lease); err != nil {
		return err
	}
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case w, more := <-watched:
			if !more {
				return errors.New("etcd: the watch has ended")
			}
			if err := w.Err(); err != nil {
				return fmt.Errorf("etcd: watch: %w", err)
			}
			values := make([]Value, 0, len(w.Events))
			for _, e := range w.Events {
				v := Value{Name: s.name(e.Kv.Key)}
				if e.Type == clientv3.EventTypePut {
					if v.Text, v.Revision = e.Kv.Value, e.Kv.ModRevision; v.Revision <= known {
						continue // a beat was faster, and had what is there now
					}
				}
				values = append(values, v)
			}
			take(values, false)
		case <-s.changed:
			if err := s.present(ctx, c, lease); err != nil {
				return err
			}
		case <-tick.C:
			if known, err = s.beat(ctx, c, lease, known, take); err != nil {
				return err
			}
		}
	}
}

// Connect opens a connection for another use.
func Connect(ctx context.Context, c Config) (*clientv3.Client, error) {
	return (&Store{config: c}).open(ctx)
}

// open makes a session's client.
func (s *Store) open(ctx context.Context) (*clientv3.Client, error) {
	options, err := s.options(ctx)
	if err != nil {
		return nil, err
	}
	c, err := clientv3.New(options)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return c, nil
}

// get reads the values whose names begin so, as of a revision.
func (s *Store) get(ctx context.Context, c *clientv3.Client, names string,
	which ...clientv3.OpOption) ([]Value, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	answer, err := c.Get(ctx, string(s.config.Prefix)+names,
		append(which, clientv3.WithPrefix())...)
	if err != nil {
		return nil, 0, fmt.Errorf("etcd: get: %w", err)
	}
	values := make([]Value, len(answer.Kvs))
	for i, kv := range answer.Kvs {
		values[i] = Value{s.name(kv.Key), kv.Value, kv.ModRevision}
	}
	return values, answer.Header.Revision, nil
}

// name is a key without the prefix.
func (s *Store) name(key []byte) string {
	return strings.TrimPrefix(string(key), string(s.config.Prefix))
}

func (s *Store) lease(ctx context.Context, c *clientv3.Client) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	answer, err := c.Grant(ctx, int64(leaseTime/time.Second))
	if err != nil {
		return 0, fmt.Errorf("etcd: lease: %w", err)
	}
	return answer.ID, nil
}

// present writes this edge's state.
func (s *Store) present(ctx context.Context, c *clientv3.Client, lease clientv3.LeaseID) error {
	s.mu.Lock()
	text := s.published
	s.mu.Unlock()
	if text == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := c.Put(ctx, s.self, string(text), clientv3.WithLease(lease)); err != nil {
		return fmt.Errorf("etcd: put: %w", err)
	}
	return nil
}

// beat reads what has been written since a revision, which a hanging watch would miss, and keeps
// the lease. A lease that has ended (this process was stopped for a while) is an error like any
// other.
func (s *Store) beat(ctx context.Context, c *clientv3.Client, lease clientv3.LeaseID, since int64,
	take func([]Value, bool)) (int64, error) {
	values, revision, err := s.get(ctx, c, s.followed, clientv3.WithMinModRev(since+1))
	if err != nil {
		return since, err
	}
	if len(values) > 0 {
		take(values, false)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := c.KeepAliveOnce(ctx, lease); err != nil {
		return since, fmt.Errorf("etcd: lease: %w", err)
	}
	return revision, nil
}
