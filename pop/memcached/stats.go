package memcached

import (
	"sluice/counter/buckets"
	"sluice/pop/wire"
)

// Operations counts commands by operation and outcome.
type Operations [wire.Ops][wire.Unknown + 1]uint64

// NodeStats is what a Tier has seen of a node since it started. Counts only grow.
type NodeStats struct {
	Node       string             // as configured
	Operations Operations         // one for each command
	Trips      *buckets.Histogram // round trips: of a burst of reports, or of any other command
	Dials      uint64             // attempts to connect
	// Connections of the pipeline lost, by what ended them: the other side or the network, a second
	// of silence, an answer that made no sense.
	Closed, Silent, Wrong uint64
	Waiting               int // commands on their way at this moment
}

// TierStats is what a Tier has seen since it started.
type TierStats struct {
	Nodes  []NodeStats // in the order of the configuration; empty before Sync
	Steps  uint64      // of the Machine
	Panics uint64      // caught
}

// Stats may be called from anywhere.
func (t *Tier) Stats() TierStats {
	s := TierStats{Steps: t.steps.Load(), Panics: t.panics.Load()}
	links := t.links.Load()
	if links == nil {
		return s
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, l := range *links {
		d := l.pipe.drops
		s.Nodes = append(s.Nodes, NodeStats{
			Node:       t.nodes[i],
			Operations: t.operations[i],
			Trips:      l.trips,
			Dials:      l.dialer.dials.Load(),
			Closed:     d.closed.Load(),
			Silent:     d.timeout.Load(),
			Wrong:      d.wrong.Load(),
			Waiting:    l.pipe.backlog() + l.polls.backlog() + int(l.waiting.Load()),
		})
	}
	return s
}
