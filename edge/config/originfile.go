package config

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/limiter/shedding"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

func (r *reader) origin(n ast.Node, c *Config) {
	o := upstream.Config{Timeout: time.Minute, ConnectTimeout: upstream.DefaultConnect,
		AnswerHead: upstream.MaxHead, Health: upstream.HealthConfig{Interval: upstream.DefaultInterval}}
	balance, at := upstream.RoundRobin.String(), n
	seen := r.mapping(n, "origin", fields{
		"hosts":   listOf(r, "origins.hosts", message.ParseHostPattern, &o.Hosts),
		"servers": listOf(r, "origins.servers", upstream.ParseOrigin, &o.Servers),
		"tls": func(n ast.Node) {
			at = n
			r.mapping(n, "origins.tls", fields{
				"ca_file":     r.orNone("origins.tls.ca_file", &o.TLS.CAFile),
				"cert_file":   r.orNone("origins.tls.cert_file", &o.TLS.CertFile),
				"key_file":    r.orNone("origins.tls.key_file", &o.TLS.KeyFile),
				"server_name": r.orNone("origins.tls.server_name", &o.TLS.ServerName),
			})
			if (o.TLS.CertFile == "") != (o.TLS.KeyFile == "") {
				r.fail(n, "origins.tls: cert_file and key_file belong together: give both")
			}
		},
		"health": func(n ast.Node) {
			r.mapping(n, "origins.health", fields{
				"active": r.text("origins.health.active", func(n ast.Node, text string) {
					switch {
					case text == "none":
					case !strings.HasPrefix(text, "/") || strings.ContainsAny(text, " \t\r\n#"):
						r.fail(n,
							"origins.health.active: %q is not a path: want one such as /healthz, or none", text)
					default:
						o.Health.Active = text
					}
				}),
				"interval": r.duration("origins.health.interval", 100*time.Millisecond, time.Hour,
					false, &o.Health.Interval),
			})
		},
		"timeout": r.duration("origins.timeout", time.Millisecond, 24*time.Hour, false,
			&o.Timeout),
		"connect_timeout": r.duration("origins.connect_timeout", time.Millisecond, time.Hour,
			false, &o.ConnectTimeout),
		"total_timeout": r.duration("origins.total_timeout", time.Millisecond, 24*time.Hour,
			true, &o.TotalTimeout),
		"answer_header_bytes": r.size("origins.answer_header_bytes", 4<<10, 1<<20, false,
			&o.AnswerHead),
		"upgrades": func(n ast.Node) {
			o.Upgrades = []string{}
			r.texts("origins.upgrades", func(n ast.Node, text string) {
				name := strings.ToLower(text)
				switch {
				case !message.IsToken([]byte(name)):
					r.fail(n,
						"origins.upgrades: %q is not the name of a protocol: want one such as websocket", text)
				case strings.HasPrefix(name, "h2") || name == "http" || name == "tls":
					r.fail(n,
						"origins.upgrades: %s cannot be tunnelled: requests in it would pass all rules by", text)
				default:
					o.Upgrades = append(o.Upgrades, name)
				}
			})(n)
		},
		"balance":      oneOf(r, "origins.balance", &balance, upstream.Balances[:]...),
		"max_requests": integer(r, "origins.max_requests", 0, 1_000_000, &o.MaxRequests),
		"max_requests_per_source": integer(r, "origins.max_requests_per_source", 0, 1_000_000,
			&o.MaxRequestsPerSource),
		"shedding": func(n ast.Node) { o.Shedding = r.shedding(n) },
	})
	if seen == nil {
		return
	}
	if seen["servers"] == nil || len(o.Servers) == 0 && len(r.errs) == 0 {
		r.fail(n, "origin: no servers: give at least one URL under servers")
	}
	if len(o.Servers) > 0 && o.TLS != (upstream.TLS{}) && !slices.ContainsFunc(o.Servers,
		upstream.IsSecure) {
		r.fail(at,
			"origins.tls: none of the servers is https:// or h2://: write them so, or remove tls")
	}
	if two := slices.ContainsFunc(o.Servers, upstream.IsHTTP2); two &&
		slices.ContainsFunc(o.Servers, func(u *url.URL) bool { return !upstream.IsHTTP2(u) }) {
		r.fail(n,
			"origins.servers: some speak HTTP/2 and others HTTP/1.1: write h2c:// or h2:// for all, or for none")
	} else if two && len(o.Upgrades) > 0 {
		r.fail(n,
			"origins.upgrades: no request to a server of HTTP/2 switches protocols: remove upgrades, or write its URL with http:// or https://")
	}
	if at := seen["hosts"]; len(o.Hosts) == 0 && at != nil && len(r.errs) == 0 {
		r.fail(at, "origins.hosts: none is named: leave hosts out for all, or name one")
	}
	for i, h := range o.Hosts {
		if slices.Contains(o.Hosts[:i], h) {
			r.fail(seen["hosts"], "origins.hosts: %s is there twice: remove one", h)
		}
	}
	if len(o.Hosts) == 0 {
		o.Hosts = []string{"*"}
	}
	o.Balance = upstream.Balance(slices.Index(upstream.Balances[:], balance))
	for _, other := range c.Origins {
		for _, h := range o.Hosts {
			if slices.Contains(other.Hosts, h) {
				r.fail(n, "origin: host %s has an origin above already: put all its servers there",
					h)
			}
		}
		for _, u := range o.Servers {
			if upstream.IsSecure(u) && other.TLS != o.TLS && slices.ContainsFunc(other.Servers,
				func(v *url.URL) bool { return *u == *v }) {
				r.fail(at, "origins.tls: %s is above already with another tls: write the same here",
					u)
			}
		}
	}
	c.Origins = append(c.Origins, o)
}

// shedding reads the bounds of a limit on the requests under way. An empty mapping is one with the
// defaults.
func (r *reader) shedding(n ast.Node) *shedding.Config {
	if scalar(n) == "none" {
		return nil
	}
	c := new(shedding.Config)
	r.mapping(n, "origins.shedding", fields{
		"min": integer(r, "origins.shedding.min", 1, 1_000_000, &c.Min),
		"max": integer(r, "origins.shedding.max", 1, 1_000_000, &c.Max),
	})
	if c.Min == 0 && c.Max > 0 {
		c.Min = min(c.Max, shedding.DefaultMin)
	}
	if *c = c.WithDefaults(); c.Min > c.Max {
		r.fail(n, "origins.shedding: min is %d, above max, which is %d: no limit lies between them",
			c.Min, c.Max)
	}
	return c
}
