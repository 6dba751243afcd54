package pop

import (
	"time"

	"sluice/counter"
	"sluice/mitigation"
)

// Near a source's limit it matters when, within a sub-window, others' hits came (counter.Times). An edge that lacks that asks
// in the mitigation log; all edges answer there, so whichever decides next knows.

// toldTimes is what an edge has told of a sub-window's hits. It must be taken in once, though whoever reaches the tier may
// write an edge's line a second time.
type toldTimes struct {
	counter   mitigation.Key
	edge      uint64
	subWindow uint32
}

// hearTimes takes in what another edge told.
func (m *Machine) hearTimes(key mitigation.Key, c counter.Counter, r record, now time.Time) {
	told := toldTimes{key, r.edge, r.times.SubWindow}
	if _, again := m.times[told]; again || r.edge == m.id || now.Sub(r.start) >= logKept {
		return
	}
	m.times[told] = r.start
	m.counters.Hear(c, r.times, now)
}

// tellTimes answers a question, one's own included.
func (m *Machine) tellTimes(c counter.Counter, subWindow uint32, now time.Time) {
	node := m.place(c.Source)
	if node < 0 {
		return
	}
	m.told = m.counters.Tell(c, subWindow, m.told[:0])
	for _, times := range m.told {
		m.appendLog(node, record{kind: aTimes, rule: m.secret.ruleDigest(c.Rule), source: c.Source, epoch: m.epoch(c.Rule, c.Source), start: now, edge: m.id, times: times})
	}
}
