package peers

import (
	"sluice/edge/metric"
	"sluice/pop/across"
)

// Collect gives how many blocks and counts were sent to peers and received from them, and what
// became of these.
func (p *Peers) Collect(to metric.Sink) {
	for _, other := range p.list {
		const name, help = "sluice_peer_blocks_sent_total",
			"Blocks that this edge announced to another PoP; dropped: the queue to it was full."
		to.Count(other.sent.Load(), name, help, "peer", other.name, "result", "sent")
		to.Count(other.outbox.Dropped(), name, help, "peer", other.name, "result", "dropped")
		to.Count(other.countsSent.Load(), "sluice_peer_counts_sent_total",
			"Counts of sources near their limit that another PoP has taken.", "peer", other.name)
		to.Count(other.bytesSent.Load(), "sluice_peer_sent_bytes_total",
			"Bytes of messages to another PoP, without their heads.", "peer", other.name)
		to.Count(other.failed.Load(), "sluice_peer_send_failures_total",
			"Messages that an edge of another PoP did not take.", "peer", other.name)
		for i, secret := range [...]string{"first", "other"} {
			to.Count(other.received[i].Load(), "sluice_peer_messages_received_total",
				"Messages of another PoP that were believed; secret: whether it signs with the first line of the peers_secret_file here, or with another.",
				"peer", other.name, "secret", secret)
		}
		if !p.off.Load() {
			to.Whether(!other.away.Load(), "sluice_peer_up",
				"Whether an edge of another PoP has taken the latest message; none while pop.peers_mode is off.", "peer", other.name)
		}
		for o := range across.Outcomes {
			to.Count(other.outcomes[o].Load(), "sluice_peer_blocks_received_total",
				"Blocks that another PoP announced to this edge, by what became of them.",
				"peer", other.name, "result", across.Outcome(o).String())
		}
		for _, o := range across.OfCounts {
			to.Count(other.countOutcomes[o].Load(), "sluice_peer_counts_received_total",
				"Counts of sources near their limit that another PoP sent to this edge, by what became of them.", "peer", other.name, "result", o.String())
		}
	}
	for reason, n := range p.inbox.Refused() {
		to.Count(n, "sluice_peer_messages_refused_total",
			"Messages at the listener for peers that were not believed.", "reason", reason)
	}
}
