// Package rulelist keeps what operators changed of the rules where that does not travel in the
// PoP's list of their words: List is one of this edge alone, Etcd is one that edges of several PoPs
// share. Both are lists of words, so a change is the same everywhere: by its version and its edge
// it stands against others, and merging is a join. What it means is for edge/changes to say.
package rulelist

import (
	"sync"
	"time"

	"sluice/pop/operatorlog"
	"sluice/pop/secret"
)

// List is a list of changes that does not travel. It may be used from anywhere.
type List struct {
	secret secret.Secret
	id     uint64

	mu      sync.Mutex
	list    operatorlog.List
	version uint64
	moved   chan struct{}
}

// New returns an empty List of an edge with an ID, which is kept under a secret.
func New(key secret.Secret, id uint64) *List { return &List{secret: key, id: id} }

// Add adds a change.
func (l *List) Add(w operatorlog.Order, now time.Time) (operatorlog.Mark, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mark, err := l.list.Add(w, l.id, 0, now)
	if err == nil {
		l.move()
	}
	return mark, err
}

// move notes that there is another version. mu is locked.
func (l *List) move() {
	l.version++
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// next is closed with the next version. mu is locked.
func (l *List) next() <-chan struct{} {
	if l.moved == nil {
		l.moved = make(chan struct{})
	}
	return l.moved
}

// Changes returns the changes by rule, the newest first, their version, and a channel that is
// closed when there is another.
func (l *List) Changes() ([]operatorlog.Entry, uint64, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list.Changes(), l.version, l.next()
}

// Encoded is the list as it is kept.
func (l *List) Encoded(now time.Time) ([]byte, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list.Encode(l.secret, now), l.next()
}

// Restore takes in what Encoded returned.
func (l *List) Restore(list []byte, now time.Time) error {
	entries, _, err := operatorlog.Decode(l.secret.OnDisk(), list)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.merge(entries, now)
	return nil
}

// merge takes in changes. mu is locked.
func (l *List) merge(entries []operatorlog.Entry, now time.Time) {
	if names, _ := l.list.Merge(entries, now); len(names) > 0 {
		l.move()
	}
}
