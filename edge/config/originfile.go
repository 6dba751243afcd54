package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/limiter/shedding"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

func (r *reader) origin(n ast.Node, c *Config) {
	o, at := upstream.Default(), n
	f := r.settings("origins.", &o)
	tls := f["tls"]
	f["tls"] = func(n ast.Node) {
		at = n
		if tls(n); (o.TLS.CertFile == "") != (o.TLS.KeyFile == "") {
			r.fail(n, "origins.tls: cert_file and key_file belong together: give both")
		}
	}
	f["shedding"] = func(n ast.Node) { o.Shedding = r.shedding(n) }
	seen := r.mapping(n, "origin", f)
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
	r.into(n, "origins.shedding", c)
	if c.Min == 0 && c.Max > 0 {
		c.Min = min(c.Max, shedding.DefaultMin)
	}
	if *c = c.WithDefaults(); c.Min > c.Max {
		r.fail(n, "origins.shedding: min is %d, above max, which is %d: no limit lies between them",
			c.Min, c.Max)
	}
	return c
}

func checkHealthPath(text string) error {
	if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, " \t\r\n#") {
		return fmt.Errorf("%q is not a path: want one such as /healthz, or none", text)
	}
	return nil
}

// upgrade reads the name of a protocol.
func upgrade(text string) (string, error) {
	name := strings.ToLower(text)
	switch {
	case !message.IsToken([]byte(name)):
		return "", fmt.Errorf("%q is not the name of a protocol: want one such as websocket", text)
	case strings.HasPrefix(name, "h2") || name == "http" || name == "tls":
		return "", fmt.Errorf("%s cannot be tunnelled: requests in it would pass all rules by", text)
	}
	return name, nil
}
