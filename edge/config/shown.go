package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"sluice/edge/rules"
	"sluice/edge/upstream"
)

// Shown is a configuration for operators, with the names of the file: what is in force but for the
// rules.
func Shown(c *Config) map[string]any {
	orNone := func(text string) string {
		if text == "" {
			return "none"
		}
		return text
	}
	span := func(d time.Duration) string { return d.String() }
	origins := []any{}
	for _, o := range c.Origins {
		servers := []string{}
		for _, u := range o.Servers {
			servers = append(servers, u.Redacted())
		}
		one := map[string]any{"hosts": o.Hosts, "servers": servers, "timeout": span(o.Timeout),
			"connect_timeout": span(cmp.Or(o.ConnectTimeout, upstream.DefaultConnect)),
			"total_timeout":   span(o.TotalTimeout), "balance": o.Balance.String(),
			"answer_header_bytes": cmp.Or(o.AnswerHead, upstream.MaxHead),
			"health": map[string]any{"active": orNone(o.Health.Active),
				"interval": span(cmp.Or(o.Health.Interval, upstream.DefaultInterval))},
			"max_requests": o.MaxRequests, "max_requests_per_source": o.MaxRequestsPerSource,
			"upgrades": o.Upgrades,
			"tls": map[string]any{"ca_file": orNone(o.TLS.CAFile), "cert_file": orNone(o.TLS.CertFile),
				"key_file": orNone(o.TLS.KeyFile), "server_name": orNone(o.TLS.ServerName)}}
		if o.Upgrades == nil {
			one["upgrades"] = []string{"websocket"}
		}
		if o.Shedding != nil {
			one["shedding"] = map[string]any{"min": o.Shedding.Min, "max": o.Shedding.Max}
		}
		origins = append(origins, one)
	}
	peers, mode := []any{}, "enforce"
	for _, p := range c.PoP.Peers {
		peers = append(peers, map[string]any{"name": p.Name, "edges": p.Edges})
	}
	if c.PoP.PeersOff {
		mode = "off"
	}
	list := func(l []string) []string { return append([]string{}, l...) }
	prefixes := func(l []netip.Prefix) []netip.Prefix { return append([]netip.Prefix{}, l...) }
	all := map[string]any{
		"listen": shownListeners(c.Listen), "listen_tls": shownListeners(c.ListenTLS),
		"listen_sockets": c.ListenSockets, "admin": c.Admin, "admin_hosts": list(c.AdminHosts),
		"admin_token_file": orNone(c.AdminTokenFile), "admin_insecure": c.AdminInsecure,
		"metrics_token": c.MetricsToken, "edge_id": orNone(c.EdgeID),
		"state_dir": orNone(c.StateDir),
		"tls": map[string]any{"certificate": orNone(c.TLS.Certificate), "key": orNone(c.TLS.Key),
			"folder": orNone(c.TLS.Folder)},
		"hsts": map[string]any{"max_age": c.HSTS.shownAge(),
			"include_subdomains": c.HSTS.Subdomains, "preload": c.HSTS.Preload},
		"pop": map[string]any{"name": c.PoP.Name, "memcached": list(c.PoP.Memcached),
			"secret_file": orNone(c.PoP.SecretFile),
			"edges":       c.PoP.Edges, "wait": span(c.PoP.Wait),
			"peers": peers, "peers_listen": orNone(c.PoP.PeersListen),
			"peers_secret_file": orNone(c.PoP.PeersSecretFile), "peers_mode": mode},
		"etcd": map[string]any{"endpoints": list(c.Etcd.Endpoints), "prefix": c.Etcd.Prefix,
			"username": orNone(c.Etcd.Username), "password_file": orNone(c.Etcd.PasswordFile),
			"ca_file": orNone(c.Etcd.CAFile), "cert_file": orNone(c.Etcd.CertFile),
			"key_file": orNone(c.Etcd.KeyFile)},
		"table": map[string]any{"counters": c.Counters},
		"source": map[string]any{"ipv4_prefix": c.Source.IPv4Prefix,
			"ipv6_prefix": c.Source.IPv6Prefix, "trust": prefixes(c.Source.Trust),
			"trust_everybody": c.Source.TrustEverybody,
			"header":          c.Source.Header, "proxy_protocol": c.Source.ProxyProtocol},
		"lists": shownLists(c.Lists), "deny": shownGroup(c.Deny, c.DenyLists,
			c.DenyMarked), "allow": shownGroup(c.Allow, c.AllowLists, c.AllowMarked),
		"limits": map[string]any{"connections": c.Limits.Connections,
			"connections_per_source": c.Limits.PerSource, "memory": c.Limits.Memory,
			"header_bytes": c.Limits.HeaderBytes, "header_lines": c.Limits.HeaderLines,
			"body_bytes": c.Limits.BodyBytes,
			"body_rate":  c.Limits.BodyRate, "answer_rate": c.Limits.AnswerRate,
			"header_timeout": span(c.Limits.HeaderTimeout),
			"idle_timeout":   span(c.Limits.IdleTimeout),
			"tunnel_timeout": span(c.Limits.TunnelTimeout)},
		"http2": map[string]any{"enabled": c.HTTP2.Enabled, "max_streams": c.HTTP2.MaxStreams,
			"cleartext": c.HTTP2.Cleartext},
		"origins":    origins,
		"shed":       c.Shed,
		"check_path": orNone(c.CheckPath), "verdict_header": c.VerdictHeader,
		"plans": map[string]any{"key": orNone(c.Plans.Key), "also": list(c.Plans.Also),
			"default": c.Plans.Default, "store": orNone(redacted(c.Plans.Store)),
			"refresh": span(c.Plans.Refresh), "secret_keys": c.Plans.SecretKeys},
		"jwt": map[string]any{"keys_file": orNone(c.JWT.KeysFile),
			"algorithms": list(c.JWT.Algorithms), "issuer": orNone(c.JWT.Issuer),
			"audience": orNone(c.JWT.Audience),
			"header":   orNone(c.JWT.Header), "cookie": orNone(c.JWT.Cookie),
			"leeway": span(c.JWT.Leeway)},
	}
	c.shownSettings(all)
	if c.Limits.Wanted > c.Limits.Connections {
		all["limits"].(map[string]any)["connections_configured"] = c.Limits.Wanted
	}
	if len(c.Composed.Hidden) > 0 {
		all = hidden(plain(all), "", c.Composed.Hidden).(map[string]any)
	}
	return all
}

