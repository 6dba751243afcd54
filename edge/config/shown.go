package config

import (
	"net/netip"
	"time"
)

// Shown is a configuration for operators, with the names of the file: what is in force but for the rules.
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
		one := map[string]any{"hosts": o.Hosts, "servers": servers, "timeout": span(o.Timeout)}
		if o.Shedding != nil {
			one["shedding"] = map[string]any{"min": o.Shedding.Min, "max": o.Shedding.Max}
		}
		origins = append(origins, one)
	}
	shed := "answer"
	if c.Shed {
		shed = "connection"
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
	return map[string]any{
		"listen": c.Listen, "listen_tls": orNone(c.ListenTLS), "admin": c.Admin, "admin_hosts": list(c.AdminHosts),
		"admin_token_file": orNone(c.AdminTokenFile), "edge_id": orNone(c.EdgeID), "state_dir": orNone(c.StateDir),
		"tls": map[string]any{"certificate": orNone(c.TLS.Certificate), "key": orNone(c.TLS.Key), "folder": orNone(c.TLS.Folder)},
		"pop": map[string]any{"name": c.PoP.Name, "memcached": list(c.PoP.Memcached), "secret_file": orNone(c.PoP.SecretFile),
			"edges": c.PoP.Edges, "wait": span(c.PoP.Wait),
			"peers": peers, "peers_listen": orNone(c.PoP.PeersListen), "peers_secret_file": orNone(c.PoP.PeersSecretFile), "peers_mode": mode},
		"etcd": map[string]any{"endpoints": list(c.Etcd.Endpoints), "prefix": c.Etcd.Prefix, "username": orNone(c.Etcd.Username), "password_file": orNone(c.Etcd.PasswordFile),
			"ca_file": orNone(c.Etcd.CAFile), "cert_file": orNone(c.Etcd.CertFile), "key_file": orNone(c.Etcd.KeyFile)},
		"table": map[string]any{"counters": c.Counters},
		"source": map[string]any{"ipv4_prefix": c.Source.IPv4Prefix, "ipv6_prefix": c.Source.IPv6Prefix, "trust": prefixes(c.Source.Trust),
			"header": c.Source.Header, "proxy_protocol": c.Source.ProxyProtocol},
		"deny": prefixes(c.Deny), "allow": prefixes(c.Allow),
		"limits": map[string]any{"connections": c.Limits.Connections, "connections_per_source": c.Limits.PerSource, "memory": c.Limits.Memory,
			"header_bytes": c.Limits.HeaderBytes, "header_lines": c.Limits.HeaderLines, "body_bytes": c.Limits.BodyBytes,
			"body_rate": c.Limits.BodyRate, "answer_rate": c.Limits.AnswerRate, "header_timeout": span(c.Limits.HeaderTimeout),
			"idle_timeout": span(c.Limits.IdleTimeout), "tunnel_timeout": span(c.Limits.TunnelTimeout)},
		"origins":    origins,
		"access_log": map[string]any{"file": orNone(c.AccessLog.File), "format": c.AccessLog.Format, "refused": c.AccessLog.Refused},
		"shed":       shed, "check_path": orNone(c.CheckPath), "verdict_header": c.VerdictHeader,
		"plans": map[string]any{"key": orNone(c.Plans.Key), "also": list(c.Plans.Also), "default": c.Plans.Default, "store": orNone(redacted(c.Plans.Store)), "refresh": span(c.Plans.Refresh), "secret_keys": c.Plans.SecretKeys},
		"rate_limit_service": map[string]any{"listen": orNone(c.RateLimitService.Listen), "cert_file": orNone(c.RateLimitService.CertFile), "key_file": orNone(c.RateLimitService.KeyFile),
			"client_ca_file": orNone(c.RateLimitService.ClientCAFile), "insecure": c.RateLimitService.Insecure},
		"jwt": map[string]any{"keys_file": orNone(c.JWT.KeysFile), "algorithms": list(c.JWT.Algorithms), "issuer": orNone(c.JWT.Issuer), "audience": orNone(c.JWT.Audience),
			"header": orNone(c.JWT.Header), "cookie": orNone(c.JWT.Cookie), "leeway": span(c.JWT.Leeway)},
	}
}
