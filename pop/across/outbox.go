package across

import (
	"slices"
	"sync"
	"time"

	"sluice/counter"
)

// Waiting is how many blocks wait for a peer, about 150 bytes each, so 1.5 MB while it is away; and
// how many counts, of 300 bytes.
const Waiting = 10_000

// Outbox is what is still to be sent to one peer. It is safe for concurrent use.
type Outbox struct {
	// Wake has something when there is something to send.
	Wake chan struct{}

	mu      sync.Mutex
	blocks  []Block
	counts  map[counted]Count // the latest of each: older ones need not be sent
	dropped uint64
}

// counted names what a Count is of.
type counted struct {
	rule, counts string
	window       time.Duration
	source       counter.Source
}

// NewOutbox makes an empty one.
func NewOutbox() *Outbox {
	return &Outbox{Wake: make(chan struct{}, 1), counts: make(map[counted]Count)}
}

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
	o.wake()
}

// AddCount adds a count, in the place of an older one of the same source. Where there is no room it
// is dropped: the next step of the source says all of it again.
func (o *Outbox) AddCount(c Count) {
	k := counted{c.Rule, c.Counts, c.Window, c.Source}
	o.mu.Lock()
	if _, known := o.counts[k]; known || len(o.counts) < Waiting {
		o.counts[k] = c
	}
	o.mu.Unlock()
	o.wake()
}

func (o *Outbox) wake() {
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

// TakeCounts takes out as many counts as a message has, of those that matter at now.
func (o *Outbox) TakeCounts(now time.Time) (batch []Count) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, c := range o.counts {
		if len(batch) == MaxCounts {
			break
		}
		delete(o.counts, k)
		batch = append(batch, c)
	}
	return Current(batch, now)
}

// Dropped is how many blocks made room for others.
func (o *Outbox) Dropped() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}

// Current leaves out what no window sees any more.
func Current(list []Count, now time.Time) []Count {
	return slices.DeleteFunc(list, func(c Count) bool { return now.Sub(c.Began) > c.Window+c.Sub })
}

// InForce leaves out what has ended.
func InForce(list []Block, now time.Time) []Block {
	return slices.DeleteFunc(list, func(b Block) bool { return !now.Before(b.End) })
}
