package tier

import (
	"sync"
	"time"

	"sluice/edge/changes"
	"sluice/edge/control"
	"sluice/pop/secret"
	"sluice/pop/words"
)

// RuleStore is where changes of rules are kept: in the PoP's list of what operators said, or in one of this edge alone.
type RuleStore struct {
	Origin   changes.Origin
	List     func() (entries []words.Entry, version uint64, moved <-chan struct{})
	Add      func(words.Word, time.Time) (words.Mark, error)
	InForce  func(version uint64, refused []words.Mark)
	Await    func(words.Mark) *control.Spread // until all edges have it, or for as long as an operator waits; nil: there are no others
	Save     func() error                     // to the disk
	Warnings []string                         // for operators, with each change
}

// LocalList is a list of what operators said that does not travel: on an edge that counts alone, and where the PoP's secret can be
// guessed, so that anybody might have written into the tier.
type LocalList struct {
	secret secret.Secret
	id     uint64

	mu      sync.Mutex
	list    words.List
	version uint64
	moved   chan struct{}
}

// Add has another word in the list.
func (l *LocalList) Add(w words.Word, now time.Time) (words.Mark, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mark, err := l.list.Add(w, l.id, 0, now)
	if err == nil {
		l.move()
	}
	return mark, err
}

// move tells that there is another version. mu is locked.
func (l *LocalList) move() {
	l.version++
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// next is closed with the next version. mu is locked.
func (l *LocalList) next() <-chan struct{} {
	if l.moved == nil {
		l.moved = make(chan struct{})
	}
	return l.moved
}

// Changes is what is said of rules, in which version, and what is closed with the next.
func (l *LocalList) Changes() ([]words.Entry, uint64, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list.Changes(), l.version, l.next()
}

// Words is the list as it is kept.
func (l *LocalList) Words(now time.Time) ([]byte, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list.Encode(l.secret, now), l.next()
}

// Restore takes in what Words returned.
func (l *LocalList) Restore(list []byte, now time.Time) error {
	entries, _, err := words.Decode(l.secret, list)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if names, _ := l.list.Merge(entries, now); len(names) > 0 {
		l.move()
	}
	return nil
}