// Fields is a rule in JSON, as ParseRule reads it: its name, and what is not the default.
func Fields(r rules.Config) map[string]any {
	all, standard := plain(r), plain(rules.Default(r.Name, 0))
	set := differing(all, standard)
	set["name"] = r.Name
	if r.Estimate != nil {
		set["estimate"] = r.Estimate.String()
	}
	return set
}

// RuleJSON is Fields as text, the same for the same rule.
func RuleJSON(r rules.Config) string { return text(Fields(r)) }

// Hash stands for rules, in whatever order: the same for the same, and a number that a float64
// holds.
func Hash(list []rules.Config) uint64 {
	lines := make([]string, len(list))
	for i, r := range list {
		lines[i] = RuleJSON(r)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return binary.BigEndian.Uint64(sum[:8]) >> 16
}

// plain is a value as JSON shows it.
func plain(v any) (fields map[string]any) {
	d := json.NewDecoder(strings.NewReader(text(v)))
	d.UseNumber()
	_ = d.Decode(&fields) // it is what text wrote
	return fields
}

func text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // a rule always can be
	return strings.TrimSuffix(b.String(), "\n")
}

// differing are the fields that differ from the standard, and of objects those within.
func differing(all, standard map[string]any) map[string]any {
	set := make(map[string]any)
	for name, v := range all {
		if inner, object := v.(map[string]any); object {
			its, _ := standard[name].(map[string]any)
			if d := differing(inner, its); len(d) > 0 {
				set[name] = d
			}
		} else if !reflect.DeepEqual(v, standard[name]) {
			set[name] = v
		}
	}
	return set
}
