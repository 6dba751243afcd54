// Package clients joins an edge and the store of its clients' plans.
package clients

import (
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/edge/config"
	"sluice/edge/plans"
	"sluice/edge/plans/store"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

// copyName is the copy of what the store says, in state_dir.
const copyName = "plans"

// Keep makes the keeper of a configuration; nil: it names no store. Whoever calls it sets Publish, and calls Load.
func Keep(c *config.Config, secret [16]byte, warn func(string, ...any)) (*plans.Keeper, error) {
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
		k.Copy = filepath.Join(c.StateDir, copyName)
	}
	return k, nil
}

// Metrics are those of a keeper. No key is a label.
func Metrics(k *plans.Keeper) prometheus.Collector { return collector{k} }

type collector struct{ keeper *plans.Keeper }

var (
	up      = prometheus.NewDesc("sluice_plans_up", "Whether the store of the plans answers; while not, what was read last stays in force.", nil, nil)
	read    = prometheus.NewDesc("sluice_plans_last_read_timestamp_seconds", "When the store of the plans was looked at last.", nil, nil)
	clients = prometheus.NewDesc("sluice_plans_clients", "Clients of whom the store says a plan or a limit.", nil, nil)
)

func (c collector) Describe(out chan<- *prometheus.Desc) {
	out <- up
	out <- read
	out <- clients
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	s, is := c.keeper.Status(), 0.0
	if s.Up {
		is = 1
	}
	out <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, is)
	out <- prometheus.MustNewConstMetric(read, prometheus.GaugeValue, float64(s.Read.UnixNano())/1e9)
	out <- prometheus.MustNewConstMetric(clients, prometheus.GaugeValue, float64(s.Clients))
}
