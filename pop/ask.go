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

func (m *Machine) ask(now time.Time) {
	m.asks.mu.Lock()
	m.dirty = append(m.dirty[:0], m.asks.list...)
	m.asks.list = m.asks.list[:0]
	m.asks.mu.Unlock()
	for _, c := range m.dirty {
		if node := m.place(c.Source); node >= 0 {
			oldest, newest := m.counters.Groups(c.Rule, now, m.secret.Phase(c.Source))
			epoch := m.epoch(c.Rule, c.Source)
			name := m.secret.CounterName(c, epoch)
			m.look(node, anAsk, c, epoch, &name, oldest, newest, 0)
		}
	}
	m.sendLooks(anAsk)
}
