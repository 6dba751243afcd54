package counter

import (
	"maps"
	"sync"
	"sync/atomic"
)

// ruleBook knows the rules that have counters, by ID, for who meets a counter without its rule. It is read often, and seldom written.
type ruleBook struct {
	mu   sync.Mutex
	book atomic.Pointer[map[uint32]*Rule]
}

func (b *ruleBook) all() map[uint32]*Rule {
	if book := b.book.Load(); book != nil {
		return *book
	}
	return nil
}

// know notes a rule.
func (b *ruleBook) know(r *Rule) {
	if b.all()[r.ID] == r {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	book := maps.Clone(b.all())
	if book == nil {
		book = make(map[uint32]*Rule)
	}
	book[r.ID] = r // perhaps in place of one that counts the same, with another limit
	b.book.Store(&book)
}
