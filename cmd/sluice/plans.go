package main

import (
	"path/filepath"

	"sluice/edge/config"
	"sluice/edge/metric"
	"sluice/edge/plans"
	"sluice/edge/plans/store"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

// plansCopy is the copy of the store's content, in state_dir.
const plansCopy = "plans"

// keepPlans makes the keeper of a configuration's plans; nil: it names no store. The caller sets
// Publish, and calls Load.
func keepPlans(c *config.Config, secret [16]byte,
	warn func(string, ...any)) (*plans.Loader, error) {
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
	k := &plans.Loader{Store: s, Refresh: c.Plans.Refresh, Source: keys.Source, Warn: warn,
		Check: check}
	if c.StateDir != "" {
		k.Copy = filepath.Join(c.StateDir, plansCopy)
	}
	return k, nil
}

// plansMetrics are those of a keeper. No key is a label.
func plansMetrics(k *plans.Loader) metric.Collector {
	return func(to metric.Sink) {
		s := k.Status()
		to.Whether(s.Up, "sluice_plans_up",
			"Whether the store of the plans answers; while not, what was read last stays in force.")
		to.Gauge(float64(s.Read.UnixNano())/1e9, "sluice_plans_last_read_timestamp_seconds",
			"When the store of the plans was looked at last.")
		to.Gauge(float64(s.Clients), "sluice_plans_clients",
			"Clients with a plan or a limit in the store.")
	}
}
