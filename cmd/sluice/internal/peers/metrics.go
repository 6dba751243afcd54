package peers

import (
	"github.com/prometheus/client_golang/prometheus"

	"sluice/pop/across"
)

// Describe and Collect show to Prometheus what peers were told, and what came of what they told.
func (p *Peers) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, ch) }

var (
	told    = prometheus.NewDesc("sluice_peer_blocks_sent_total", "Blocks that another PoP was told of by this edge; dropped: its queue was full.", []string{"peer", "result"}, nil)
	failed  = prometheus.NewDesc("sluice_peer_send_failures_total", "Messages that an edge of another PoP did not take.", []string{"peer"}, nil)
	came    = prometheus.NewDesc("sluice_peer_blocks_received_total", "Blocks that another PoP told this edge of, by what became of them.", []string{"peer", "result"}, nil)
	up      = prometheus.NewDesc("sluice_peer_up", "Whether an edge of another PoP has taken the latest message; none while pop.peers_mode is off.", []string{"peer"}, nil)
	heard   = prometheus.NewDesc("sluice_peer_messages_received_total", "Messages of another PoP that were believed; secret: whether it signs with the first line of the peers_secret_file here, or with another.", []string{"peer", "secret"}, nil)
	refused = prometheus.NewDesc("sluice_peer_messages_refused_total", "Messages at the listener for peers that were not believed.", []string{"reason"}, nil)
)

func (p *Peers) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, other := range p.list {
		count(told, other.sent.Load(), other.name, "sent")
		count(told, other.outbox.Dropped(), other.name, "dropped")
		count(failed, other.failed.Load(), other.name)
		count(heard, other.heard[0].Load(), other.name, "first")
		count(heard, other.heard[1].Load(), other.name, "other")
		if !p.off.Load() {
			v := 1.0
			if other.away.Load() {
				v = 0
			}
			ch <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, v, other.name)
		}
		for o := range across.Outcomes {
			count(came, other.outcomes[o].Load(), other.name, across.Outcome(o).String())
		}
	}
	for reason, n := range p.inbox.Refused() {
		count(refused, n, reason)
	}
}
