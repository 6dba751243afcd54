//go:build !minimal

package tier

import (
	"context"
	"log/slog"
	"time"

	"sluice/cmd/sluice/internal/rulelist"
	"sluice/edge/changes"
	"sluice/edge/changes/etcd"
	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/edge/metric"
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
	s.Local, s.EtcdStatus = in.List, in.Status
	s.Metrics = append(s.Metrics, etcdMetrics(in))
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
func etcdMetrics(e *rulelist.Etcd) metric.Collector {
	return func(to metric.Sink) {
		puts, wrong := e.Counts()
		to.Whether(e.Up(), "sluice_etcd_up",
			"Whether etcd answers, over which edges of several PoPs have the same rules.")
		to.Gauge(float64(wrong), "sluice_etcd_wrong_values",
			"Rules of which etcd has what cannot be read, or changes that cannot be in force on this edge: what was stays.")
		for result, n := range map[string]uint64{"done": puts.Done, "conflict": puts.Conflict,
			"failed": puts.Failed} {
			to.Count(n, "sluice_etcd_puts_total",
				"Changes of rules that this edge wrote into etcd for an operator, by what became of them.", "result", result)
		}
	}
}
