//go:build !minimal

package tier

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/cmd/sluice/internal/rulelist"
	"sluice/edge/changes"
	"sluice/edge/changes/etcd"
	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
)

// etcdLook is how often etcd is read for how far a change has come: all edges that share it are in
// the answer.
const etcdLook = 50 * time.Millisecond

// keepRulesInEtcd has changes of rules travel over etcd, to the edges of all PoPs that share it.
// What etcd has now is in force from the start, if it answers soon.
func (s *Shared) keepRulesInEtcd(c *config.Config, key secret.Secret, id uint64,
	happened *events.Log) error {
	in, err := rulelist.NewEtcd(key, id, etcd.Config(c.Etcd), func(bad bool, rule, text string) {
		e := events.Event{Time: time.Now(), Kind: events.Etcd, Rule: rule, Text: text}
		if bad {
			e.Level = slog.LevelError
		}
		happened.Add(e)
	})
	if err != nil {
		return err
	}
	s.Local, s.EtcdStatus, s.EtcdMetrics = in.List, in.Status, newEtcdMetrics(in)
	if err := s.openState(c, apartName(c), s.Local); err != nil {
		return err
	}
	in.Load(context.Background())
	s.Rules = &RuleStore{
		Origin: changes.Etcd, List: in.Changes, Add: in.Add, Describe: in.Describe,
		InForce: func(version uint64, refused []operatorlog.Mark) {
			in.InForce(version, refused)
			if s.Machine != nil {
				s.Machine.Operators.InForce(0, refused) // it has none itself
			}
		},
		Await: func(made func() Made) Progress {
			return await(etcdLook, func() (now Progress, overtaken bool) {
				m := made()
				// Otherwise it is read again
				if spread, err := in.Spread(m.Rule, m.Marks); err == nil {
					now.Spread = &spread
				}
				return now, m.Overtaken
			})
		},
		Save: s.save,
	}
	s.beside = append(s.beside, in.Follow)
	return nil
}

// etcdMetrics shows to Prometheus how etcd is.
type etcdMetrics struct {
	etcd *rulelist.Etcd

	up, wrong, puts *prometheus.Desc
}

func newEtcdMetrics(e *rulelist.Etcd) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_etcd_"+name, help, labels, nil)
	}
	return &etcdMetrics{
		etcd: e,
		up: desc("up",
			"Whether etcd answers, over which edges of several PoPs have the same rules."),
		wrong: desc("wrong_values",
			"Rules of which etcd has what cannot be read, or changes that cannot be in force on this edge: what was stays."),
		puts: desc("puts_total",
			"Changes of rules that this edge wrote into etcd for an operator, by what became of them.", "result"),
	}
}

func (m *etcdMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

func (m *etcdMetrics) Collect(ch chan<- prometheus.Metric) {
	puts, wrong := m.etcd.Counts()
	ch <- prometheus.MustNewConstMetric(m.up, prometheus.GaugeValue, number(m.etcd.Up()))
	ch <- prometheus.MustNewConstMetric(m.wrong, prometheus.GaugeValue, float64(wrong))
	for result, n := range map[string]uint64{"done": puts.Done, "conflict": puts.Conflict,
		"failed": puts.Failed} {
		ch <- prometheus.MustNewConstMetric(m.puts, prometheus.CounterValue, float64(n), result)
	}
}
