package acme

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
)

const (
	// lookAfter is how old may be what is known of proofs in the storage. A server of ACME asks for
	// one later than that after it was stored: it has to be told first.
	lookAfter = 50 * time.Millisecond
	// lookTime is how long a look may take.
	lookTime = 2 * time.Second
)

// proofs is a Storage in which proofs of other edges are looked for together. Anybody can ask for
// one, so all questions of a while are answered by one look: a flood of them costs the storage no
// more than that, and keeps no server of ACME from its answer.
type proofs struct {
	certmagic.Storage

	mu     sync.Mutex
	looked map[string]look // by folder: one for each server
}

// A look is which proofs are under way, and those of them that were read.
type look struct {
	at     time.Time
	keys   []string
	values map[string][]byte
	err    error
}

func (s *proofs) Load(ctx context.Context, key string) ([]byte, error) {
	folder := path.Dir(key)
	if path.Base(folder) != "challenge_tokens" { // certmagic's, of what its solvers share
		return s.Storage.Load(ctx, key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// It is for others as well
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	l, known := s.looked[folder]
	if !known || time.Since(l.at) >= lookAfter {
		l = look{values: make(map[string][]byte)}
		if l.keys, l.err = s.List(ctx, folder, false); errors.Is(l.err, fs.ErrNotExist) {
			l.err = nil
		}
		l.at = time.Now()
		s.looked[folder] = l
	}
	switch value, read := l.values[key]; {
	case l.err != nil:
		return nil, l.err
	case read:
		return value, nil
	case !slices.Contains(l.keys, key):
		return nil, fs.ErrNotExist
	}
	value, err := s.Storage.Load(ctx, key)
	if err == nil {
		l.values[key] = value
	}
	return value, err
}
