package across

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// What a peer may have this edge do. A block costs the PoP one add and a line of the mitigation
// log, about 250 bytes; so a peer that is broken or taken over costs each edge that it sends to 100
// commands a second, and fills its table with as many sources.
const (
	Rate  = 100  // blocks a second of each peer
	Burst = 1000 // after a while without: what gathered while the way was down

	// Of counts there may be as many: each is a line of the log, about 100 bytes.

	// Edges of a peer whose messages came in Window: 64, and what they were before a restart or a
	// step of their clock
	maxSenders = 256
)

// Inbox takes messages of peers. It is safe for concurrent use.
type Inbox struct {
	name    string
	mu      sync.Mutex
	peers   map[string]*peer
	refused [len(reasons)]atomic.Uint64 // by the index of reasons
}

// peer is what is remembered of a peer: nothing that one does takes room from another.
type peer struct {
	// By Message.Edge, when its latest message was made; older than Window ones are forgotten
	senders map[string]time.Time
	blocks  bucket
	counts  bucket
}

// bucket is a token bucket of Rate and Burst.
type bucket struct {
	left float64
	at   time.Time // when left was true
}

// take takes as many of n as there are.
func (b *bucket) take(n int, now time.Time) int {
	// The first time from the year 1 on: all of it
	b.left = min(b.left+max(now.Sub(b.at).Seconds(), 0)*Rate, Burst)
	b.at = now
	n = min(n, int(b.left))
	b.left -= float64(n)
	return n
}

// Over is how many blocks and counts of a message were too many.
type Over struct{ Blocks, Counts int }

// NewInbox makes the Inbox of an edge of the PoP name.
func NewInbox(name string, peers []string) *Inbox {
	in := &Inbox{name: name, peers: make(map[string]*peer)}
	for _, other := range peers {
		in.peers[other] = &peer{senders: make(map[string]time.Time)}
	}
	return in
}

// Take checks a message that one of the keys has signed, and returns it with as many of its blocks
// and counts as its sender may send now, and how many more there were.
func (in *Inbox) Take(keys []Key, body []byte, signature string,
	now time.Time) (m Message, over Over, err error) {
	if m, err = open(keys, body, signature); err == nil {
		over, err = in.take(&m, now)
	}
	if err != nil {
		in.count(err)
		return Message{}, Over{}, err
	}
	return m, over, nil
}

func (in *Inbox) take(m *Message, now time.Time) (over Over, err error) {
	p := in.peers[m.From]
	switch {
	case m.To != in.name:
		return over, ErrFor
	case p == nil:
		return over, ErrFrom
	case now.Sub(m.At).Abs() > Window:
		return over, ErrClock
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	last, known := p.senders[m.Edge]
	if !m.At.After(last) {
		return over, ErrReplay
	}
	if !known && len(p.senders) >= maxSenders {
		for edge, at := range p.senders {
			if now.Sub(at) > Window {
				delete(p.senders, edge) // what it sent before is too old by now
			}
		}
		if len(p.senders) >= maxSenders {
			return over, ErrSenders
		}
	}
	p.senders[m.Edge] = m.At
	blocks, counts := p.blocks.take(len(m.Blocks), now), p.counts.take(len(m.Counts), now)
	over = Over{len(m.Blocks) - blocks, len(m.Counts) - counts}
	m.Blocks, m.Counts = m.Blocks[:blocks], m.Counts[:counts]
	return over, nil
}

// reasons are the words of Refusals in order.
var reasons = [...]string{"clock", "form", "recipient", "replay", "sender", "senders", "signature"}

func (in *Inbox) count(err error) {
	for i, reason := range reasons {
		if errors.Is(err, Refusals[reason]) {
			in.refused[i].Add(1)
		}
	}
}

// Refused is how many messages were refused, by the words of Refusals. What was not authentic has
// no sender that one could name.
func (in *Inbox) Refused() map[string]uint64 {
	all := make(map[string]uint64, len(reasons))
	for i, reason := range reasons {
		all[reason] = in.refused[i].Load()
	}
	return all
}
