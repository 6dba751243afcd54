package bench

import (
	"fmt"
	"net/netip"
	"strings"

	"sluice/loadgen/process"
)

// edge configures one of the edges for a case: to listen at an address, to count by the same thing, and either to refuse nobody or
// everybody beyond a first request.
func (p *Peers) edge(name, at string, admin netip.AddrPort, c PeerCase) (*process.Process, error) {
	program, _, _ := strings.Cut(name, " ")
	var config string
	switch program {
	case "nginx":
		config = p.nginx(name, at, c)
	case "haproxy":
		config = p.haproxy(name, at, c)
	case "caddy":
		config = p.caddy(at)
	case "fasthttp":
		args := []string{"bench-peers", "--bare", at, "--origin", p.origin}
		if c.has("refuse") {
			args = append(args, "--refuse")
		}
		return &process.Process{Name: name, Path: p.Self, Args: args}, nil
	default:
		config = p.sluice(name, at, admin, c)
	}
	file, err := p.file(strings.ReplaceAll(name, " ", "-")+".conf", config)
	if err != nil {
		return nil, err
	}
	switch program {
	case "nginx":
		path, err := process.Find("nginx", "install it, or leave it out with --edges")
		return &process.Process{Name: name, Path: path, Args: []string{"-p", p.dir, "-c", file}}, err
	case "haproxy":
		path, err := process.Find("haproxy", "install it, or leave it out with --edges")
		return &process.Process{Name: name, Path: path, Args: []string{"-db", "-q", "-f", file}}, err
	case "caddy":
		path, err := process.Find("caddy", "install it, or leave it out with --edges")
		if err != nil {
			return nil, err
		}
		env, err := process.Find("env", "it comes with coreutils") // it keeps files of its own there
		return &process.Process{Name: name, Path: env, Args: []string{"XDG_CONFIG_HOME=" + p.dir, "XDG_DATA_HOME=" + p.dir, path, "run", "--config", file, "--adapter", "caddyfile"}}, err
	}
	path := p.Sluice
	if name == Before {
		path = p.Before
	}
	return &process.Process{Name: name, Path: path, Args: []string{"--config", file, "--log-level", "error"}}, nil
}

func (p *Peers) nginx(name, at string, c PeerCase) string {
	rate, burst, key, status := "1000000r/s", " burst=1000000 nodelay", "$binary_remote_addr", 429
	if closers[name] {
		status = 444
	}
	if c.has("refuse") {
		rate, burst = "1r/m", ""
	}
	if c.Sources > 1 {
		key = "$http_x_forwarded_for"
	}
	var ssl, sslLines string
	if c.has("tls") { // a full handshake gives one ticket, as Go's does; HAProxy always gives two
		ssl = " ssl"
		if c.has("h2") {
			ssl += " http2"
		}
		sslLines = fmt.Sprintf(`    ssl_certificate %[1]s;
    ssl_certificate_key %[1]s;
    ssl_protocols TLSv1.3;
    ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
    ssl_conf_command NumTickets 1;
`, p.pem)
	}
	return fmt.Sprintf(`daemon off;
master_process off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile 8192;
events { worker_connections 4096; }
http {
%[2]s  access_log off;
  keepalive_requests 1000000000;
  limit_req_zone %[3]s zone=sources:64m rate=%[4]s;
  limit_req_log_level info;
  upstream origin {
    server %[5]s;
    keepalive 1024;
    keepalive_requests 1000000000;
  }
  server {
    listen %[6]s%[8]s backlog=4096;
%[9]s    location / {
      limit_req zone=sources%[7]s;
      limit_req_status %[10]d;
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }
  }
}
`, p.dir, process.NginxFolders(p.dir), key, rate, p.origin, at, burst, ssl, sslLines, status)
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
`, port, host, p.origin)
}

func (p *Peers) haproxy(name, at string, c PeerCase) string {
	limit, key, reject := 1_000_000_000, "src", ""
	if c.has("refuse") {
		limit = 1
	}
	if closers[name] {
		reject = fmt.Sprintf("  tcp-request connection reject if { src_http_req_rate gt %d }\n", limit)
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
`, at, ssl, reject, key, limit, p.origin)
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
		fmt.Fprintf(&b, "listen: 127.0.0.1:0\nlisten_tls: %s\ntls: {certificate: %[2]s, key: %[2]s}\n", at, p.pem)
	} else {
		fmt.Fprintf(&b, "listen: %s\n", at)
	}
	fmt.Fprintf(&b, "admin: %s\nlimits: {connections_per_source: 4096}\norigins: [{servers: [\"http://%s\"]}]\n", admin, p.origin)
	if header {
		b.WriteString("source: {trust: [127.0.0.0/8]}\n")
	}
	if name == "sluice memcached" {
		fmt.Fprintf(&b, "pop: {name: bench, memcached: [%q]}\n", p.tier)
	}
	if name == "sluice shed" {
		b.WriteString("shed: connection\n")
	}
	fmt.Fprintf(&b, "rules: [{name: sources, limit: %d, window: 1m, mitigation_timeout: 1m, mode: %s}]\n", limit, mode)
	return b.String()
}
