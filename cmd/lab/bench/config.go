package bench

import (
	"fmt"
	"net/netip"
	"strings"

	"sluice/loadgen/process"
)

// edge configures one of the edges for a case: to listen at an address, to count by the same thing,
// and either to refuse nobody or everybody beyond a first request.
func (p *Peers) edge(name, at string, admin netip.AddrPort, c PeerCase) (*process.Process, error) {
	switch program, _, _ := strings.Cut(name, " "); program {
	case "nginx":
		return p.server(name, "", p.nginx(name, at, c))
	case "haproxy":
		return p.server(name, "", p.haproxy(name, at, c))
	case "caddy":
		return p.server(name, "", p.caddy(at))
	case "fasthttp":
		args := []string{"bare-proxy", "--listen", at, "--origin", p.origin()}
		if c.has("refuse") {
			args = append(args, "--refuse")
		}
		return &process.Process{Name: name, Path: p.Self, Args: args}, nil
	}
	path := p.Sluice
	if name == Before {
		path = p.Before
	}
	return p.server(name, path, p.sluice(name, at, admin, c))
}

func (p *Peers) nginx(name, at string, c PeerCase) string {
	n := nginxServer{connections: 4096, keep: "1000000000", origin: p.origin(), listen: at,
		rate: "1000000r/s", burst: " burst=1000000 nodelay", key: "$binary_remote_addr",
		status: 429}
	if closers[name] {
		n.status = 444
	}
	if c.has("refuse") {
		n.rate, n.burst = "1r/m", ""
	}
	if c.Sources > 1 {
		n.key = "$http_x_forwarded_for"
	}
	if c.has("tls") { // a full handshake gives one ticket, as Go's does; HAProxy always gives two
		n.listen += " ssl"
		if c.has("h2") {
			n.listen += " http2"
		}
		n.server = p.tls() + "    ssl_conf_command NumTickets 1;\n"
	}
	return p.bed.nginx(n)
}

// caddy is what its reverse_proxy does without being told anything, for every host.
func (p *Peers) caddy(at string) string {
	host, port, _ := strings.Cut(at, ":")
	return fmt.Sprintf(`{
  admin off
  auto_https off
  log {
    output discard
  }
}
http://:%s {
  bind %s
  reverse_proxy %s
}
`, port, host, p.origin())
}

func (p *Peers) haproxy(name, at string, c PeerCase) string {
	limit, key, reject := 1_000_000_000, "src", ""
	if c.has("refuse") {
		limit = 1
	}
	if closers[name] {
		reject = fmt.Sprintf("  tcp-request connection reject if { src_http_req_rate gt %d }\n",
			limit)
	}
	if c.Sources > 1 {
		key = "hdr_ip(x-forwarded-for)"
	}
	var ssl string
	if c.has("tls") {
		ssl = " ssl crt " + p.pem + " ssl-min-ver TLSv1.3 ciphersuites TLS_AES_128_GCM_SHA256"
		if c.has("h2") {
			ssl += " alpn h2"
		}
	}
	return fmt.Sprintf(`global
  nbthread 1
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend edge
  bind %s backlog 4096%s
  stick-table type ip size 1m expire 60s store http_req_rate(60s)
%s  http-request track-sc0 %s
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt %d }
  default_backend origin
backend origin
  option forwardfor
  server origin %s
`, at, ssl, reject, key, limit, p.origin())
}

func (p *Peers) sluice(name, at string, admin netip.AddrPort, c PeerCase) string {
	refuse, header := c.has("refuse"), c.Sources > 1
	limit, mode := 1_000_000_000, "enforce"
	if refuse {
		limit = 1
	}
	if header && !refuse {
		limit = 10_000
	}
	if name == "sluice off" {
		mode = "off"
	}
	var b strings.Builder
	if c.has("tls") {
		fmt.Fprintf(&b,
			"listen: 127.0.0.1:0\nlisten_tls: %s\ntls: {certificate: %[2]s, key: %[2]s}\n", at,
			p.pem)
	} else {
		fmt.Fprintf(&b, "listen: %s\n", at)
	}
	fmt.Fprintf(&b,
		"admin: %s\nlimits: {connections_per_source: 4096}\norigins: [{servers: [\"http://%s\"]}]\n", admin, p.origin())
	if header {
		b.WriteString("source: {trust: [127.0.0.0/8]}\n")
	}
	if name == "sluice memcached" {
		fmt.Fprintf(&b, "pop: {name: bench, memcached: [%q]}\n", p.tier)
	}
	if name == "sluice shed" {
		b.WriteString("shed: connection\n")
	}
	fmt.Fprintf(&b,
		"rules: [{name: sources, limit: %d, window: 1m, mitigation_timeout: 1m, mode: %s}]\n",
		limit, mode)
	return b.String()
}
