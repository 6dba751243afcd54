package pop

import "time"

// attention decides how old may be what an edge knows of the logs and the nodes. Each look costs a
// wake-up or two, which is nearly all that an edge costs that hardly anybody asks.
//
// A request needs it fresh. So an edge looks about once a request: at least Soonest apart, and as
// long as there was one within the last second latest at most, because the next may come at any
// moment. An edge that has served nobody for a second looks once a beat; its first request wakes it
// (mitigation.Table.Renew), and is not held up. An attack keeps all awake: as long as a log had
// something new within the time that its items are kept, all edges look as if there were many
// requests, because a source that changes edges may come to any of them next. So only the first
// block after quiet comes late, to edges that nobody asks.
type attention struct {
	looked  time.Time
	request time.Time // when there was last known to have been one
	// Looks are as near as they may be, more than once: requests need not wake this edge, because the
	// timer does
	busy, near bool
}

const (
	// Soonest is how long at least is between two looks: so old may be what an edge knows of the logs
	// that serves many requests.
	Soonest = 15 * time.Millisecond
	latest  = 40 * time.Millisecond
	beat    = 500 * time.Millisecond
	// For so long after a request the next is expected
	expected = time.Second
)

// lookEvery is how long after the last look the next is due: there has been a request since, or not.
func (m *Machine) lookEvery(asked bool, now time.Time) time.Duration {
	switch {
	case asked, m.logs.Moved(now):
		return Soonest
	case m.awake(), now.Sub(m.attention.request) < expected:
		return latest
	}
	return beat
}

// awake reports whether something keeps this edge awake while nobody asks it. All else that it does
// now and then it does where it looks: its periods are multiples of the beat, or a little less.
func (m *Machine) awake() bool {
	return m.ending || !m.Nodes.Well() || m.Waiting() || m.counters.Gathering() ||
		m.presence.Hasty()
}

// attend reports whether it is time to look.
func (m *Machine) attend(now time.Time) bool {
	a, asked := &m.attention, m.config.Blocks.Asked()
	if asked {
		a.request = now
	}
	since := now.Sub(a.looked)
	if since < m.lookEvery(asked, now) {
		if a.busy && since >= Soonest { // they do not come so fast any more
			a.busy = false
			m.config.Blocks.Renew(true)
		}
		return false
	}
	near := asked && since < 2*Soonest
	a.looked, a.busy, a.near = now, near && a.near || m.logs.Moved(now), near
	m.config.Blocks.Renew(!a.busy)
	return true
}

// lookIn is how soon it is time to look.
func (m *Machine) lookIn(now time.Time) time.Duration {
	a := &m.attention
	every := m.lookEvery(m.config.Blocks.Asked(), now)
	if a.busy {
		every = Soonest
	}
	return max(a.looked.Add(every).Sub(now), 0)
}
