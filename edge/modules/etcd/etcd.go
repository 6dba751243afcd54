// Package etcd has the rules that operators change be the same in several PoPs, whose edges share
// them over an etcd.
package etcd

import (
	"log/slog"
	"net/url"
	"time"

	"sluice/edge"
	"sluice/edge/changes"
	"sluice/edge/changes/etcd"
	"sluice/edge/changes/rulelist"
	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/edge/metric"
	"sluice/pop/secret"
)

// Module keeps changes of rules in etcd.
func Module() edge.Module {
	var in *shared // nil: in none, or not yet
	return edge.Module{Name: etcd.Section,
		Config: config.Module{Settings: func() any { return etcd.Default() }, AtStart: true,
			Weaknesses: weaknesses, Files: files},
		Rules: func(c *config.Config) *rulelist.Place {
			to := etcd.Of(c)
			if to == nil {
				return nil
			}
			// Under another prefix there are other rules
			return &rulelist.Place{Origin: changes.Etcd, File: "etcd" + url.PathEscape(string(to.Prefix)),
				Open: func(key secret.Secret, id uint64, happened *events.Log) (rulelist.Shared, error) {
					list, err := open(key, id, *to, func(bad bool, rule, text string) {
						e := events.Event{Time: time.Now(), Kind: events.Etcd, Rule: rule, Text: text}
						if bad {
							e.Level = slog.LevelError
						}
						happened.Add(e)
					})
					in = list
					return list, err
				}}
		},
		Collect: func(to metric.Sink) {
			if in != nil {
				in.collect(to)
			}
		}}
}

// collect shows how etcd is.
func (e *shared) collect(to metric.Sink) {
	puts, wrong := e.counted()
	to.Whether(e.up(), "sluice_etcd_up",
		"Whether etcd answers, over which edges of several PoPs have the same rules.")
	to.Gauge(float64(wrong), "sluice_etcd_wrong_values",
		"Rules of which etcd has what cannot be read, or changes that cannot be in force on this edge: what was stays.")
	for result, n := range map[string]uint64{"done": puts.done, "conflict": puts.conflict,
		"failed": puts.failed} {
		to.Count(n, "sluice_etcd_puts_total",
			"Changes of rules that this edge wrote into etcd for an operator, by what became of them.", "result", result)
	}
}

// files are those that each session reads.
func files(c *config.Config) []config.File {
	e := config.SettingsOf[etcd.Config](c, etcd.Section)
	return []config.File{{Setting: "etcd.password_file", Path: e.PasswordFile, Secret: true},
		{Setting: "etcd.key_file", Path: e.KeyFile, Secret: true}}
}

// weaknesses are what others than its edges can do to etcd, as far as the configuration shows, and
// what an edge lacks without it.
func weaknesses(c *config.Config) (all []string) {
	e := etcd.Of(c)
	if e == nil {
		return nil
	}
	if w := weakness(e); w != "" {
		all = append(all, w)
	}
	if c.StateDir == "" {
		all = append(all, "etcd: without state_dir an edge that starts while etcd is away has the rules of its file, and not what operators have changed")
	}
	return all
}

func weakness(e *etcd.Config) string {
	for _, text := range e.Endpoints {
		u, err := etcd.ParseNode(text)
		if err != nil || config.IsLocal(u.Host) {
			continue
		}
		switch {
		case u.Scheme == "http" && e.Username == "":
			return "etcd: " + text +
				" is plain text without a password: anyone who reaches it, or is on the way, can change the rules of all edges; write https, and give username or cert_file"
		case u.Scheme == "http":
			return "etcd: " + text +
				" is plain text: anyone on the way reads the password, and can change the rules of all edges; write https"
		case e.Username == "" && e.CertFile == "":
			return "etcd: no username and no cert_file: if " + text +
				" takes that, anyone who reaches it can change the rules of all edges"
		}
	}
	return ""
}
