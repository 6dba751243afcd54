package bench

import (
	"fmt"
	"net/netip"

	"sluice/loadgen/process"
)

// server configures one of the servers: HTTP/2 over TLS as it comes, and a limit of requests for each source but the calm one.
func (h *HTTP2Attacks) server(name string, at, admin netip.AddrPort) (*process.Process, error) {
	text := map[string]func(at, admin netip.AddrPort) string{"sluice": h.sluice, "nginx": h.nginx, "haproxy": h.haproxy}[name](at, admin)
	file, err := h.p.file(name+".conf", text)
	if err != nil {
		return nil, err
	}
	switch name {
	case "nginx":
		path, err := process.Find("nginx", "install it, or leave it out with --servers")
		return &process.Process{Name: name, Path: path, Args: []string{"-p", h.p.dir, "-c", file}}, err
	case "haproxy":
		path, err := process.Find("haproxy", "install it, or leave it out with --servers")
		return &process.Process{Name: name, Path: path, Args: []string{"-db", "-q", "-f", file}}, err
	}
	return &process.Process{Name: name, Path: h.Sluice, Args: []string{"--config", file, "--log-level", "error"}}, nil
}

func (h *HTTP2Attacks) sluice(at, admin netip.AddrPort) string {
	return fmt.Sprintf(`listen: 127.0.0.1:0
listen_tls: %[1]s
tls: {certificate: %[2]s, key: %[2]s}
admin: %[3]s
allow: [%[4]v]
origins: [{servers: ["http://%[5]s"]}]
rules: [{name: sources, limit: %[6]d, window: %[7]v, mitigation_timeout: 1m}]
`, at, h.p.pem, admin, calmSources, h.p.origin, attackLimit, attackWindow)
}

func (h *HTTP2Attacks) nginx(at, _ netip.AddrPort) string {
	return fmt.Sprintf(`daemon off;
master_process off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile 20000;
events { worker_connections 8192; }
http {
%[2]s  access_log off;
  geo $limited { default 1; %[3]v 0; }
  map $limited $source { 1 $binary_remote_addr; 0 ""; }
  limit_req_zone $source zone=sources:64m rate=%[4]dr/s;
  limit_req_log_level info;
  upstream origin {
    server %[5]s;
    keepalive 1024;
  }
  server {
    listen %[6]s ssl http2 backlog=4096;
    ssl_certificate %[7]s;
    ssl_certificate_key %[7]s;
    ssl_protocols TLSv1.3;
    ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
    location / {
      limit_req zone=sources burst=%[8]d nodelay;
      limit_req_status 429;
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }
  }
}
`, h.p.dir, process.NginxFolders(h.p.dir), calmSources, attackLimit/int(attackWindow.Seconds()), h.p.origin, at, h.p.pem, attackLimit)
}

func (h *HTTP2Attacks) haproxy(at, _ netip.AddrPort) string {
	return fmt.Sprintf(`global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout http-request 10s
  http-reuse always
frontend edge
  bind %s backlog 4096 ssl crt %s alpn h2 ssl-min-ver TLSv1.3 ciphersuites TLS_AES_128_GCM_SHA256
  stick-table type ip size 1m expire 60s store http_req_rate(%v)
  http-request track-sc0 src unless { src %v }
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt %d }
  default_backend origin
backend origin
  option forwardfor
  server origin %s
`, at, h.p.pem, attackWindow, calmSources, attackLimit, h.p.origin)
}
