package pop

import (
	"time"

	"sluice/counter/inflight"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

const (
	exchangesAtOnce = 256              // of a Step; a node carries out its commands one after the other
	behindEvery     = time.Millisecond // between two Steps that say what is left of one
)

// tellInFlight says to the tier how many requests are in flight here (package inflight). A source's numbers are where its counters are. While
// edges change from one list of nodes to another at different times, they count requests in flight apart.
func (m *Machine) tellInFlight(now time.Time) {
	t := m.config.InFlight
	if t == nil {
		return
	}
	if m.exchanges == nil {
		m.exchanges = make([]*inflight.Exchange, 0, exchangesAtOnce)
	}
	health := m.Nodes.Known()
	m.exchanges = t.Due(m.exchanges[:0], m.wall(now), health != m.placed, m.Nodes.Place)
	m.placed = health
	for _, x := range m.exchanges {
		name := m.secret.InFlightName(x.Rule, x.Source)
		for i, p := range x.Parts {
			var room [secret.CounterKeySize]byte
			key := m.arena.Write(name.Append(room[:0], p.Epoch))
			if p.Create {
				m.send(wire.Command{Node: x.Node, Op: wire.Add, Report: true, Key: key, Value: m.arena.Number(0), Expire: inflight.Lifetime}, flight{what: anEmptyAdd, paid: true})
			}
			c := wire.Command{Node: x.Node, Op: wire.Incr, Report: true, Key: key, Delta: uint64(p.Delta)}
			if p.Delta < 0 {
				c.Op, c.Delta = wire.Decr, uint64(-p.Delta)
			}
			m.send(c, flight{what: anInFlight, inFlight: x, of: i, paid: true})
		}
	}
	clear(m.exchanges)
}

// inFlightSaid takes in what became of that.
func (m *Machine) inFlightSaid(f flight, r *wire.Result) {
	outcome := [...]inflight.Outcome{wire.Done: inflight.Counted, wire.NotThere: inflight.Missing, wire.Unsent: inflight.Unsent, wire.Unknown: inflight.Unknown}[r.Status]
	m.config.InFlight.Answered(f.inFlight, f.of, outcome, r.Number)
}

// inFlightIn is how soon there is more of it to say, at least as soon as given.
func (m *Machine) inFlightIn(least time.Duration) time.Duration {
	if t := m.config.InFlight; t != nil && t.Behind() {
		return min(least, behindEvery)
	}
	return least
}
