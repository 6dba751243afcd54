package across

import (
	"slices"
	"sync"
	"time"
)

// Waiting is how many blocks wait for a peer: about 150 bytes each, so 1.5 MB while it is away.
const Waiting = 10_000

// Outbox is what is still to be sent to one peer. It is safe for concurrent use.
type Outbox struct {
	// Wake has something when there is something to send.
	Wake chan struct{}

	mu      sync.Mutex
	blocks  []Block
	dropped uint64
}

// NewOutbox makes an empty one.
func NewOutbox() *Outbox { return &Outbox{Wake: make(chan struct{}, 1)} }

// Add adds a block. Where there is no room, the oldest makes room: it has the least time left.
func (o *Outbox) Add(b Block) {
	o.mu.Lock()
	if len(o.blocks) >= Waiting {
		n := len(o.blocks) - Waiting*9/10 // many at once, so that each of a flood is moved seldom
		o.blocks = slices.Delete(o.blocks, 0, n)
		o.dropped += uint64(n)
	}
	o.blocks = append(o.blocks, b)
	o.mu.Unlock()
	select {
	case o.Wake <- struct{}{}:
	default:
	}
}

// Take takes out the oldest that are in force at now, as many as a message has.
func (o *Outbox) Take(now time.Time) []Block {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.blocks = InForce(o.blocks, now)
	n := min(len(o.blocks), MaxBlocks)
	batch := slices.Clone(o.blocks[:n])
	o.blocks = slices.Delete(o.blocks, 0, n)
	return batch
}

// Dropped is how many made room for others.
func (o *Outbox) Dropped() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}

// InForce leaves out what has ended.
func InForce(list []Block, now time.Time) []Block {
	return slices.DeleteFunc(list, func(b Block) bool { return !now.Before(b.End) })
}
