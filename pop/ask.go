package pop

import (
	"sync"
	"time"

	"sluice/counter"
)

// asks are the counters that requests wait for.
type asks struct {
	mu   sync.Mutex
	list []counter.Counter
}

// Ask asks the tier about a counter that this edge does not know, because a request waits for the answer
// (counter.Table.Await). It may be called from anywhere; a Step follows it up.
func (m *Machine) Ask(c counter.Counter) {
	m.asks.mu.Lock()
	defer m.asks.mu.Unlock()
	if len(m.asks.list) < maxAsks { // who finds the list full goes on without an answer, as after the longest wait
		m.asks.list = append(m.asks.list, c)
	}
}

const maxAsks = 1 << 14

// readForRequests reads the counters that requests wait for.
func (m *Machine) readForRequests(now time.Time) {
	m.asks.mu.Lock()
	m.dirty = append(m.dirty[:0], m.asks.list...)
	m.asks.list = m.asks.list[:0]
	m.asks.mu.Unlock()
	for _, c := range m.dirty {
		m.readWhole(aWaitedRead, c, now)
	}
	m.sendReads(aWaitedRead)
}
