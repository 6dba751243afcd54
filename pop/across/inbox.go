package across

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// What a peer may have this edge do. A block costs the PoP one add and a line of the mitigation log, about 250 bytes; so a peer that is
// broken or taken over costs each edge that it tells 100 commands a second, and fills its table with as many sources.
const (
	Rate  = 100  // blocks a second of each peer
	Burst = 1000 // after a while without: what gathered while the way was down

	maxSenders = 1024 // edges of all peers that were heard of in Window
)

// Inbox takes messages of peers. It is safe for concurrent use.
type Inbox struct {
	name    string
	key     Key
	peers   []string
	mu      sync.Mutex
	senders map[sender]time.Time // when their latest message was made; older than Window ones are forgotten
	budgets map[string]*budget
	refused [len(reasons)]atomic.Uint64 // by the index of reasons
}

type sender struct{ pop, edge string }

// budget is a token bucket of blocks.
type budget struct {
	left float64
	at   time.Time
}

// NewInbox makes the Inbox of an edge of the PoP name.
func NewInbox(name string, key Key, peers []string) *Inbox {
	return &Inbox{name: name, key: key, peers: peers, senders: make(map[sender]time.Time), budgets: make(map[string]*budget)}
}

// Take checks a message, and returns it with as many of its blocks as its sender may send now, and how many more there were.
func (in *Inbox) Take(body []byte, signature string, now time.Time) (m Message, over int, err error) {
	if m, err = in.key.open(body, signature); err == nil {
		over, err = in.take(&m, now)
	}
	if err != nil {
		in.count(err)
		return Message{}, 0, err
	}
	return m, over, nil
}

func (in *Inbox) take(m *Message, now time.Time) (over int, err error) {
	switch {
	case m.To != in.name:
		return 0, ErrFor
	case !slices.Contains(in.peers, m.From):
		return 0, ErrFrom
	case now.Sub(m.At).Abs() > Window:
		return 0, ErrClock
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	from := sender{m.From, m.Edge}
	last, known := in.senders[from]
	if !m.At.After(last) {
		return 0, ErrReplay
	}
	if !known && len(in.senders) >= maxSenders {
		for s, at := range in.senders {
			if now.Sub(at) > Window {
				delete(in.senders, s) // what it sent before is too old by now
			}
		}
		if len(in.senders) >= maxSenders {
			return 0, ErrSenders
		}
	}
	in.senders[from] = m.At
	b := in.budgets[m.From]
	if b == nil {
		b = &budget{Burst, now}
		in.budgets[m.From] = b
	}
	b.left = min(b.left+max(now.Sub(b.at).Seconds(), 0)*Rate, Burst)
	b.at = now
	n := min(len(m.Blocks), int(b.left))
	b.left -= float64(n)
	over = len(m.Blocks) - n
	m.Blocks = m.Blocks[:n]
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

// Refused is how many messages were refused, by the words of Refusals. What was not authentic has no sender that one could name.
func (in *Inbox) Refused() map[string]uint64 {
	all := make(map[string]uint64, len(reasons))
	for i, reason := range reasons {
		all[reason] = in.refused[i].Load()
	}
	return all
}
