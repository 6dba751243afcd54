package exchange

import (
	"time"

	"sluice/counter/inflight"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// writeInFlight writes to the tier how many requests are in flight here (package inflight). A
// source's numbers are where its counters are. While edges change from one list of nodes to another
// at different times, they count requests in flight apart.
func (x *Exchanges) writeInFlight(now time.Time) {
	t := x.config.InFlight
	if t == nil {
		return
	}
	if x.parts == nil {
		x.parts = make([]*inflight.Exchange, 0, atOnce)
	}
	known := x.config.Nodes.Known()
	x.parts = t.Due(x.parts[:0], x.wall(now), known != x.known, x.config.Nodes.NodeOf)
	x.known = known
	for _, e := range x.parts {
		name := x.config.Secret.InFlightName(e.Rule, e.Source)
		for i, p := range e.Parts {
			var room [secret.CounterKeySize]byte
			key := x.arena.Write(name.Append(room[:0], p.Epoch))
			if p.Create {
				x.config.Send(wire.Command{Node: e.Node, Op: wire.Add, Report: true, Key: key,
					Value: x.arena.Number(0), Expire: inflight.Lifetime}, Request{})
			}
			c := wire.Command{Node: e.Node, Op: wire.Incr, Report: true, Key: key,
				Delta: uint64(p.Delta)}
			if p.Delta < 0 {
				c.Op, c.Delta = wire.Decr, uint64(-p.Delta)
			}
			x.config.Send(c, Request{kind: inFlight, parts: e, part: uint32(i)})
		}
	}
	clear(x.parts)
}
