package tier

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
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

// etcdLook is how often etcd is read for how far a change has come: all edges that share it are in the answer.
const etcdLook = 50 * time.Millisecond

// keepRulesInEtcd has changes of rules travel over etcd, to the edges of all PoPs that share it. What etcd has now is in force from the
// start, if it answers soon.
func (s *Shared) keepRulesInEtcd(c *config.Config, key secret.Secret, id uint64, happened *events.Log) (err error) {
	s.Etcd, err = rulelist.NewEtcd(key, id, etcd.Config(c.Etcd), func(bad bool, rule, text string) {
		e := events.Event{Time: time.Now(), Kind: events.Etcd, Rule: rule, Text: text}
		if bad {
			e.Level = slog.LevelError
		}
		happened.Add(e)
	})
	if err != nil {
		return err
	}
	s.Local = s.Etcd.List
	if err := s.openState(c, apartName(c), s.Local); err != nil {
		return err
	}
	s.Etcd.Load(context.Background())
	s.Rules = &RuleStore{
		Origin: changes.Etcd, List: s.Etcd.Changes, Add: s.Etcd.Add, Describe: s.Etcd.Describe,
		InForce: func(version uint64, refused []operatorlog.Mark) {
			s.Etcd.InForce(version, refused)
			if s.Machine != nil {
				s.Machine.Operators.InForce(0, refused) // it has none itself
			}
		},
		Await: func(made func() Made) Progress {
			return await(etcdLook, func() (now Progress, overtaken bool) {
				m := made()
				if spread, err := s.Etcd.Spread(m.Rule, m.Marks); err == nil { // otherwise it is read again
					now.Spread = &spread
				}
				return now, m.Overtaken
			})
		},
		Save: s.save,
	}
	s.beside = append(s.beside, s.Etcd.Follow)
	return nil
}

// warnOfRulesLeft warns of changes of rules that the PoP's list had before there was an etcd: they are not in force any
// more.
func warnOfRulesLeft(c *config.Config, key secret.Secret, log *slog.Logger) {
	if c.StateDir == "" {
		return
	}
	var list []operatorlog.Entry
	_ = readState(filepath.Join(c.StateDir, stateName), func(text []byte) (err error) { // openState reports it
		list, _, err = operatorlog.Decode(key, text)
		return err
	})
	var rules []string
	for _, e := range list {
		if e.Kind == operatorlog.Change && !slices.Contains(rules, e.Rule) {
			rules = append(rules, e.Rule)
		}
	}
	if len(rules) > 0 {
		log.Warn("changes of rules in the PoP's list are dropped, because with etcd rules are changed there alone: make them again", "rules", strings.Join(rules, ", "))
	}
}

// etcdMetrics shows to Prometheus how etcd is.
type etcdMetrics struct {
	etcd *rulelist.Etcd

	up, wrong, puts *prometheus.Desc
}

// EtcdMetrics are the metrics of an Etcd.
func EtcdMetrics(e *rulelist.Etcd) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_etcd_"+name, help, labels, nil)
	}
	return &etcdMetrics{
		etcd:  e,
		up:    desc("up", "Whether etcd answers, over which edges of several PoPs have the same rules."),
		wrong: desc("wrong_values", "Rules of which etcd has what cannot be read, or changes that cannot be in force on this edge: what was stays."),
		puts:  desc("puts_total", "Changes of rules that this edge wrote into etcd for an operator, by what became of them.", "result"),
	}
}

func (m *etcdMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

func (m *etcdMetrics) Collect(ch chan<- prometheus.Metric) {
	puts, wrong := m.etcd.Counts()
	ch <- prometheus.MustNewConstMetric(m.up, prometheus.GaugeValue, number(m.etcd.Up()))
	ch <- prometheus.MustNewConstMetric(m.wrong, prometheus.GaugeValue, float64(wrong))
	for result, n := range map[string]uint64{"done": puts.Done, "conflict": puts.Conflict, "failed": puts.Failed} {
		ch <- prometheus.MustNewConstMetric(m.puts, prometheus.CounterValue, float64(n), result)
	}
}
