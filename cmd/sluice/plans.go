package main

import (
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/edge/config"
	"sluice/edge/plans"
	"sluice/edge/plans/store"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

// plansCopy is the copy of what the store says, in state_dir.
const plansCopy = "plans"

// keepPlans makes the keeper of a configuration's plans; nil: it names no store. Whoever calls it sets Publish, and calls Load.
func keepPlans(c *config.Config, secret [16]byte, warn func(string, ...any)) (*plans.Keeper, error) {
	if c.Plans.Store == "" {
		return nil, nil
	}
	keys, err := rules.NewClientKeys(c.Plans, key.NewSecret(secret))
	if err != nil {
		return nil, err
	}
	s, err := store.Open(c.Plans.Store)
	if err != nil {
		return nil, err
	}
	check := ""
	for _, k := range keys { // by other keys other quotas are read
		client, _, ok := k.Of("sluice")
		if !ok {
			client, _, _ = k.Of("sluice sluice") // of a key whose values have several words
		}
		check += k.Known(client).String()
	}
	k := &plans.Keeper{Store: s, Refresh: c.Plans.Refresh, Source: keys.Source, Warn: warn, Check: check}
	if c.StateDir != "" {
		k.Copy = filepath.Join(c.StateDir, plansCopy)
	}
	return k, nil
}

// plansMetrics are those of a keeper. No key is a label.
type plansMetrics struct{ keeper *plans.Keeper }

var (
	plansUp      = prometheus.NewDesc("sluice_plans_up", "Whether the store of the plans answers; while not, what was read last stays in force.", nil, nil)
	plansRead    = prometheus.NewDesc("sluice_plans_last_read_timestamp_seconds", "When the store of the plans was looked at last.", nil, nil)
	plansClients = prometheus.NewDesc("sluice_plans_clients", "Clients of whom the store says a plan or a limit.", nil, nil)
)

func (m plansMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- plansUp
	out <- plansRead
	out <- plansClients
}

func (m plansMetrics) Collect(out chan<- prometheus.Metric) {
	s, is := m.keeper.Status(), 0.0
	if s.Up {
		is = 1
	}
	out <- prometheus.MustNewConstMetric(plansUp, prometheus.GaugeValue, is)
	out <- prometheus.MustNewConstMetric(plansRead, prometheus.GaugeValue, float64(s.Read.UnixNano())/1e9)
	out <- prometheus.MustNewConstMetric(plansClients, prometheus.GaugeValue, float64(s.Clients))
}
