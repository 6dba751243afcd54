// Package rulelist keeps what operators changed of the rules where that does not travel in the
// PoP's list of their words: List is one of this edge alone, Shared is one that edges of several
// PoPs have. Both are lists of words, so a change is the same everywhere: by its version and its
// edge it stands against others, and merging is a join. What it means is for edge/changes to say.
package rulelist

import (
	"context"
	"sync"
	"time"

	"sluice/edge/changes"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
)

// A Place is where edges of several PoPs have their changes of rules, in place of each PoP's list.
type Place struct {
	Origin changes.Origin
	// File is the name under which the copy is kept in state_dir: of other rules another.
	File string
	// Open makes the list of an edge with an ID. It starts nothing, and tells events from then on
	// what operators should know.
	Open func(key secret.Secret, id uint64, happened *events.Log) (Shared, error)
}

// Shared is a list of changes at a Place. It may be used from anywhere.
type Shared interface {
	// Copy is what this edge has of it, and what is in force here.
	Copy() *List
	// Load takes in what is at the place, if it answers soon.
	Load(context.Context)
	// Follow keeps copy and place together until ctx is done.
	Follow(context.Context)
	// Add sends a change to all edges, which was made over a version of the copy. The error is
	// changes.ErrMoved if there is something else by now, and changes.ErrAway if the place does not
	// answer.
	Add(w operatorlog.Order, version uint64, now time.Time) (operatorlog.Mark, error)
	// InForce notes that a version is in force here, except what cannot be.
	InForce(version uint64, refused []operatorlog.Mark)
	// Describe sets what this edge publishes about itself.
	Describe(control.EdgeStatus)
	// Spread is how far changes of a rule have come. The error is that the place does not answer.
	Spread(rule string, marks []operatorlog.Mark) (control.Spread, error)
	// Status is for operators: whether the place answers, and which edges share it.
	Status() control.EtcdStatus
}

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
	l.Merge(entries, now)
	return nil
}

// Merge takes in changes.
func (l *List) Merge(entries []operatorlog.Entry, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if names, _ := l.list.Merge(entries, now); len(names) > 0 {
		l.move()
	}
}
